"""What a program that trains is to the rest of the product: a launch, and what it refuses, from its data file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tonnage import datafiles
from tonnage.engines.traits import holds, refusals_of, traits_of_candidate
from tonnage.engines.types import Launch, Refusal
from tonnage.estimate.types import Candidate
from tonnage.messages import language
from tonnage.nouns import noun

__all__ = ["Trainer", "traits_of_candidate"]


@noun
class Trainer:
    """A program that trains: its launch, the packages it needs, and whether its launch was ever started."""

    name: str
    data: str  # data/engines/<data>.toml
    launcher: Callable[[Candidate], Launch]

    @property
    def table(self) -> Mapping[str, Any]:
        """Return the data file."""
        return datafiles.table(f"engines/{self.data}.toml")

    @property
    def title(self) -> str:
        """Name as its makers write it."""
        return str(self.table["title"])

    @property
    def packages(self) -> tuple[str, ...]:
        """Return pip requirements."""
        return tuple(
            one.replace("{version}", self.table["version"]) for one in self.table["trainer"].get("packages", ())
        )

    @property
    def image(self) -> str | None:
        """Return a container image that carries the program, or what it stands on."""
        found = self.table["trainer"].get("image")
        return None if found is None else str(found)

    @property
    def tier(self) -> str:
        """Return how far the launch is proved: started, checked (against the released source) or template."""
        return str(self.table["trainer"]["tier"])

    @property
    def plans_of(self) -> tuple[str, ...]:
        """Return the software whose plans it can run: what was predicted must hold for what is started."""
        return tuple(self.table["trainer"].get("plans_of", (self.name,)))

    @property
    def setup(self) -> tuple[str, ...]:
        """Return lines of a shell script that fetch what pip does not; `{model}` stands for the model's name."""
        return tuple(one.replace("{version}", self.table["version"]) for one in self.table["trainer"].get("setup", ()))

    @property
    def note(self) -> str:
        """Return what a person must know before starting it, in the language in use; none where there is nothing."""
        return str(self.table["trainer"].get("note_zh" if language() == "zh" else "note", ""))

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What the program does not do."""
        shared = (one for name in self.table["trainer"].get("refusals_of", ()) for one in _refusals(name))
        return (*_refusals(self.data), *shared)

    def launch(self, candidate: Candidate) -> Launch:
        """Return the command with the settings that the prediction assumed."""
        return self.launcher(candidate)

    def refuses(self, candidate: Candidate) -> Refusal | None:
        """Return why the program cannot run a candidate, or None."""
        has = traits_of_candidate(candidate)
        unlisted = self.table["trainer"].get("unlisted")
        if unlisted and not any(candidate.model.name in row["models"] for row in self.table["flavour"]):
            return Refusal(reason=unlisted, source=self.table["source"])
        return next((one for one in self.refusals if holds(one, candidate, has)), None)


@cache
def _refusals(data: str) -> tuple[Refusal, ...]:
    return refusals_of(datafiles.table(f"engines/{data}.toml")["trainer"].get("refusal", ()))
