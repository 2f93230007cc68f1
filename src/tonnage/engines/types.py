"""What an engine is to the rest of the product: abilities, memory rules, a launch line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from tonnage.estimate.types import Candidate, EngineAccounting
from tonnage.nouns import noun

__all__ = ["Engine", "EngineTraits", "Late", "Launch", "LogFacts", "Refusal"]


@noun
class Refusal:
    """Something an engine does not do, with where that is said."""

    reason: str
    source: str
    formats: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()  # of `engines.traits`: the candidate has them all
    lacks: tuple[str, ...] = ()  # and none of these
    below_capability: float = 0.0  # and NVIDIA's card has less; 0: any card


@noun
class EngineTraits:
    """Abilities of an engine, from `data/engines/<name>.toml`."""

    title: str
    version: str  # the version that defaults and constants are of
    source: str
    vendors: tuple[str, ...]
    min_compute_capability: float
    weight_formats: tuple[str, ...]  # shell patterns over names of estimate.weights.FORMATS
    cache_formats: tuple[str, ...]
    parallelisms: tuple[str, ...]  # of tp pp dp ep
    placements: tuple[str, ...]  # gpu, experts_cpu, layers_cpu, cpu
    min_capability_of_format: Mapping[str, float] = field(default_factory=dict[str, float])
    expert_ways: str = ""  # over what experts are spread: "copies" (all ranks of a stage, or none) or "tensor" ranks
    refusals: tuple[Refusal, ...] = ()


@noun
class LogFacts:
    """What an engine's start-up log says it took, of one device; None where it says nothing."""

    engine: str
    weights_bytes: float | None = None
    cache_bytes: float | None = None  # of all devices and the host where the engine adds them up
    cache_tokens: float | None = None
    graph_bytes: float | None = None
    compute_bytes: float | None = None
    non_torch_bytes: float | None = None
    activation_bytes: float | None = None
    context_bytes: float | None = None  # taken of the card beside the engine's own buffers
    prefill_tokens_per_s: float | None = None
    num_prefill_tokens: int | None = None
    decode_tokens_per_s: float | None = None
    num_decode_tokens: int | None = None
    version: str = ""
    model: str = ""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])  # words of a request: pins and load


class Late(str):
    """A word that the place completes when it starts: `$NAME` in it stands for a variable of that time.

    The variables are MASTER_ADDR, NODE_RANK, JOB_ID and TONNAGE_PORT; all else in a launch is literal.
    """

    __slots__ = ()


@noun
class Launch:
    """The command that starts what was predicted."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])  # name -> text, beside the command


class Engine(Protocol):
    """One engine: a small folder and a data file."""

    @property
    def name(self) -> str:
        """Name as people write it."""
        ...

    @property
    def traits(self) -> EngineTraits:
        """Abilities and refusals."""
        ...

    @property
    def accounting(self) -> EngineAccounting:
        """Memory rules and rates."""
        ...

    def launch(self, candidate: Candidate) -> Launch:
        """Return the command with the flags that the prediction assumed."""
        ...

    def refuses(self, candidate: Candidate) -> Refusal | None:
        """Return why the engine cannot run a candidate, or None."""
        ...
