"""What a load test sends, and what it sees of each request."""

from __future__ import annotations

from enum import StrEnum

from tonnage.nouns import noun
from tonnage.units import Seconds

__all__ = ["Api", "Outcome", "Sample", "Target"]


class Api(StrEnum):
    """Which of an OpenAI-compatible server's two doors is used."""

    CHAT = "chat"  # /v1/chat/completions
    COMPLETIONS = "completions"  # /v1/completions


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    REFUSED = "refused"  # nobody listens, or the connection is turned down
    CLOSED = "closed"  # the server went away before the end
    TIMED_OUT = "timed out"
    TOO_MANY = "HTTP 429"
    CLIENT_FAULT = "HTTP 4xx"
    SERVER_FAULT = "HTTP 5xx"
    MALFORMED = "malformed stream"  # no JSON, or an error in the stream
    EMPTY = "no token"  # an end without any


@noun
class Target:
    """The server and how it is asked."""

    url: str  # up to and without /v1
    model: str
    api: Api = Api.COMPLETIONS
    timeout_seconds: Seconds = 600.0
    key: str = ""  # sent as a bearer token, never written
    asks_to_go_on: bool = True  # ignore_eos: vLLM, SGLang and llama.cpp generate to the length asked for


@noun
class Sample:
    """One request. Times are of the client's clock, the first request's schedule being 0."""

    scheduled_seconds: Seconds  # when it was to be sent; all latencies count from here
    sent_seconds: Seconds
    first_token_seconds: Seconds | None
    end_seconds: Seconds
    input_tokens: int | None  # as the server counts them; None: it does not say
    output_tokens: int  # as the server counts them, else the chunks with text
    outcome: Outcome
    is_warmup: bool = False
    worst_gap_seconds: Seconds | None = None  # between two chunks
    reason: str = ""  # of a failure, short

    @property
    def ttft_seconds(self) -> Seconds | None:
        """From the schedule to the first token; derived."""
        return None if self.first_token_seconds is None else self.first_token_seconds - self.scheduled_seconds

    @property
    def tpot_seconds(self) -> Seconds | None:
        """Mean time of each token after the first; derived. None of one token."""
        if self.first_token_seconds is None or self.output_tokens < 2:
            return None
        return (self.end_seconds - self.first_token_seconds) / (self.output_tokens - 1)

    @property
    def e2e_seconds(self) -> Seconds:
        """From the schedule to the last token; derived."""
        return self.end_seconds - self.scheduled_seconds
