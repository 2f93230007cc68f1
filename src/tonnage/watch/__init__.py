"""The exporter and the live board."""
