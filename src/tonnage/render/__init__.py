"""A candidate, an engine and a place become a bundle of files."""
