"""The limits of an acceptance, with where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tonnage.errors import UnknownNameError
from tonnage.verify.types import Limit

__all__ = ["DEFAULTS", "limit_of", "read_limits"]

# "article": one of the numbers in the acceptance lists that this project answers, where need be defined exactly.
DEFAULTS: Final[Mapping[str, Limit]] = {
    "gpu_memory_ratio": Limit(value=0.90, origin="article"),
    "temperature_celsius": Limit(value=85.0, origin="article"),
    "slowdown_margin_celsius": Limit(value=3.0, origin="default"),
    "throttled_ratio": Limit(value=0.01, origin="default"),
    "utilization_ratio": Limit(value=0.5, origin="default"),
    "ecc_uncorrected": Limit(value=0.0, origin="default"),
    "remapped_rows": Limit(value=0.0, origin="default"),
    "xids": Limit(value=0.0, origin="default"),
    "nvlinks_down": Limit(value=0.0, origin="default"),
    "grad_norm_fluctuation_ratio": Limit(value=0.10, origin="article"),
    "grad_norm_spikes": Limit(value=0.0, origin="default"),
    "nonfinite_steps": Limit(value=0.0, origin="article"),
    "unequal_replicas": Limit(value=0.0, origin="article"),
    "repeated_loss_ratio": Limit(value=1e-6, origin="default"),
    "loss_change_ratio": Limit(value=0.0, origin="default"),
    "step_time_p95_ratio": Limit(value=1.5, origin="default"),
    "alloc_retries": Limit(value=0.0, origin="default"),
    "ooms": Limit(value=0.0, origin="article"),
    "hangs": Limit(value=0.0, origin="default"),
    "failed_attempts": Limit(value=0.0, origin="default"),
    "failed_saves": Limit(value=0.0, origin="default"),
    "straggler_score": Limit(value=0.75, origin="default"),
    "log_findings": Limit(value=0.0, origin="default"),
    "convergence_ratio": Limit(value=0.05, origin="article"),
    "request_error_ratio": Limit(value=0.0, origin="default"),
    "kept_ratio": Limit(value=0.99, origin="default"),
}
# Limits that have no value until the plan or the person gives one.
OPEN: Final = frozenset(
    {
        "tokens_per_s", "requests_per_s", "ttft_p99_seconds", "tpot_p99_seconds", "e2e_p99_seconds",
        "usd_per_million_tokens", "peak_memory_bytes",
    }
)  # fmt: skip


def limit_of(name: str, given: Mapping[str, float], plan: float | None = None) -> Limit | None:
    """Return the limit of a check: the person's, else the plan's, else ours.

    Parameters
    ----------
    name : str
        The check.
    given : mapping
        What the person set.
    plan : numeric
        What the plan says.

    Returns
    -------
    Limit or None
        None where nobody set one.

    Notes
    -----
    Derived.
    """
    if name in given:
        return Limit(value=given[name], origin="user")
    if plan is not None:
        return Limit(value=plan, origin="plan")
    return DEFAULTS.get(name)


def read_limits(given: Mapping[str, object], where: str) -> dict[str, float]:
    """Return a person's limits, checked.

    Parameters
    ----------
    given : mapping
        Names to numbers, as a file or a command line has them.
    where : str
        For messages.

    Returns
    -------
    dict
        Names to numbers.

    Raises
    ------
    UnknownNameError
        A name that is no limit, or a value that is no number.
    """
    from difflib import get_close_matches  # noqa: PLC0415

    known = sorted({*DEFAULTS, *OPEN})
    found = {}
    for name, value in given.items():
        if name not in known:
            near = tuple(get_close_matches(name, known, 3))
            raise UnknownNameError(
                f"'{name[:60]}' is no limit", where=where, fix=f"limits are {', '.join(known)}", suggestions=near
            )
        try:
            found[name] = float(str(value))
        except ValueError:
            raise UnknownNameError(
                f"'{str(value)[:40]}' is no number", where=f"{where} {name}", fix="write a number"
            ) from None
    return found
