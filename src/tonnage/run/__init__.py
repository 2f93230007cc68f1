"""Changes the world: starts, supervises and ends runs."""
