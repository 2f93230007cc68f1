"""ik_llama.cpp: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import refusal_of, traits_of
from tonnage.engines.ik_llama_cpp.accounting import ACCOUNTING
from tonnage.engines.ik_llama_cpp.launch import launch
from tonnage.engines.types import EngineTraits, Launch, Refusal
from tonnage.estimate.types import Candidate, EngineAccounting

__all__ = ["ENGINE"]


class _Engine:
    name = "ik_llama.cpp"

    @property
    def traits(self) -> EngineTraits:
        return traits_of("ik_llama_cpp")

    @property
    def accounting(self) -> EngineAccounting:
        return ACCOUNTING

    def launch(self, candidate: Candidate) -> Launch:
        return launch(candidate)

    def refuses(self, candidate: Candidate) -> Refusal | None:
        return refusal_of("ik_llama_cpp", candidate)


ENGINE = _Engine()
