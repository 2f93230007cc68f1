"""The nouns of acceptance: what was seen of a run, a limit, and a check with its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from tonnage.estimate.types import Interval
from tonnage.nouns import noun
from tonnage.units import Bytes, Ratio, Seconds

__all__ = ["Check", "HardwareSeen", "Limit", "Part", "Report", "ServingSeen", "TrainingSeen", "Verdict"]


class Verdict(StrEnum):
    """What a check says."""

    PASS = "pass"  # noqa: S105  no password
    FAIL = "fail"
    NOT_MEASURED = "not measured"


class Part(StrEnum):
    """What a check is about."""

    HARDWARE = "hardware"
    FRAMEWORK = "framework"
    BUSINESS = "business"
    PREDICTION = "prediction"


@noun
class Limit:
    """A limit and who set it."""

    value: float
    origin: str  # "article", "plan", "user" or "default"


@noun
class Check:
    """One limit held against one measurement."""

    name: str
    part: Part
    verdict: Verdict
    limit: float | None = None
    origin: str = ""
    measured: float | None = None
    predicted: Interval | None = None
    is_required: bool = False  # not measured fails the report
    evidence: str = ""  # file, and the steps or times that it is of
    unit: str = ""  # bytes, seconds, ratio, tokens_per_s, celsius, watts, usd or "" for a number


@noun
class Report:
    """All checks of a run."""

    kind: str  # training or serving
    name: str
    checks: tuple[Check, ...]

    @property
    def is_passed(self) -> bool:
        """Whether no limit was broken and none that is required was left unmeasured.

        A prediction outside its interval is shown and refuses nothing: one of five is expected to be.
        """
        return not any(
            one.part is not Part.PREDICTION
            and (one.verdict is Verdict.FAIL or (one.verdict is Verdict.NOT_MEASURED and one.is_required))
            for one in self.checks
        )


@noun
class HardwareSeen:
    """Readings of one device over a run; empty where nobody read."""

    name: str
    evidence: str
    memory_ratios: tuple[Ratio, ...] = ()  # used over whole
    temperatures_celsius: tuple[float, ...] = ()
    slowdown_celsius: float | None = None
    utilization_ratios: tuple[Ratio, ...] = ()
    throttled_ratio: Ratio | None = None  # of the time, slowed down by heat or power brakes
    num_ecc_uncorrected: int | None = None
    num_remapped_rows: int | None = None
    num_xids: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    num_nvlinks_down: int | None = None


@noun
class TrainingSeen:
    """What a training run left behind. Series are by step, of rank 0 unless they say otherwise; NaN is a value."""

    evidence: str
    steps: tuple[int, ...] = ()
    losses: tuple[float | None, ...] = ()
    grad_norms: tuple[float | None, ...] = ()
    step_seconds: tuple[float | None, ...] = ()
    tokens: tuple[float | None, ...] = ()  # of all ranks, a step
    rank_seconds: Mapping[int, float] = field(default_factory=dict[int, float])  # median work of a step, by rank
    reserved_bytes: Bytes | None = None  # most of any rank
    host_bytes: Bytes | None = None
    num_alloc_retries: int | None = None
    num_ooms: int | None = None
    mfu_ratio: Ratio | None = None  # median
    num_checksums: int = 0  # steps at which replicas were compared
    num_unequal: int = 0  # of these, with a difference
    worst_again_ratio: Ratio | None = None  # steps done twice: how far their losses differ; None: none was
    checkpoint_bytes: Bytes | None = None
    num_failed_saves: int = 0
    num_hangs: int = 0
    num_failures: int = 0  # attempts that ended otherwise than asked
    is_finished: bool = False
    num_findings: int | None = None  # of diagnose over the logs, warnings and worse; None: not looked
    baseline_losses: tuple[float, ...] = ()  # smoothed final losses of other runs
    baseline_tokens: float | None = None
    hardware: tuple[HardwareSeen, ...] = ()


@noun
class ServingSeen:
    """What a load test of a server gave, and what its start-up log said."""

    evidence: str
    num_requests: int
    num_ok: int
    ttft_p99_seconds: Seconds | None = None
    tpot_p99_seconds: Seconds | None = None
    e2e_p99_seconds: Seconds | None = None
    ttft_mean_seconds: Seconds | None = None
    tpot_mean_seconds: Seconds | None = None
    has_enough_for_p99: bool = False
    kept_ratio: Ratio | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    is_client_limited: bool = False
    weights_bytes: Bytes | None = None  # as the engine's log says
    hardware: tuple[HardwareSeen, ...] = ()
    num_findings: int | None = None
