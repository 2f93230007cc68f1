"""Steps of a fixed length, so that a schedule can be traced by hand."""


class FixedTimes:
    """Every step takes as long as every other."""

    def __init__(self, seconds=1.0):
        self.seconds = seconds

    def decode(self, num_sequences, total_tokens):
        return self.seconds

    def decode_line(self, num_sequences, total_tokens):
        return self.seconds, 0.0, float("inf")

    def attention(self, start_tokens, end_tokens):
        return 0.0

    def mixed(self, num_sequences, total_tokens, prompt_tokens, attention_seconds):
        return self.seconds
