"""ktransformers: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import refusal_of, traits_of
from tonnage.engines.ktransformers.accounting import ACCOUNTING
from tonnage.engines.ktransformers.launch import launch
from tonnage.engines.types import EngineTraits, Launch, Refusal
from tonnage.estimate.types import Candidate, EngineAccounting

__all__ = ["ENGINE"]


class _Engine:
    name = "ktransformers"

    @property
    def traits(self) -> EngineTraits:
        return traits_of("ktransformers")

    @property
    def accounting(self) -> EngineAccounting:
        return ACCOUNTING

    def launch(self, candidate: Candidate) -> Launch:
        return launch(candidate)

    def refuses(self, candidate: Candidate) -> Refusal | None:
        return refusal_of("ktransformers", candidate)


ENGINE = _Engine()
