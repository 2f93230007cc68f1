"""Starts a plan here and brings it to its end: the only package that changes the world."""
