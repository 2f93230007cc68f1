"""Our vocabulary of metrics: one name a quantity, base units as suffix."""
