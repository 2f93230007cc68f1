"""What lies on an NVMe drive instead of in host memory, as ZeRO-Infinity swaps it: its size, its buffers, its traffic."""

from __future__ import annotations

from typing import Final

from tonnage.estimate.layer import Kind, Split, layer_operations
from tonnage.model.types import Model
from tonnage.units import Bytes, BytesPerS, Count, Seconds

STEP_GROUP: Final = 100_000_000
"""Parameters of a rank that are stepped together; its buffers are that large. DeepSpeed's own 10^9 pins 16 GB a rank."""
NUM_WEIGHT_BUFFERS: Final = 5
"""Weights of a rank that may lie in host memory at once, those at work and those read ahead; DeepSpeed's own number."""
_FP32_BYTES: Final = 4.0


def largest_tensor(model: Model) -> int:
    """Return the elements of a model's largest weight; the routed experts of a layer are one tensor, gate and up together.

    Notes
    -----
    As transformers 5 holds experts: `gate_up_proj` and `down_proj` of shape experts x outputs x inputs.
    """
    largest = model.vocab_size * model.hidden_size
    for layer, _ in model.groups():
        for operation in layer_operations(layer, model.hidden_size):
            sizes = [m.num_inputs * m.num_outputs * m.count for m in operation.matrices]
            if operation.kind is Kind.MATMUL and sizes:
                largest = max(largest, sum(sizes) if operation.split is Split.EXPERT else max(sizes))
    return largest


def step_group_parameters(num_parameters: Count, largest: Count) -> Count:
    """Parameters that a rank steps together at most.

    Parameters
    ----------
    num_parameters : numeric
        Parameters that the rank steps. [1]
    largest : numeric
        Its share of the largest weight. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    Notes
    -----
    Weights are added to a group until it holds `STEP_GROUP`, so it is over by less than one weight.

    References
    ----------
    .. [1] deepspeed/runtime/zero/stage3.py of DeepSpeed 0.19.8, `_create_fp16_sub_groups`.

    Examples
    --------
    >>> step_group_parameters(10**9, 5 * 10**7), step_group_parameters(10**6, 10**5)
    (150000000, 1000000)
    """
    import numpy as np  # noqa: PLC0415  a launch needs the largest weight only

    return (
        np.minimum(num_parameters, STEP_GROUP + largest)
        if np.ndim(num_parameters)
        else min(num_parameters, STEP_GROUP + largest)
    )


def step_buffer_bytes(group: Count, num_states: Count) -> Bytes:
    """Host memory through which a rank's optimizer passes, group by group.

    Parameters
    ----------
    group : numeric
        Parameters stepped together. [1]
    num_states : numeric
        fp32 states of a parameter beside its master copy. [1]

    Returns
    -------
    numeric
        Pinned memory: a buffer for the master copy, one for the gradient, one for each state. [B]

    References
    ----------
    .. [1] DeepSpeed 0.19.8, deepspeed/runtime/swap_tensor/optimizer_utils.py (`SwapBufferManager` of `buffer_count`
       buffers of the largest group in fp32) and partitioned_optimizer_swapper.py (`required_buffer_count`).

    Examples
    --------
    >>> step_buffer_bytes(1e8, 2)
    1600000000.0
    """
    return (2.0 + num_states) * _FP32_BYTES * group


def drive_bytes_per_parameter(num_states: Count) -> Bytes:
    """Bytes on the drive of one parameter that is stepped: master copy, gradient and states, in fp32.

    Parameters
    ----------
    num_states : numeric
        fp32 states of a parameter beside its master copy. [1]

    Returns
    -------
    numeric
        Bytes. [B]

    References
    ----------
    .. [1] DeepSpeed 0.19.8, deepspeed/runtime/swap_tensor/optimizer_utils.py, `OptimizerStateSwapInfo`: a file for the
       fp32 partition, for each state and for the gradients of a group.

    Examples
    --------
    >>> drive_bytes_per_parameter(2)
    16.0
    """
    return (2.0 + num_states) * _FP32_BYTES


def step_traffic_bytes(num_parameters: Count, num_states: Count) -> tuple[Bytes, Bytes]:
    """Bytes that one optimizer step reads from the drive and writes to it.

    Parameters
    ----------
    num_parameters : numeric
        Parameters stepped. [1]
    num_states : numeric
        fp32 states of a parameter beside its master copy. [1]

    Returns
    -------
    tuple of numeric
        Read: master copy, gradient and states. Written: the gradient at the end of backward, then master copy and
        states. [B]

    References
    ----------
    .. [1] DeepSpeed 0.19.8, deepspeed/runtime/zero/stage3.py: `_offload_grad_partition_at_boundary`,
       `_optimizer_states_and_gradient_swap_in`, `_optimizer_states_and_gradient_swap_out`.

    Examples
    --------
    >>> step_traffic_bytes(1e9, 2)
    (16000000000.0, 16000000000.0)
    """
    moved = drive_bytes_per_parameter(num_states) * num_parameters
    return moved, moved


def drive_seconds(read: Bytes, written: Bytes, read_rate: BytesPerS, write_rate: BytesPerS) -> Seconds:
    """Time of a drive's traffic: reads and writes one after the other.

    Parameters
    ----------
    read, written : numeric
        Traffic of all ranks that share the drive. [B]
    read_rate, write_rate : numeric
        Sequential rates that the drive keeps up. [B/s]

    Returns
    -------
    numeric
        Time. [s]

    Notes
    -----
    Without `pipeline_read` and `pipeline_write`, DeepSpeed's default, a group is read, stepped and written before the
    next is read (swap_tensor/partitioned_optimizer_swapper.py).

    References
    ----------
    .. [1] Derived: volume over rate.

    Examples
    --------
    >>> drive_seconds(6e9, 3e9, 6e9, 3e9)
    2.0
    """
    return read / read_rate + written / write_rate
