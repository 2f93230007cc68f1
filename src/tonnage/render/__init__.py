"""A plan, an engine and a place become a bundle of files that start it."""
