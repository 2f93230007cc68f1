"""Which of the ways that fit comes first, and which few of them differ in kind.

The order is a list of questions, each decided before the next is asked: does it fit at the upper end of its interval
too, does it keep the limits, does it keep bits that answers or training depend on, and how good is it at what is wanted.
A layout wider than any that was measured is taken at the slow end of its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tonnage.estimate.types import Candidate, Estimate, Interval
from tonnage.nouns import noun
from tonnage.search.constraints import power_watts
from tonnage.search.pareto import front
from tonnage.search.space import LEAST_GOOD_BITS, bits_class, bits_of
from tonnage.workload.types import Serving, TrainingKind

MOST_SHOWN: Final = 6
# What a person may ask for, and two that are only defaults: "speed" of one request, "value" for money of a device.
OBJECTIVES: Final = ("throughput", "latency", "cost", "time", "price", "energy", "change")
_DEFAULTS: Final = ("speed", "value")
_UNKNOWN: Final = float("inf")
_UNPRICED: Final = 1e15  # dollars, more than anything costs
# The widest layouts in data/measurements/training.jsonl: beyond them the formulae were held against nothing.
MOST_MEASURED: Final = {"tp": 8, "pp": 64, "cp": 8, "ep": 64}
MOST_DEVICES_MEASURED: Final = {"all": 2048, "offload": 64}  # … and the most devices, in all and with a host's help
NARROW: Final = ("fp8", "fp4", "mxfp8", "nvfp4")
_NARROW_STATES: Final = ("adamw_bf16", "adamw_8bit", "paged_adamw_8bit", "sgd")

Changes = Callable[[Estimate], int]


@noun
class Standing:
    """Where an estimate stands on each question; less is better."""

    is_unsure: bool
    breaks_limit: bool
    has_few_bits: bool
    objective: float

    @property
    def key(self) -> tuple[bool, bool, bool, float]:
        """Return what to sort by."""
        return self.is_unsure, self.breaks_limit, self.has_few_bits, self.objective


def _best(interval: Interval | None) -> float | None:
    return None if interval is None else interval.best


def weights_bits(estimate: Estimate) -> float:
    """Return the bits of a weight as served; trained weights keep what the method keeps."""
    weights = estimate.candidate.precision.weights
    return bits_of(weights) if isinstance(estimate.candidate.workload, Serving) else 16.0


def loses_updates(candidate: Candidate) -> bool:
    """Whether the weights that a job trains and the optimizer's states are all in 16 bits, no fp32 copy of either.

    A step that is smaller than half the distance to the next bf16 number leaves the weight as it was.

    References
    ----------
    .. [1] P. Zamirai et al., "Revisiting BFloat16 Training", arXiv:2010.06192: rounding weight updates to the nearest
       cancels small ones, and the loss stays behind that of 32-bit weights.
    """
    load, precision = candidate.workload, candidate.precision
    if isinstance(load, Serving) or load.kind not in (TrainingKind.FULL, TrainingKind.PRETRAIN):
        return False
    has_fp32 = precision.has_fp32_master or precision.weights == "fp32"
    return not has_fp32 and candidate.optimizer in _NARROW_STATES


def has_few_bits(estimate: Estimate) -> bool:
    """Whether weights served have less than four bits, or training multiplies in eight or fewer or loses small updates."""
    candidate = estimate.candidate
    if not isinstance(candidate.workload, Serving):
        return candidate.precision.compute in NARROW or loses_updates(candidate)
    return weights_bits(estimate) < LEAST_GOOD_BITS


def beyond(candidate: Candidate) -> tuple[str, ...]:
    """Return the ways in which a training layout is wider than any that was measured, or leans wider on hosts."""
    if isinstance(candidate.workload, Serving):
        return ()
    layout, offload = candidate.layout, candidate.offload
    found = tuple(way for way, most in MOST_MEASURED.items() if getattr(layout, way) > most)
    is_many = layout.num_devices > MOST_DEVICES_MEASURED["offload"]
    return (*found, "offload") if is_many and (offload.optimizer or offload.parameters) else found


def _rate(estimate: Estimate) -> float | None:
    """Return tokens a second; of a layout that is extrapolated, the low end."""
    rate = estimate.performance.tokens_per_s
    if rate is None:
        return None
    return rate.low if beyond(estimate.candidate) else rate.best


def _per_token(estimate: Estimate) -> float:
    rate = _rate(estimate)
    return 1 / rate if rate else _UNKNOWN


def _value(estimate: Estimate) -> float:
    """Return the price of a rate: what a token a second costs to buy; what has no price comes after all that has."""
    bought, rate = _best(estimate.cost.purchase_usd), _rate(estimate)
    if not rate:
        return _UNKNOWN
    return (_UNPRICED if bought is None else bought) / rate


def _latency(estimate: Estimate) -> float:
    """Return the seconds of one request from prompt to last token, or of one step of training."""
    performance, load = estimate.performance, estimate.candidate.workload
    if not isinstance(load, Serving):
        step = performance.step_seconds
        return _UNKNOWN if step is None else step.high if beyond(estimate.candidate) else step.best
    first, each = _best(performance.ttft_seconds), _best(performance.tpot_seconds)
    return _UNKNOWN if first is None or each is None else first + load.output_tokens * each


def _cost(estimate: Estimate) -> float:
    """Return dollars for the job, else for a million tokens, rented; else as `value`."""
    cost = estimate.cost
    own = None if cost.own is None else _best(cost.own.usd_per_million_tokens)
    known = (_best(cost.usd_total), _best(cost.usd_per_million_tokens), own)
    return next((figure for figure in known if figure is not None), _UNKNOWN)


def _time(estimate: Estimate) -> float:
    """Return the seconds until the job is done, waiting for spot machines included; without a job, of a token."""
    spot, job = estimate.cost.spot, estimate.performance.job_seconds
    if estimate.cost.is_spot and spot is not None and spot.wall_seconds is not None:
        return spot.wall_seconds.best
    if job is None:
        return _per_token(estimate)
    return job.high if beyond(estimate.candidate) else job.best


def _price(estimate: Estimate) -> float:
    bought = _best(estimate.cost.purchase_usd)
    return _UNKNOWN if bought is None else bought


def _energy(estimate: Estimate) -> float:
    """Return joules a token at the devices' power limits: an upper bound, of the same order for all."""
    watts = power_watts(estimate.candidate.cluster)
    return _UNKNOWN if watts is None else watts * _per_token(estimate)


