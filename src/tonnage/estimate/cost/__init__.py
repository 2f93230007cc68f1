"""Money: rent, interruptions of spot, owning, and where renting and owning cost the same. All numbers or columns."""

from __future__ import annotations

from tonnage.estimate.cost.own import (
    break_even_hours,
    depreciation_usd,
    electricity_usd,
    electricity_usd_per_hour,
    owned_usd_per_hour,
    ownership_usd,
    repair_usd,
    residual_usd,
)
from tonnage.estimate.cost.rent import rent_usd, usd_per_million_tokens
from tonnage.estimate.cost.spot import (
    daly_interval_seconds,
    expected_seconds,
    first_loss_seconds,
    job_mean_seconds,
    steady_ratio,
    waiting_seconds,
    young_interval_seconds,
)

__all__ = [
    "break_even_hours",
    "daly_interval_seconds",
    "depreciation_usd",
    "electricity_usd",
    "electricity_usd_per_hour",
    "expected_seconds",
    "first_loss_seconds",
    "job_mean_seconds",
    "owned_usd_per_hour",
    "ownership_usd",
    "rent_usd",
    "repair_usd",
    "residual_usd",
    "steady_ratio",
    "usd_per_million_tokens",
    "waiting_seconds",
    "young_interval_seconds",
]
