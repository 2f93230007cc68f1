"""The run folder: what a run writes and others read."""
