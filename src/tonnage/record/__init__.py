"""The run folder: what a run writes, and what verify, watch, diagnose and the web read."""
