"""Programs that `run` starts by `python -m`; imported by nobody."""
