"""vllm: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import refusal_of, traits_of
from tonnage.engines.types import EngineTraits, Launch, Refusal
from tonnage.engines.vllm.accounting import ACCOUNTING
from tonnage.engines.vllm.launch import launch
from tonnage.estimate.types import Candidate, EngineAccounting

__all__ = ["ENGINE"]


class _Engine:
    name = "vllm"

    @property
    def traits(self) -> EngineTraits:
        return traits_of("vllm")

    @property
    def accounting(self) -> EngineAccounting:
        return ACCOUNTING

    def launch(self, candidate: Candidate) -> Launch:
        return launch(candidate)

    def refuses(self, candidate: Candidate) -> Refusal | None:
        return refusal_of("vllm", candidate)


ENGINE = _Engine()
