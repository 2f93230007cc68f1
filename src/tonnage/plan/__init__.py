"""The answer: ranked plans, the reasons of the rest, and the plan file."""
