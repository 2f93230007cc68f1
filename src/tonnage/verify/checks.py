"""Every check of an acceptance, each a limit held against what was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from tonnage.estimate.types import Interval
from tonnage.plan.types import Plan
from tonnage.verify.limits import limit_of
from tonnage.verify.series import change_of, finite, fluctuation, spikes, straggling, windows
from tonnage.verify.types import Check, HardwareSeen, Part, Report, ServingSeen, TrainingSeen, Verdict

__all__ = ["serving_report", "training_report"]

_FEWEST_READINGS = 5


class _Maker:
    """Makes checks of one report."""

    def __init__(self, given: Mapping[str, float]) -> None:
        self.given = given

    def at_most(self, name: str, part: Part, measured: float | None, **words: Any) -> Check:
        """Hold a measurement below a limit."""
        return self._check(name, part, measured, lambda value, limit: value <= limit, **words)

    def at_least(self, name: str, part: Part, measured: float | None, **words: Any) -> Check:
        """Hold a measurement above a limit."""
        return self._check(name, part, measured, lambda value, limit: value >= limit, **words)

    def _check(
        self,
        name: str,
        part: Part,
        measured: float | None,
        holds: Callable[[float, float], bool],
        *,
        evidence: str = "",
        unit: str = "",
        plan: float | None = None,
        predicted: Interval | None = None,
        is_required: bool = False,
    ) -> Check:
        limit = limit_of(name, self.given, plan)
        verdict = Verdict.NOT_MEASURED
        if measured is not None and limit is not None:
            verdict = Verdict.PASS if holds(measured, limit.value) else Verdict.FAIL  # NaN holds nothing
        return Check(
            name=name,
            part=part,
            verdict=verdict,
            limit=None if limit is None else limit.value,
            origin="" if limit is None else limit.origin,
            measured=measured,
            predicted=predicted,
            is_required=is_required and limit is not None,
            evidence=evidence,
            unit=unit,
        )

    def predicted(
        self, name: str, interval: Interval | None, measured: float | None, unit: str, evidence: str
    ) -> Check:
        """Hold a prediction against what was measured: inside its interval passes."""
        verdict = Verdict.NOT_MEASURED
        if interval is not None and measured is not None:
            verdict = Verdict.PASS if interval.low <= measured <= interval.high else Verdict.FAIL
        return Check(
            name=name,
            part=Part.PREDICTION,
            verdict=verdict,
            origin="plan" if interval is not None else "",
            measured=measured,
            predicted=interval,
            evidence=evidence,
            unit=unit,
        )


def training_report(seen: TrainingSeen, plan: Plan | None, given: Mapping[str, float], name: str = "run") -> Report:
    """Accept or refuse a training run.

    Parameters
    ----------
    seen : TrainingSeen
        What it left behind.
    plan : Plan
        What was predicted; None where nobody planned it.
    given : mapping
        The person's own limits.
    name : str
        The run's name.

    Returns
    -------
    Report
        Every check; what was not measured says so.

    Notes
    -----
    Derived. Definitions: gradient norms are smoothed over windows, without the first fifth of the steps and without
    their trend (`verify.series.fluctuation`); a loss falls when the median of its last tenth is below that of its first;
    a step's time is judged by its 95th percentile over its median; replicas are equal where their checksums are.
    """
    make = _Maker(given)
    checks = (
        *_hardware(make, seen.hardware, is_training=True),
        *_framework(make, seen),
        *_business(make, seen, plan),
        *_training_predictions(make, seen, plan),
    )
    return Report(kind="training", name=name, checks=checks)


def _hardware(make: _Maker, devices: Sequence[HardwareSeen], *, is_training: bool) -> Iterator[Check]:
    """Yield the checks of each device; without readings one device stands for all, not measured."""
    part = Part.HARDWARE
    for seen in devices or (HardwareSeen(name="", evidence=""),):
        here = seen.evidence
        hottest = max(seen.temperatures_celsius, default=None)
        margin = None if hottest is None or seen.slowdown_celsius is None else seen.slowdown_celsius - hottest
        if is_training:
            yield make.at_most("gpu_memory_ratio", part, _sustained(seen.memory_ratios), evidence=here, unit="ratio")
            busy = _mean(seen.utilization_ratios)
            yield make.at_least("utilization_ratio", part, busy, evidence=here, unit="ratio")
        yield make.at_most("temperature_celsius", part, hottest, evidence=here, unit="celsius")
        yield make.at_least("slowdown_margin_celsius", part, margin, evidence=here, unit="celsius")
        yield make.at_most("throttled_ratio", part, seen.throttled_ratio, evidence=here, unit="ratio")
        for what in ("ecc_uncorrected", "remapped_rows", "xids", "nvlinks_down"):
            number = getattr(seen, f"num_{what}")
            yield make.at_most(what, part, None if number is None else float(number), evidence=here)
        for what in ("width", "generation"):
            now, most = getattr(seen, f"pcie_{what}"), getattr(seen, f"pcie_{what}_max")
            yield make.at_least(
                f"pcie_{what}",
                part,
                None if now is None else float(now),
                plan=None if most is None else float(most),
                evidence=here,
            )


def _sustained(values: Sequence[float]) -> float | None:
    """Return what is reached for a twentieth of the time at least: the 95th percentile."""
    if len(values) < _FEWEST_READINGS:
        return None
    return sorted(values)[int(0.95 * (len(values) - 1))]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if len(values) >= _FEWEST_READINGS else None


def _framework(make: _Maker, seen: TrainingSeen) -> Iterator[Check]:
    part, here = Part.FRAMEWORK, _span(seen)
    norms, losses, seconds = finite(seen.grad_norms), finite(seen.losses), finite(seen.step_seconds)
    bad = sum(value is not None and not math.isfinite(value) for value in (*seen.losses, *seen.grad_norms))
    has_steps = bool(losses) or bool(bad)
    yield make.at_least("finished", part, float(seen.is_finished), plan=1.0, evidence=seen.evidence, is_required=True)
    yield make.at_most("nonfinite_steps", part, float(bad) if has_steps else None, evidence=here, is_required=True)
    yield make.at_most("loss_change_ratio", part, change_of(losses), evidence=here, unit="ratio", is_required=True)
    yield make.at_most("grad_norm_fluctuation_ratio", part, fluctuation(norms), evidence=here, unit="ratio")
    yield make.at_most("grad_norm_spikes", part, float(spikes(norms)) if norms else None, evidence=here)
    yield make.at_most("unequal_replicas", part, float(seen.num_unequal) if seen.num_checksums else None, evidence=here)
    yield make.at_most("repeated_loss_ratio", part, seen.worst_again_ratio, evidence=here, unit="ratio")
    yield make.at_most("step_time_p95_ratio", part, _unsteady(seconds), evidence=here, unit="ratio")
    yield make.at_most("alloc_retries", part, _number(seen.num_alloc_retries), evidence=here)
    yield make.at_most("ooms", part, _number(seen.num_ooms), evidence=here)
    yield make.at_most("hangs", part, float(seen.num_hangs), evidence=seen.evidence)
    yield make.at_most("failed_attempts", part, float(seen.num_failures), evidence=seen.evidence)
    yield make.at_most("failed_saves", part, float(seen.num_failed_saves), evidence=seen.evidence)
    yield make.at_least(
        "straggler_score", part, straggling(list(seen.rank_seconds.values())), evidence=here, unit="ratio"
    )
    yield make.at_most("log_findings", part, _number(seen.num_findings), evidence=seen.evidence)


def _business(make: _Maker, seen: TrainingSeen, plan: Plan | None) -> Iterator[Check]:
    part, here = Part.BUSINESS, _span(seen)
    rate, performance = tokens_per_s(seen), None if plan is None else plan.estimate.performance
    promised = None if performance is None else performance.tokens_per_s
    yield make.at_least(
        "tokens_per_s",
        part,
        rate,
        plan=None if promised is None else promised.low,
        predicted=promised,
        evidence=here,
        unit="tokens_per_s",
    )
    yield make.at_most("convergence_ratio", part, _apart(seen), evidence=here, unit="ratio")
    footprint = None if plan is None else plan.estimate.footprint
    yield make.at_most(
        "peak_memory_bytes",
        part,
        seen.reserved_bytes,
        plan=None if footprint is None else float(footprint.capacity_bytes),
        evidence=here,
        unit="bytes",
    )
    yield _cost(make, rate, plan, here)


def _training_predictions(make: _Maker, seen: TrainingSeen, plan: Plan | None) -> Iterator[Check]:
    if plan is None:
        return
    estimate, here = plan.estimate, _span(seen)
    seconds = finite(seen.step_seconds)
    stored = estimate.storage.checkpoints_bytes
    yield make.predicted(
        "step_seconds", estimate.step_time.total, median(seconds) if seconds else None, "seconds", here
    )
    yield make.predicted("memory_bytes", estimate.footprint.total, seen.reserved_bytes, "bytes", here)
    yield make.predicted("host_memory_bytes", _some(estimate.footprint.host_total), seen.host_bytes, "bytes", here)
    yield make.predicted("mfu_ratio", estimate.performance.mfu_ratio, seen.mfu_ratio, "ratio", here)
    yield make.predicted(
        "checkpoint_bytes",
        None if stored is None else Interval.around(stored, 0.02),
        seen.checkpoint_bytes,
        "bytes",
        seen.evidence,
    )


def _some(interval: Interval) -> Interval | None:
    return interval if interval.high > 0 else None


def _span(seen: TrainingSeen) -> str:
    """Return the file and the steps that a check is of."""
    return f"{seen.evidence} steps {seen.steps[0]}-{seen.steps[-1]}" if seen.steps else seen.evidence


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)


def _unsteady(seconds: Sequence[float]) -> float | None:
    later = seconds[len(seconds) // 10 :]  # the first steps compile and warm up
    return None if len(later) < 10 else sorted(later)[int(0.95 * (len(later) - 1))] / median(later)


def tokens_per_s(seen: TrainingSeen) -> float | None:
    """Return the throughput of a run: tokens over time, without the first tenth of the steps."""
    pairs = [
        (tokens, seconds)
        for tokens, seconds in zip(seen.tokens, seen.step_seconds, strict=False)
        if tokens is not None and seconds is not None
    ]
    later = pairs[len(pairs) // 10 :]
    whole = math.fsum(seconds for _, seconds in later)
    return math.fsum(tokens for tokens, _ in later) / whole if whole > 0 else None


def _apart(seen: TrainingSeen) -> float | None:
    """Return how far the smoothed final loss is above that of the baselines, at equal tokens."""
    losses, pairs = [], zip(seen.losses, seen.tokens, strict=False)
    whole = 0.0
    for loss, tokens in pairs:
        whole += tokens or 0.0
        if seen.baseline_tokens is not None and whole > seen.baseline_tokens:
            break
        losses.append(loss)
    smooth = windows(finite(losses))
    if not smooth or not seen.baseline_losses:
        return None
    return smooth[-1] / (math.fsum(seen.baseline_losses) / len(seen.baseline_losses)) - 1.0


def serving_report(seen: ServingSeen, plan: Plan | None, given: Mapping[str, float], name: str = "server") -> Report:
    """Accept or refuse a server by a load test.

    Parameters
    ----------
    seen : ServingSeen
        What the test gave.
    plan : Plan
        What was predicted; None where nobody planned it.
    given : mapping
        The person's own limits.
    name : str
        The server's name.

    Returns
    -------
    Report
        Every check. A percentile with fewer than ten requests beyond it is not measured; a test whose client was the
        limit measures no speed.

    Notes
    -----
    Derived.
    """
    make = _Maker(given)
    checks = (
        *_hardware(make, seen.hardware, is_training=False),
        *_latencies(make, seen, plan),
        *_rates(make, seen, plan),
        make.at_most("log_findings", Part.FRAMEWORK, _number(seen.num_findings), evidence=seen.evidence),
        *_serving_predictions(make, seen, plan),
    )
    return Report(kind="serving", name=name, checks=checks)


def _latencies(make: _Maker, seen: ServingSeen, plan: Plan | None) -> Iterator[Check]:
    part, here = Part.BUSINESS, seen.evidence
    workload = None if plan is None else plan.estimate.candidate.workload
    performance = None if plan is None else plan.estimate.performance
    has_tail = seen.has_enough_for_p99 and not seen.is_client_limited
    error = None if not seen.num_requests else 1.0 - seen.num_ok / seen.num_requests
    yield make.at_most("request_error_ratio", part, error, evidence=here, unit="ratio", is_required=True)
    for what in ("ttft", "tpot", "e2e"):
        yield make.at_most(
            f"{what}_p99_seconds",
            part,
            getattr(seen, f"{what}_p99_seconds") if has_tail else None,
            plan=getattr(workload, f"{what}_limit_seconds", None),
            predicted=getattr(performance, f"{what}_p99_seconds", None),
            evidence=here,
            unit="seconds",
            is_required=True,
        )
    yield make.at_least("kept_ratio", part, seen.kept_ratio, evidence=here, unit="ratio")


def _rates(make: _Maker, seen: ServingSeen, plan: Plan | None) -> Iterator[Check]:
    part, here = Part.BUSINESS, seen.evidence
    performance = None if plan is None else plan.estimate.performance
    rate = None if seen.is_client_limited else seen.output_tokens_per_s
    asked = None if seen.is_client_limited else seen.requests_per_s
    promised = None if performance is None else performance.tokens_per_s
    turns = None if performance is None else performance.requests_per_s
    for name, measured, interval in (("tokens_per_s", rate, promised), ("requests_per_s", asked, turns)):
        yield make.at_least(
            name,
            part,
            measured,
            plan=None if interval is None else interval.low,
            predicted=interval,
            evidence=here,
            unit="tokens_per_s" if name == "tokens_per_s" else "",
        )
    yield _cost(make, rate, plan, here)


def _cost(make: _Maker, rate: float | None, plan: Plan | None, evidence: str) -> Check:
    """Hold the price of a million tokens, at the rate measured, against the dearest that the plan expects."""
    cost = None if plan is None else plan.estimate.cost
    hourly = None if cost is None else cost.usd_per_hour
    promised = None if cost is None else cost.usd_per_million_tokens
    return make.at_most(
        "usd_per_million_tokens",
        Part.BUSINESS,
        None if hourly is None or not rate else hourly.best / 3600.0 / rate * 1e6,
        plan=None if promised is None else promised.high,
        predicted=promised,
        evidence=evidence,
        unit="usd",
    )


def _serving_predictions(make: _Maker, seen: ServingSeen, plan: Plan | None) -> Iterator[Check]:
    if plan is None:
        return
    performance, here = plan.estimate.performance, seen.evidence
    rate = None if seen.is_client_limited else seen.output_tokens_per_s
    weights = Interval.around(plan.estimate.storage.weights_bytes, 0.02)
    yield make.predicted("ttft_seconds", performance.ttft_seconds, seen.ttft_mean_seconds, "seconds", here)
    yield make.predicted("tpot_seconds", performance.tpot_seconds, seen.tpot_mean_seconds, "seconds", here)
    yield make.predicted("output_tokens_per_s", performance.tokens_per_s, rate, "tokens_per_s", here)
    yield make.predicted("weights_bytes", weights, seen.weights_bytes, "bytes", here)
