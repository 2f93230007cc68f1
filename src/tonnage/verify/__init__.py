"""Verdicts: limits held against measurements."""
