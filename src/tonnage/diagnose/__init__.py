"""From symptoms to cause and cure."""
