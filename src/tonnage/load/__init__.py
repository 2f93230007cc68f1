"""The load client."""