_FIGURES: Final[dict[str, Callable[[Estimate], float]]] = {
    "speed": _per_token,
    "throughput": _per_token,
    "value": _value,
    "latency": _latency,
    "cost": _cost,
    "time": _time,
    "price": _price,
    "energy": _energy,
}


def objective_of(estimate: Estimate, objective: str, changes: Changes | None = None) -> float:
    """Return the figure to be made small.

    Parameters
    ----------
    estimate : Estimate
        With its cost, where the objective is money.
    objective : str
        Of `OBJECTIVES`, or the defaults "speed" (of one request) and "value" (price of a token a second).
    changes : callable
        Counts what of today's set-up an estimate changes, for "change"; without it all are alike.

    Returns
    -------
    float
        Seconds, dollars, joules or a number of changes; infinite where it is not known.
    """
    if objective == "change":
        return float(changes(estimate)) if changes is not None else 0.0
    return _FIGURES[objective](estimate)


def standing(
    estimate: Estimate,
    objective: str,
    keeps_limits: Callable[[Estimate], bool] = lambda _: True,
    changes: Changes | None = None,
) -> Standing:
    """Return where an estimate stands."""
    return Standing(
        is_unsure=not estimate.footprint.fits_surely,
        breaks_limit=not keeps_limits(estimate),
        has_few_bits=has_few_bits(estimate),
        objective=objective_of(estimate, objective, changes),
    )


def ranked(
    estimates: Iterable[Estimate],
    objective: str,
    keeps_limits: Callable[[Estimate], bool] = lambda _: True,
    changes: Changes | None = None,
) -> list[Estimate]:
    """Return the estimates, the best first; of equals the one with more bits, the faster, then the one that came first."""

    def key(estimate: Estimate) -> tuple[object, ...]:
        place = standing(estimate, objective, keeps_limits, changes).key
        return (*place, -weights_bits(estimate), objective_of(estimate, "throughput"))

    return sorted(estimates, key=key)


FRONT_OBJECTIVES: Final = ("throughput", "latency", "cost", "price", "energy")


def pareto_front(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return what nothing else beats in every objective and in bits: each is the best for some wish.

    What is not known is worse than any figure. Of estimates alike in all, all stay.
    """
    scores = [(*(objective_of(e, name) for name in FRONT_OBJECTIVES), -weights_bits(e)) for e in estimates]
    return [estimates[i] for i in front(scores)]


def placement(estimate: Estimate) -> str:
    """Return where the model lives: gpu, what is on the host (parameters_cpu, …), what on a drive (parameters_nvme, …)."""
    offload = estimate.candidate.offload
    for name, is_there in (
        ("parameters_nvme", offload.parameters_nvme),
        ("optimizer_nvme", offload.optimizer_nvme),
        ("experts_nvme", offload.experts_nvme),
        ("parameters_cpu", offload.parameters),
        ("optimizer_cpu", offload.optimizer),
        ("layers_cpu", offload.num_cpu_layers),
        ("experts_cpu", offload.num_cpu_expert_layers),
        ("activations_cpu", offload.activations),
    ):
        if is_there:
            return name
    return "gpu"


def kind(estimate: Estimate) -> tuple[object, ...]:
    """Return in which ways a plan differs from others in kind, not in degree: place, size of weights, what is kept."""
    candidate = estimate.candidate
    if isinstance(candidate.workload, Serving):
        return placement(estimate), bits_class(weights_bits(estimate))
    precision = candidate.precision
    return placement(estimate), precision.weights, candidate.optimizer, precision.compute


def sub_kind(estimate: Estimate) -> tuple[object, ...]:
    """Return the kind with the way the work is split and the engine that does it."""
    layout, candidate = estimate.candidate.layout, estimate.candidate
    if isinstance(candidate.workload, Serving):
        software: object = candidate.precision.weights.startswith(("q", "iq"))
        return *kind(estimate), layout.tp > 1, layout.pp > 1, layout.ep > 1, software
    return *kind(estimate), layout.tp * layout.pp * layout.cp > 1, layout.zero_stage > 1, candidate.engine


def short_list(in_order: Sequence[Estimate], most: int = MOST_SHOWN) -> list[Estimate]:
    """Return the best of each kind; while there is room, what another engine or split makes of the first kind.

    The order stays that of `in_order`.
    """
    chosen: dict[int, Estimate] = {}
    for key_of, among in ((kind, in_order), (sub_kind, [e for e in in_order if kind(e) == kind(in_order[0])])):
        seen = {key_of(estimate) for estimate in chosen.values()}
        for place, estimate in enumerate(in_order):
            if len(chosen) < most and key_of(estimate) not in seen and any(estimate is one for one in among):
                seen.add(key_of(estimate))
                chosen[place] = estimate
    return [chosen[place] for place in sorted(chosen)]
