"""sglang: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import refusal_of, traits_of
from tonnage.engines.sglang.accounting import ACCOUNTING
from tonnage.engines.sglang.launch import launch
from tonnage.engines.types import EngineTraits, Launch, Refusal
from tonnage.estimate.types import Candidate, EngineAccounting

__all__ = ["ENGINE"]


class _Engine:
    name = "sglang"

    @property
    def traits(self) -> EngineTraits:
        return traits_of("sglang")

    @property
    def accounting(self) -> EngineAccounting:
        return ACCOUNTING

    def launch(self, candidate: Candidate) -> Launch:
        return launch(candidate)

    def refuses(self, candidate: Candidate) -> Refusal | None:
        return refusal_of("sglang", candidate)


ENGINE = _Engine()
