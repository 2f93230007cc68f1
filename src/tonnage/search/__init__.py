"""Many estimates at once: the space of candidates as columns, masks with reasons, ranks."""
