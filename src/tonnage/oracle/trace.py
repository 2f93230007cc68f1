"""`trace`: what one training step of a whole model allocates, told by a few of its layers or by all."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from tonnage.estimate.caching_allocator import Settings, replay
from tonnage.oracle.depths import Stacks, extrapolated, extrapolated_phases, stacks
from tonnage.oracle.model import require_torch
from tonnage.oracle.timeline import HEAD_BACKWARD, left, phases
from tonnage.oracle.types import Job, KindKept, Timeline, Traced

MOST_EVENTS: Final = 60_000  # of a whole model, some ten seconds


def trace(job: Job, *, is_whole: bool | None = None) -> Traced:
    """Trace a training step.

    Parameters
    ----------
    job : Job
        The model and how it is trained.
    is_whole : bool, optional
        True: run every layer; False: extrapolate from a few; by default all where that takes seconds.

    Returns
    -------
    Traced
        Bytes by pool at the fullest moments; with the allocator's replay where every layer ran.

    Raises
    ------
    OutsideError
        torch, transformers or peft is not installed.
    RequestError
        The installed transformers does not know the family, or its code needs data to run.
    """
    require_torch()
    from tonnage.oracle.step import kinds_of_job, run  # noqa: PLC0415 - imports torch

    kinds = kinds_of_job(job)
    chosen = stacks(kinds)
    base = run(job, chosen.base)
    longer = [run(job, one) for one in chosen.longer]
    events = len(base.events) + sum(
        factor * (len(line.events) - len(base.events)) for line, factor in zip(longer, chosen.factors, strict=True)
    )
    by_kind = _kept_by_kind(kinds, chosen, base, longer)
    depths = (len(chosen.base), *(len(one) for one in chosen.longer))
    if is_whole or (is_whole is None and events <= MOST_EVENTS):
        whole = run(job)
        return Traced(
            kept=left(whole, HEAD_BACKWARD),
            phases=phases(whole),
            num_parameters=whole.num_parameters,
            num_trained_parameters=whole.num_trained_parameters,
            num_layers=len(kinds),
            kept_by_kind=by_kind,
            traced_layers=(*depths, len(kinds)),
            attention=whole.attention,
            replay=replay(whole.events, Settings()),
            expandable=replay(whole.events, Settings(has_expandable_segments=True)),
            versions=_versions(),
        )
    return Traced(
        kept=extrapolated(left(base, HEAD_BACKWARD), [left(one, HEAD_BACKWARD) for one in longer], chosen.factors),
        phases=extrapolated_phases(phases(base), [phases(one) for one in longer], chosen.factors),
        num_parameters=_scaled(base.num_parameters, [line.num_parameters for line in longer], chosen.factors),
        num_trained_parameters=_scaled(
            base.num_trained_parameters, [line.num_trained_parameters for line in longer], chosen.factors
        ),
        num_layers=len(kinds),
        kept_by_kind=by_kind,
        traced_layers=depths,
        attention=base.attention,
        versions=_versions(),
    )


def _scaled(base: int, longer: list[int], factors: tuple[int, ...]) -> int:
    return base + sum(factor * (one - base) for one, factor in zip(longer, factors, strict=True))


def _kept_by_kind(
    kinds: list[Hashable], chosen: Stacks, base: Timeline, longer: list[Timeline]
) -> tuple[KindKept, ...]:
    least = left(base, HEAD_BACKWARD).pools
    found: list[KindKept] = []
    for added, line in zip(chosen.added, longer, strict=True):
        more = left(line, HEAD_BACKWARD).pools
        kept, weights = (more.get(pool, 0.0) - least.get(pool, 0.0) for pool in ("activations", "weights"))
        found.append(
            KindKept(
                first_layer=kinds.index(kinds[added]),
                num_layers=kinds.count(kinds[added]),
                kept_bytes=kept,
                weights_bytes=weights,
            )
        )
    return tuple(found)


def _versions() -> dict[str, str]:
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    return {"torch": torch.__version__, "transformers": transformers.__version__}
