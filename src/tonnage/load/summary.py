"""What a load test says: rates, percentiles, goodput, errors by kind, and whether the client itself was the limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from tonnage.load.types import Outcome, Sample
from tonnage.nouns import noun
from tonnage.simulate.replay import Tail, tail_of
from tonnage.units import Count, Ratio, RequestsPerS, Seconds, TokensPerS

__all__ = ["Benched", "bench_object", "summed"]

_LATE_SECONDS = 0.02  # of what was due: a client that sends later is itself the limit
_BUSY_RATIO = 0.9  # of a core, likewise
# Samples that lie beyond a percentile, for it to say something: ten.
_BEYOND = 10


@noun
class Benched:
    """The sums. Times are of requests that ended well, warm-up left out."""

    num_requests: int
    num_ok: int
    errors: Mapping[str, int] = field(default_factory=dict[str, int])  # by kind
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])  # the first of each kind
    span_seconds: Seconds
    ttft: Tail
    tpot: Tail
    e2e: Tail
    gap: Tail  # the longest wait between two chunks of each request
    requests_per_s: RequestsPerS
    input_tokens: int | None
    output_tokens: int
    goodput_requests_per_s: RequestsPerS
    kept_ratio: Ratio
    late: Tail  # how much later than due requests were sent
    client_busy_ratio: Ratio | None
    is_client_limited: bool
    few: tuple[str, ...] = ()  # percentiles with too few samples

    @property
    def output_tokens_per_s(self) -> TokensPerS:
        """Tokens generated over the span; derived."""
        return self.output_tokens / self.span_seconds if self.span_seconds > 0 else 0.0


def summed(
    samples: Sequence[Sample],
    *,
    ttft_limit_seconds: Seconds | None = None,
    tpot_limit_seconds: Seconds | None = None,
    e2e_limit_seconds: Seconds | None = None,
    client_busy_ratio: Ratio | None = None,
) -> Benched:
    """Sum up what was seen.

    Parameters
    ----------
    samples : sequence of Sample
        All requests.
    ttft_limit_seconds, tpot_limit_seconds, e2e_limit_seconds : numeric
        Limits that goodput keeps; None is no limit. [s]
    client_busy_ratio : numeric
        Processor time of the client over the clock. [1]

    Returns
    -------
    Benched
        The sums.

    Notes
    -----
    Derived: rates are over the time from the first request that was due to the last that ended; percentiles are
    numpy's. A percentile says something with ten samples beyond it.
    """
    counted = [one for one in samples if not one.is_warmup]
    good = [one for one in counted if one.outcome is Outcome.OK]
    start = min((one.scheduled_seconds for one in counted), default=0.0)
    span = max((one.end_seconds for one in counted), default=0.0) - start
    kept = sum(
        _within(one.ttft_seconds, ttft_limit_seconds)
        and _within(one.tpot_seconds, tpot_limit_seconds)
        and _within(one.e2e_seconds, e2e_limit_seconds)
        for one in good
    )
    failed = [one for one in counted if one.outcome is not Outcome.OK]
    reasons: dict[str, str] = {}
    for one in failed:
        reasons.setdefault(str(one.outcome), one.reason)
    inputs = [one.input_tokens for one in good]
    late = tail_of([max(one.sent_seconds - one.scheduled_seconds, 0.0) for one in counted])
    is_late = (late.p99 or 0.0) > _LATE_SECONDS
    return Benched(
        num_requests=len(counted),
        num_ok=len(good),
        errors=dict(Counter(str(one.outcome) for one in failed)),
        reasons=reasons,
        span_seconds=span,
        ttft=tail_of([one.ttft_seconds for one in good if one.ttft_seconds is not None]),
        tpot=tail_of([one.tpot_seconds for one in good if one.tpot_seconds is not None]),
        e2e=tail_of([one.e2e_seconds for one in good]),
        gap=tail_of([one.worst_gap_seconds for one in good if one.worst_gap_seconds is not None]),
        requests_per_s=len(good) / span if span > 0 else 0.0,
        input_tokens=None if any(number is None for number in inputs) else sum(number or 0 for number in inputs),
        output_tokens=sum(one.output_tokens for one in good),
        goodput_requests_per_s=kept / span if span > 0 else 0.0,
        kept_ratio=kept / len(counted) if counted else 0.0,
        late=late,
        client_busy_ratio=client_busy_ratio,
        is_client_limited=is_late or (client_busy_ratio or 0.0) > _BUSY_RATIO,
        few=tuple(
            name for name, quantile in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)) if _is_few(len(good), quantile)
        ),
    )


def _within(value: Seconds | None, limit: Seconds | None) -> bool:
    return limit is None or value is None or value <= limit


def _is_few(number: Count, quantile: Ratio) -> bool:
    return number * (1.0 - quantile) < _BEYOND * (1.0 - 1e-9)


def bench_object(found: Benched) -> dict[str, Any]:
    """Return the object that `tonnage bench --json` prints."""
    return {
        "requests": found.num_requests,
        "ok": found.num_ok,
        "errors": dict(found.errors),
        "reasons": dict(found.reasons),
        "span_seconds": found.span_seconds,
        "qps": found.requests_per_s,
        "goodput": found.goodput_requests_per_s,
        "kept_ratio": found.kept_ratio,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "output_tokens_per_s": found.output_tokens_per_s,
        **{f"{name}_seconds": _tail(getattr(found, name)) for name in ("ttft", "tpot", "e2e", "gap")},
        "client": {
            "late_seconds": _tail(found.late),
            "busy_ratio": found.client_busy_ratio,
            "is_the_limit": found.is_client_limited,
        },
        "too_few_samples_for": list(found.few),
    }


def _tail(tail: Tail) -> dict[str, Any]:
    return {name: getattr(tail, name) for name in ("mean", "p50", "p90", "p95", "p99", "worst")}
