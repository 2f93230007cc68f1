"""What is to be held: a model read from its configuration or from the header of its weights."""
