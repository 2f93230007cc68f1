"""Which of the ways that fit comes first, and which few of them differ in kind.

The order is a list of questions, each decided before the next is asked: does it fit at the upper end of its interval
too, does it keep the limits, do its weights keep four bits or more, and how fast (or cheap) is it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tonnage.estimate.types import Estimate, Interval
from tonnage.nouns import noun
from tonnage.search.space import LEAST_GOOD_BITS, bits_class, bits_of
from tonnage.workload.types import Serving

MOST_SHOWN: Final = 6
OBJECTIVES: Final = ("speed", "throughput", "cost")


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


def objective_of(estimate: Estimate, objective: str) -> float:
    """Return the figure to be made small: seconds a token (prompts in), money for the job, or the price of a rate."""
    performance, cost = estimate.performance, estimate.cost
    if objective == "cost":
        total, bought, rate = _best(cost.usd_total), _best(cost.purchase_usd), _best(performance.tokens_per_s)
        if total is not None:
            return total
        return float("inf") if bought is None or not rate else bought / rate
    rate = _best(performance.tokens_per_s)
    return float("inf") if not rate else 1 / rate


def standing(estimate: Estimate, objective: str, keeps_limits: Callable[[Estimate], bool]) -> Standing:
    """Return where an estimate stands."""
    return Standing(
        is_unsure=not estimate.footprint.fits_surely,
        breaks_limit=not keeps_limits(estimate),
        has_few_bits=weights_bits(estimate) < LEAST_GOOD_BITS,
        objective=objective_of(estimate, objective),
    )


def ranked(
    estimates: Iterable[Estimate], objective: str, keeps_limits: Callable[[Estimate], bool] = lambda _: True
) -> list[Estimate]:
    """Return the estimates, the best first; of equals the one with more bits, the faster, then the one that came first."""

    def key(estimate: Estimate) -> tuple[object, ...]:
        place = standing(estimate, objective, keeps_limits).key
        return (*place, -weights_bits(estimate), objective_of(estimate, "throughput"))

    return sorted(estimates, key=key)


def placement(estimate: Estimate) -> str:
    """Return where the model lives: gpu, experts_cpu, layers_cpu, optimizer_cpu, parameters_cpu, activations_cpu."""
    offload = estimate.candidate.offload
    for name, is_there in (
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
    return placement(estimate), candidate.precision.weights, candidate.optimizer


def sub_kind(estimate: Estimate) -> tuple[object, ...]:
    """Return the kind with the way the work is split and the engine that does it."""
    layout, candidate = estimate.candidate.layout, estimate.candidate
    software = (
        bool(candidate.precision.weights.startswith(("q", "iq"))) if isinstance(candidate.workload, Serving) else ""
    )
    return *kind(estimate), layout.tp > 1, layout.pp > 1, layout.zero_stage, software


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
