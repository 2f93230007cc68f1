"""Bytes of gradients, master copies and optimizer states, how ZeRO shards them, and what a step needs on top."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.branch import where
from tonnage.units import Bytes, Count, Ratio


def sharded_bytes(
    num_parameters: Count, bytes_per_parameter: Bytes, zero_stage: Count, from_stage: Count, num_shards: Count
) -> Bytes:
    """Memory of a per-parameter state that ZeRO divides from some stage on.

    Parameters
    ----------
    num_parameters : numeric
        Parameters on this device before data-parallel sharding. [1]
    bytes_per_parameter : numeric
        Size of the state of one parameter. [B]
    zero_stage : numeric
        ZeRO stage of the layout, FSDP full shard = 3. [1]
    from_stage : numeric
        First stage that shards this state: 1 optimizer states and masters, 2 gradients, 3 weights. [1]
    num_shards : numeric
        Ranks the state is divided over, data parallel times context parallel. [1]

    Returns
    -------
    numeric
        Memory of one device. [B]

    References
    ----------
    .. [1] S. Rajbhandari et al., "ZeRO", SC 2020, arXiv:1910.02054, figure 1.

    Examples
    --------
    >>> float(sharded_bytes(8e9, 8, 1, 1, 64))
    1000000000.0
    """
    return num_parameters * bytes_per_parameter / where(zero_stage >= from_stage, num_shards, 1)


def adafactor_state_bytes(num_parameters: Count, num_matrices: Count) -> Bytes:
    """Memory of Adafactor's row and column statistics, without momentum.

    Parameters
    ----------
    num_parameters : numeric
        Trained parameters. [1]
    num_matrices : numeric
        Weight matrices they form, taken as square. [1]

    Returns
    -------
    numeric
        fp32 row and column factors. [B]

    References
    ----------
    .. [1] N. Shazeer and M. Stern, "Adafactor", ICML 2018, arXiv:1804.04235.

    Examples
    --------
    >>> float(adafactor_state_bytes(4096 * 4096, 1))
    32768.0
    """
    return 4.0 * 2.0 * np.sqrt(np.asarray(num_parameters, dtype=float) * num_matrices)


def step_workspace_bytes(num_parameters: Count, bytes_per_parameter: Bytes, foreach_ratio: Ratio) -> Bytes:
    """Memory an optimizer step needs on top when it works on all parameters at once (foreach, not fused).

    Parameters
    ----------
    num_parameters : numeric
        Trained parameters on this device. [1]
    bytes_per_parameter : numeric
        Temporaries of one parameter: the denominator of Adam in the type of the state. [B]
    foreach_ratio : numeric
        Share of the parameters handled at once: 1 for foreach, 0 for a fused kernel. [0-1]

    Returns
    -------
    numeric
        Memory of one device. [B]

    References
    ----------
    .. [1] `_multi_tensor_adam` of torch 2.13.0 makes lists of temporaries as large as the parameters.

    Examples
    --------
    >>> step_workspace_bytes(1e9, 4, 1.0)
    4000000000.0
    """
    return num_parameters * bytes_per_parameter * foreach_ratio
