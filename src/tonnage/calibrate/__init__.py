"""Constants fitted to measurements; host profiles."""
