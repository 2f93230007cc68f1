"""Many devices as one case: what differs between them as columns, so that a whole catalogue is timed at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.timing import (
    architecture_key,
    flash_key,
    is_staged,
    link_ratio,
    peak_rate,
    wide_kind,
)
from tonnage.hardware.siblings import Lender

_STACK: Final = "stack"  # the architecture of a stack: its constants are columns under this name


def stacked(cases: Sequence[TrainingCase], c: Constants) -> tuple[TrainingCase, Constants]:
    """Return one case for many that differ in their devices and links only, and the constants to time it with.

    Parameters
    ----------
    cases : sequence of TrainingCase
        Same model, job, precision, software and devices in a node; all with or all without a known number of
        multiprocessors, and collectives through host memory.
    c : mapping of str to float
        Constants.

    Returns
    -------
    tuple
        The case, its device's and links' figures columns of shape n x 1 x 1, and the constants with the ratios of the
        devices' architectures as such columns.
    """
    first = cases[0]
    used = {first.compute, wide_kind(first)}
    if first.precision.unquantized == "fp32":
        used.add("fp32")
    kind = wide_kind(first)
    wide = [peak_rate(case, kind) for case in cases]
    shares = [_power_share(case, kind) for case in cases]
    rates = {kind: _column([peak_rate(case, kind) for case in cases]) for kind in used}
    device = replace(
        first.device,
        architecture=_STACK,
        memory_type="",
        has_p2p=not is_staged(first),
        power_watts=_column([share * peak for share, peak in zip(shares, wide, strict=True)]),
        memory_bytes=_column([case.device.memory_bytes for case in cases]),
        bandwidth_bytes_per_s=_column([case.device.bandwidth_bytes_per_s for case in cases]),
        num_multiprocessors=_optional([case.device.num_multiprocessors for case in cases]),
        flop_per_s=rates,
    )
    links = [case.intra_bytes_per_s * link_ratio(case, c) for case in cases]
    flash = [c[flash_key(case, c)] for case in cases]
    ratios = {
        "matmul_ratio": [c[architecture_key(case, "matmul_ratio", c)] for case in cases],
        "flash_ratio": flash,
        "flash_ratio.tuned": flash,
        "host_ratio": [c[architecture_key(case, "host_ratio", c)] for case in cases],
    }
    case = replace(
        first,
        device=device,
        matmul_lender=_lender([case.matmul_lender for case in cases], watts_per_flop_per_s=1.0),
        stream_lender=_lender([case.stream_lender for case in cases], watts_per_flop_per_s=None),
        intra_kind="pcie",
        intra_bytes_per_s=_column(links) / c["pcie_ratio" if is_staged(first) else "pcie_direct_ratio"],
        inter_bytes_per_s=_column([case.inter_bytes_per_s for case in cases]),
        host_link_bytes_per_s=_column([case.host_link_bytes_per_s for case in cases]),
        host_bytes_per_s=_column([case.host_bytes_per_s for case in cases]),
    )
    return case, {**c, **{f"{name}.{_STACK}": _column(values) for name, values in ratios.items()}}


def _column(values: Sequence[float]) -> Any:
    return np.array(values, dtype=float)[:, None, None]


def _lender(lenders: Sequence[Lender | None], watts_per_flop_per_s: float | None) -> Lender:
    """Return what the devices borrow as columns; power is counted in shares of what their lenders had."""
    known = [lender for lender in lenders if lender is not None]
    assert len(known) == len(lenders)
    ratio = _column([lender.ratio for lender in known])
    return Lender(slug=_STACK, ratio=ratio, step=0, watts_per_flop_per_s=watts_per_flop_per_s)


def _power_share(case: TrainingCase, kind: str) -> float:
    """Return a device's power for its peak over its lender's; 1 where either is not known."""
    reference = case.matmul_lender.watts_per_flop_per_s if case.matmul_lender else None
    if reference is None or case.device.power_watts is None:
        return 1.0
    return case.device.power_watts / peak_rate(case, kind) / reference


def _optional(values: Sequence[int | None]) -> Any:
    assert len({value is None for value in values}) == 1
    return None if values[0] is None else _column([float(value or 0) for value in values])
