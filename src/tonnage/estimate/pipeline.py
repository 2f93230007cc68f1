"""Time of a pipeline: its bubble and its stages."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.branch import where
from tonnage.units import Count, Seconds


def pipeline_seconds(
    slowest_stage: Seconds, mean_stage: Seconds, pp: Count, num_virtual_stages: Count, num_micro_batches: Count
) -> Seconds:
    """Time of one step's forward and backward passes through a pipeline.

    Parameters
    ----------
    slowest_stage : numeric
        Forward and backward of one micro-batch on the slowest rank, which sets the pace. [s]
    mean_stage : numeric
        The same on an average rank, which the filling and draining pass through. [s]
    pp : numeric
        Pipeline ranks. [1]
    num_virtual_stages : numeric
        Model chunks a rank holds; interleaving divides the bubble by it. [1]
    num_micro_batches : numeric
        Micro-batches of a step. [1]

    Returns
    -------
    numeric
        Time. [s]

    References
    ----------
    .. [1] D. Narayanan et al., arXiv:2104.04473, sections 2.2.1 and 2.2.2: bubble (p − 1)/(v·m).

    Examples
    --------
    >>> pipeline_seconds(1.0, 1.0, 8, 1, 64)
    71.0
    """
    return num_micro_batches * slowest_stage + (pp - 1) / num_virtual_stages * mean_stage


def stage_layers(num_layers: Count, pp: Count, first: Count, last: Count) -> tuple[Count, Count, Count]:
    """Layers on the first, a middle and the last pipeline rank.

    Parameters
    ----------
    num_layers : numeric
        Layers in all. [1]
    pp : numeric
        Pipeline ranks. [1]
    first : numeric
        Layers that the layout gives the first rank, 0 for an equal share. [1]
    last : numeric
        The same for the last rank. [1]

    Returns
    -------
    tuple of numeric
        Layers on the first, a middle and the last rank; an uneven rest makes the fullest rank's share. [1]

    References
    ----------
    .. [1] `num_layers_in_first_pipeline_stage` and its sibling in megatron/training/arguments.py.

    Examples
    --------
    >>> tuple(float(n) for n in stage_layers(61, 16, 3, 2))
    (3.0, 4.0, 2.0)
    """
    taken = (first > 0) * 1 + (last > 0) * 1
    others = np.maximum(pp - taken, 1)
    even = np.ceil((num_layers - first - last) / others)
    whole = where(pp > 1, even, num_layers)
    return (
        where((first > 0) & (pp > 1), first, whole),
        whole,
        where((last > 0) & (pp > 1), last, whole),
    )


def has_fuller_middle(num_layers: Count, pp: Count, first: Count, last: Count) -> Count:
    """Say whether a rank between the ends may be the fullest: more than one layer more than the first rank holds.

    Parameters
    ----------
    num_layers : numeric
        Layers in all. [1]
    pp : numeric
        Pipeline ranks. [1]
    first : numeric
        Layers that the layout gives the first rank, 0 for an equal share. [1]
    last : numeric
        The same for the last rank. [1]

    Returns
    -------
    numeric
        True or false. [1]

    References
    ----------
    .. [1] Derived: an embedding stands for the one layer less that the first rank of an even split may hold.

    Examples
    --------
    >>> bool(has_fuller_middle(61, 16, 1, 0)), bool(has_fuller_middle(126, 16, 7, 7))
    (True, False)
    """
    held, middle, _ = stage_layers(num_layers, pp, first, last)
    return (pp > 2) & (held < middle - 1)
