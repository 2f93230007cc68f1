"""Torch tracing, an extra: what the formulae are checked against."""
