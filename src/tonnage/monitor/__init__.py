"""Alert rules, dashboards and scrape configurations, built from a plan."""
