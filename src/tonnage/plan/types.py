"""The nouns `Request`, `Plan`, `Rejection`, `Change` and `Answer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from tonnage.estimate.serving_limits import ServingLimits
from tonnage.estimate.types import Estimate
from tonnage.nouns import noun
from tonnage.workload.types import Workload

Scalar = str | int | float | bool
Intent = Literal["experiment", "train", "serve", "batch"]


@noun
class Money:
    """An amount in its own currency."""

    amount: float
    currency: str = "USD"
    usd: float | None = None  # once the rate is settled


@noun
class Limits:
    """What an answer must not exceed, and which engines and features it may or must use."""

    budget: Money | None = None  # to buy, the whole machine
    rent: Money | None = None  # an hour
    spend: Money | None = None  # the job
    deadline_seconds: float | None = None
    max_power_watts: float | None = None
    require: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    prices: Mapping[str, Money] = field(default_factory=dict[str, Money])  # by device, to buy
    rates: Mapping[str, float] = field(default_factory=dict[str, float])  # units of a currency for one US dollar
    assume: Mapping[str, float] = field(default_factory=dict[str, float])  # in place of `data/assumptions`
    is_spot: bool = False  # rent machines that may be taken away
    today: str | None = None
    intent: Intent | None = None
    objective: str | None = None  # of `search.rank.OBJECTIVES`; None: what the intent or the load asks for


@noun
class Where:
    """The hardware asked for, as it was named; nothing named = search the catalogue."""

    gpus: tuple[tuple[str, int], ...] = ()  # name and number in each node
    num_nodes: int = 1
    host: str | None = None
    network: str | None = None  # of hardware/links.csv, or "400Gb/s": what joins each device to other machines
    is_here: bool = False
    reserve_bytes: int | None = None  # of each device: desktop and other programs
    driver: str = ""  # version of the machines' driver
    profile: str = ""  # the machine whose measurements count; "": this one with `is_here`; none: nobody's

    @property
    def is_open(self) -> bool:
        """Whether the catalogue is to be searched."""
        return not self.gpus and not self.is_here


@noun
class Request:
    """What was asked: the model by name, the goal, the hardware, limits, and fields fixed by the person.

    `pins` maps a path of `Candidate` ("layout.tp", "precision.kv") to a value; `assumed` names the flags that were
    left to their defaults, so that the answer can print them first.
    """

    model: str
    workload: Workload
    where: Where = field(default_factory=Where)
    limits: Limits = field(default_factory=Limits)
    pins: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])
    assumed: tuple[str, ...] = ()
    measured_run: str | None = None  # file of a run that corrects the estimates


@noun
class Change:
    """One change to what was asked that makes it fit, estimated anew."""

    what: str
    command: str
    estimate: Estimate


@noun
class Rejection:
    """A way that was looked at and does not do, with what is missing and the nearest way that does."""

    what: str
    reason: str
    short_by_bytes: int | None = None  # None: memory is not the reason
    command: str | None = None  # None: nothing near does
    estimate: Estimate | None = None
    changes: tuple[Change, ...] = ()


@noun
class Reach:
    """A size at the best estimate, and one at which the upper end of the interval does as well."""

    best: int
    surely: int


@noun
class Room:
    """How far a training plan reaches on its hardware, each size alone and everything else as planned."""

    micro_batch_size: Reach  # the largest that fits
    seq_len: Reach  # the longest that fits
    device_bytes: Reach  # the least memory of a device that holds the plan


@noun
class Plan:
    """A way that does, with its place among the others and why it stands there."""

    rank: int
    request: Request
    estimate: Estimate
    kind: str = ""  # in which way it differs from the other plans: "all on the GPU", "experts in host memory"
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    binding: str = ""  # the limit that it comes nearest to
    rival: str = ""  # what is next best
    risks: tuple[str, ...] = ()  # what speaks against relying on it, beside the warnings
    room: Room | None = None  # of a training plan
    limits: ServingLimits | None = None  # of a serving plan whose engine a machine taught: by that machine's constants


@noun
class Route:
    """One way to have the model: a kind of hardware to buy, renting, or an API; with what stands against it."""

    way: str  # of `plan.routes.WAYS`
    estimate: Estimate | None = None
    flags: tuple[str, ...] = ()


@noun
class Unpriced:
    """Hardware that does and whose price is not known: within the budget where one device costs less than this."""

    gpu: str
    num_gpus: int
    fits_below_usd: float


@noun
class WhyNot:
    """One reason for which candidates cannot be, and how many it took out first."""

    engine: str
    reason: str
    num_candidates: int


@noun
class Answer:
    """All that was found: plans by rank, the ways that lost, and how many candidates were estimated."""

    request: Request
    plans: tuple[Plan, ...]
    rejections: tuple[Rejection, ...]
    num_candidates: int
    assumptions: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()  # whose, of which day, and what is assumed of money; where prices decide
    front: tuple[Estimate, ...] = ()  # of all that keeps the limits, what nothing beats in every objective
    why_not: tuple[WhyNot, ...] = ()  # what rules took out before anything was estimated, the most first
    looked: tuple[Estimate, ...] = ()  # the best on each hardware, where the catalogue was searched
    routes: tuple[Route, ...] = ()
    stages: tuple[str, ...] = ()  # a consumer card now, a data-centre card later: what carries over
    unpriced: tuple[Unpriced, ...] = ()
    warnings: tuple[str, ...] = ()
