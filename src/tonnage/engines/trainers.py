"""What a program that trains is to the rest of the product: a launch, and what it refuses, from its data file."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache

from tonnage import datafiles
from tonnage.engines.types import Launch, Refusal
from tonnage.estimate.types import Candidate, Recompute
from tonnage.nouns import noun
from tonnage.workload.types import Training

__all__ = ["Trainer", "TrainerRefusal", "traits_of_candidate"]


@noun
class TrainerRefusal:
    """Something a program does not do: it holds where a candidate has every trait that is named."""

    traits: tuple[str, ...]  # of `traits_of_candidate`
    reason: str
    source: str
    families: tuple[str, ...] = ()


@noun
class Trainer:
    """A program that trains: its launch, the packages it needs, and whether its launch was ever started."""

    name: str
    data: str  # data/engines/<data>.toml
    launcher: Callable[[Candidate], Launch]

    @property
    def title(self) -> str:
        """Name as its makers write it."""
        return str(datafiles.table(f"engines/{self.data}.toml")["title"])

    @property
    def packages(self) -> tuple[str, ...]:
        """Return pip requirements."""
        table = datafiles.table(f"engines/{self.data}.toml")
        return tuple(one.replace("{version}", table["version"]) for one in table["trainer"].get("packages", ()))

    @property
    def image(self) -> str | None:
        """Return a container image that carries the program, or what it stands on."""
        found = datafiles.table(f"engines/{self.data}.toml")["trainer"].get("image")
        return None if found is None else str(found)

    @property
    def tier(self) -> str:
        """Return how far the launch is proved: started, checked (against the released source) or template."""
        return str(datafiles.table(f"engines/{self.data}.toml")["trainer"]["tier"])

    @property
    def refusals(self) -> tuple[TrainerRefusal, ...]:
        """What the program does not do."""
        return _refusals(self.data)

    def launch(self, candidate: Candidate) -> Launch:
        """Return the command with the settings that the prediction assumed."""
        return self.launcher(candidate)

    def refuses(self, candidate: Candidate) -> Refusal | None:
        """Return why the program cannot run a candidate, or None."""
        has = traits_of_candidate(candidate)
        for one in self.refusals:
            if set(one.traits) <= has and (
                not one.families or any(fnmatchcase(candidate.model.family, family) for family in one.families)
            ):
                return Refusal(reason=one.reason, source=one.source)
        return None


@cache
def _refusals(data: str) -> tuple[TrainerRefusal, ...]:
    table = datafiles.table(f"engines/{data}.toml")
    return tuple(
        TrainerRefusal(
            traits=tuple(one["traits"]),
            reason=one["reason"],
            source=one["source"],
            families=tuple(one.get("families", ())),
        )
        for one in table["trainer"].get("refusal", ())
    )


def traits_of_candidate(candidate: Candidate) -> frozenset[str]:
    """Return what a candidate asks for, in the words that refusals are written in.

    They are: the kind of training (pretrain, full, lora, qlora), moe or dense, gguf, the weights' format, zero1 … zero3,
    tp, pp, cp, ep where there are several ways, recompute_full, recompute_selective, offload_optimizer,
    offload_parameters, several_devices, several_nodes, the optimizer, the maker of the device, and fp8.
    """
    layout, offload, model = candidate.layout, candidate.offload, candidate.model
    workload = candidate.workload
    devices = candidate.cluster.node.devices
    has = {
        str(workload.kind) if isinstance(workload, Training) else "serving",
        "moe" if model.is_moe else "dense",
        candidate.precision.weights,
        candidate.precision.compute,
        candidate.optimizer,
        devices[0].vendor.lower() if devices else "cpu",
    }
    has |= {way for way in ("tp", "pp", "cp", "ep") if getattr(layout, way) > 1}
    if layout.zero_stage:
        has.add(f"zero{layout.zero_stage}")
    if candidate.recompute is not Recompute.NONE:
        has.add(f"recompute_{candidate.recompute}")
    for name, is_asked in (
        ("gguf", model.name.endswith(".gguf")),
        ("several_devices", layout.num_devices > 1),
        ("several_nodes", candidate.cluster.num_nodes > 1),
        ("offload_optimizer", offload.optimizer),
        ("offload_parameters", offload.parameters),
        ("offload_activations", offload.activations),
    ):
        if is_asked:
            has.add(name)
    return frozenset(has)
