"""The answer: a request in, a short ranked list of plans out, each with its reasons; and the plan file."""
