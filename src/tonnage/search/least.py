"""The least memory of a device that a training job needs on some hardware, whatever way it is split: without timing."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.types import Candidate, Offload
from tonnage.hardware.types import Cluster
from tonnage.model.types import Model
from tonnage.search.explore import Fixed
from tonnage.search.software import cannot
from tonnage.search.training import Grid, bases
from tonnage.search.training_space import TrainingWays, training_space
from tonnage.workload.types import Training


def least_device_bytes(
    model: Model, load: Training, cluster: Cluster, software: tuple[TrainingWays, ...], fixed: Fixed
) -> float:
    """Return the least bytes that a device of a cluster needs for a job that stays on the devices; infinite: no way is.

    Parameters
    ----------
    model, load : Model, Training
        The job.
    cluster : Cluster
        How many devices, in how many machines, and what they compute in; their memory does not matter.
    software : tuple of TrainingWays
        What may be used.
    fixed : Fixed
        What is pinned.

    Returns
    -------
    float
        A device of as many bytes holds the job at the best estimate, one of fewer does not. [B]
    """
    least = float("inf")
    for ways in software:
        if cannot(ways, load.kind, cluster) is not None:
            continue
        base = Candidate(model=model, workload=load, cluster=cluster, engine=ways.name)
        for whole in bases(base, ways, fixed):
            space = training_space(whole, ways, cluster, fixed.values, may_offload=fixed.may_offload)
            grid = Grid(space)
            alive = grid.alive & np.array([_stays(offload) for _, _, offload, _ in space.ways])
            rows = np.flatnonzero(alive.any(axis=1))
            if len(rows):
                tensors, _, _ = grid.needs(rows)
                least = min(least, float(np.where(alive[rows], tensors, np.inf).min()))
    return least


def _stays(offload: Offload) -> bool:
    """Whether the model and what trains it stay on the devices; activations may wait on the host."""
    return not (offload.optimizer or offload.parameters)
