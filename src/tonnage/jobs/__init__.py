"""Programs that `run` starts, each with the files that bear its name; imported by nobody."""
