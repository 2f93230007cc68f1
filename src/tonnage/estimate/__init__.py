"""Memory, time, energy and money of a candidate: pure, cited formulae, one module a family."""
