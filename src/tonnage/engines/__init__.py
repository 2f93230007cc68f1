"""What runs a candidate: one small folder an engine, listed here; outsiders use the entry point `tonnage.engines`."""
