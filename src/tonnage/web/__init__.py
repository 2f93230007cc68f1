"""The planner and the run boards in a browser."""
