"""A plan under load or under loss."""
