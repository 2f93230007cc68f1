"""A load test from a question to its sums: the model's name, prompts of the right length, the requests, the client's own load."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from tonnage.errors import OutsideError, RequestError
from tonnage.load.client import send_at, send_by_clients
from tonnage.load.prompts import Prompt, prompts_of
from tonnage.load.summary import Benched, summed
from tonnage.load.types import Api, Outcome, Sample, Target
from tonnage.nouns import noun
from tonnage.simulate.arrivals import Requests
from tonnage.units import Seconds

__all__ = ["LoadTest", "bench", "served_model"]

_PROBE_WORDS = (64, 512)
_PROBE_SECONDS = 120.0
_LOOK_SECONDS = 10.0
_MOST_ANSWER_BYTES = 1 << 20


@noun
class LoadTest:
    """How a server is loaded."""

    url: str
    model: str = ""  # "": the first that it serves
    api: Api = Api.COMPLETIONS
    key: str = ""
    requests: Requests  # lengths, and in an open loop when each is sent
    num_clients: int | None = None  # a closed loop with so many in flight; None: an open loop
    until_seconds: Seconds | None = None  # of a closed loop; None: each request once
    warmup: int = 1
    timeout_seconds: Seconds = 600.0
    ttft_limit_seconds: Seconds | None = None
    tpot_limit_seconds: Seconds | None = None
    e2e_limit_seconds: Seconds | None = None
    asks_to_go_on: bool = True
    seed: int = 0


def bench(test: LoadTest, told: Callable[[int], None] | None = None) -> tuple[Benched, list[Sample], Target]:
    """Load a server and sum up what was seen.

    Parameters
    ----------
    test : LoadTest
        The server and the load.
    told : callable
        Called with the number of requests that ended.

    Returns
    -------
    tuple
        The sums, every request, and the server as it was asked.

    Raises
    ------
    OutsideError
        The server does not answer, or the client's library is not installed.
    RequestError
        The address is none, or the server turns the first request down.

    Notes
    -----
    Derived. Two short requests before the test tell how many tokens a word is, and whether the server knows
    `ignore_eos`; without a count from the server a word is taken for a token.
    """
    address(test.url)
    target = Target(
        url=test.url.rstrip("/").removesuffix("/v1"),
        model=test.model or served_model(test.url, test.key),
        api=test.api,
        timeout_seconds=test.timeout_seconds,
        key=test.key,
        asks_to_go_on=test.asks_to_go_on,
    )
    target, per_word, extra = probed(target)
    load = test.requests
    prompts = prompts_of(
        load.input_tokens, load.output_tokens, tokens_per_word=per_word, extra_tokens=extra, seed=test.seed
    )
    cpu, clock = time.process_time(), time.perf_counter()
    if test.num_clients is None:
        samples = send_at(target, prompts, load.arrival_seconds, warmup=test.warmup, told=told)
    else:
        samples = send_by_clients(
            target,
            prompts,
            num_clients=test.num_clients,
            until_seconds=test.until_seconds,
            warmup=test.warmup,
            told=told,
        )
    busy = (time.process_time() - cpu) / max(time.perf_counter() - clock, 1e-9)
    sums = summed(
        samples,
        ttft_limit_seconds=test.ttft_limit_seconds,
        tpot_limit_seconds=test.tpot_limit_seconds,
        e2e_limit_seconds=test.e2e_limit_seconds,
        client_busy_ratio=busy,
    )
    return sums, samples, target


def address(url: str) -> None:
    """Refuse what is no address of a server."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RequestError(f"'{url[:80]}' is no address", where="bench", fix="write http://127.0.0.1:8000")
    if parts.username or parts.password:
        raise RequestError("a password in an address would be shown", where="bench", fix="set TONNAGE_API_KEY instead")


def served_model(url: str, key: str = "") -> str:
    """Return the name of the first model that a server offers.

    Parameters
    ----------
    url : str
        Its address.
    key : str
        Its bearer token.

    Returns
    -------
    str
        The name.

    Raises
    ------
    OutsideError
        Nobody answers, or not with a list of models.
    """
    request = urllib.request.Request(f"{url.rstrip('/').removesuffix('/v1')}/v1/models")  # noqa: S310  `address` looked at it
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=_LOOK_SECONDS) as answer:  # noqa: S310
            listed: Any = json.loads(answer.read(_MOST_ANSWER_BYTES))
        return str(listed["data"][0]["id"])
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise OutsideError(
            f"does not answer: {reason}", where=url[:120], fix="start the server, or name its address"
        ) from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise OutsideError("lists no model", where=f"{url[:120]}/v1/models", fix="name it with --model") from None


def probed(target: Target) -> tuple[Target, float, float]:
    """Ask twice to learn how many tokens a word is, and how the server likes to be asked."""
    texts = [prompts_of((words,), (2,), seed=words)[0] for words in _PROBE_WORDS]
    found = _asked(target, texts)
    if target.asks_to_go_on and found[0].outcome is Outcome.CLIENT_FAULT:
        target = replace(target, asks_to_go_on=False)
        found = _asked(target, texts)
    first = found[0]
    if first.outcome not in (Outcome.OK, Outcome.EMPTY):
        kind = OutsideError if first.outcome in (Outcome.REFUSED, Outcome.TIMED_OUT, Outcome.CLOSED) else RequestError
        raise kind(
            f"the first request failed: {first.outcome}, {first.reason}", where=target.url[:120], fix="mend that first"
        )
    few, many = found[0].input_tokens, found[1].input_tokens
    if few is None or many is None or few == many:
        return target, 1.0, 0.0
    per_word = (many - few) / (_PROBE_WORDS[1] - _PROBE_WORDS[0])
    return target, max(per_word, 0.1), max(few - per_word * _PROBE_WORDS[0], 0.0)


def _asked(target: Target, prompts: Sequence[Prompt]) -> list[Sample]:
    short = replace(target, timeout_seconds=min(target.timeout_seconds, _PROBE_SECONDS))
    return send_by_clients(short, prompts, num_clients=1)
