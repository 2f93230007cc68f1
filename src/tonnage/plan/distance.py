"""How far two training candidates are apart, in steps: a doubling of something, or a different choice, is one step."""

from __future__ import annotations

from math import log2

from tonnage.estimate.types import Candidate, Layout
from tonnage.workload.types import Training

_WAYS = ("dp", "tp", "pp", "cp", "ep")


def steps_apart(one: Candidate, other: Candidate) -> float:
    """Return how many steps lie between two training candidates, 0 for equals.

    Parameters
    ----------
    one, other : Candidate
        Candidates whose workload is training.

    Returns
    -------
    float
        Doublings of the tokens of a micro-batch, of the sequence, of the model and of each way to split, and one for
        each choice that differs: recomputation, precision, optimizer, method, offload, device, software. [1]

    Notes
    -----
    Derived: what doubles and what is chosen changes which formulae and constants matter; how alike errors of two runs
    are at a distance is measured (`data/calibration/from_run.toml`).
    """
    a, b = one.workload, other.workload
    assert isinstance(a, Training)
    assert isinstance(b, Training)
    doublings = [
        (one.micro_batch_size * a.seq_len, other.micro_batch_size * b.seq_len),
        (a.seq_len, b.seq_len),
        (_size(one), _size(other)),
        *((getattr(one.layout, way), getattr(other.layout, way)) for way in _WAYS),
        (_accumulated(one), _accumulated(other)),
    ]
    choices = [
        (one.recompute, other.recompute),
        (one.precision, other.precision),
        (one.optimizer, other.optimizer),
        (a.kind, b.kind),
        (one.offload, other.offload),
        (one.layout.zero_stage, other.layout.zero_stage),
        (one.settings.has_flash_attention, other.settings.has_flash_attention),
        (one.settings.has_compile, other.settings.has_compile),
        (one.cluster.node.devices[0].slug, other.cluster.node.devices[0].slug),
        (one.engine, other.engine),
        (one.model.family, other.model.family),
    ]
    return sum(abs(log2(x / y)) for x, y in doublings) + sum(x != y for x, y in choices)


def _size(candidate: Candidate) -> float:
    return float(candidate.model.hidden_size**2 * candidate.model.num_layers)


def _accumulated(candidate: Candidate) -> float:
    layout: Layout = candidate.layout
    load = candidate.workload
    assert isinstance(load, Training)
    return max(1.0, load.global_batch_size / (layout.dp * candidate.micro_batch_size))
