"""A start-up log beside what a plan predicted of the same launch."""

from __future__ import annotations

from typing import Final

from tonnage.engines import find_engine
from tonnage.engines.llama_cpp import logs as llama_cpp_logs
from tonnage.engines.sglang import logs as sglang_logs
from tonnage.engines.types import LogFacts
from tonnage.engines.vllm import logs as vllm_logs
from tonnage.errors import BadFileError, RequestError
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate
from tonnage.nouns import noun
from tonnage.workload.types import Serving

__all__ = ["Difference", "differences", "read_log"]

_READERS: Final = (vllm_logs.read_log, sglang_logs.read_log, llama_cpp_logs.read_log)
_LARGEST_LOG: Final = 50_000_000
# Engines whose logs have the form of another's.
_FORMS: Final = {"ik_llama.cpp": "llama.cpp", "ollama": "llama.cpp", "ktransformers": "sglang"}


@noun
class Difference:
    """One quantity: what was predicted, and what the log says."""

    name: str  # weights_bytes, cache_bytes, cache_tokens, graph_bytes, compute_bytes
    predicted: float
    measured: float

    @property
    def relative(self) -> float | None:
        """Prediction over measurement, less one; None without a measurement to divide by."""
        return self.predicted / self.measured - 1 if self.measured > 0 else None


def read_log(text: str, where: str) -> LogFacts:
    """Return what a start-up log says.

    Raises
    ------
    BadFileError
        No line of an engine that is known.
    """
    if len(text) <= _LARGEST_LOG:
        for reader in _READERS:
            if (facts := reader(text)) is not None:
                return facts
    raise BadFileError(
        "no start-up log of vLLM, SGLang or llama.cpp", where=where, fix="give what the engine printed while it started"
    )


def differences(candidate: Candidate, facts: LogFacts) -> tuple[Difference, ...]:
    """Return each quantity of a log beside its prediction.

    Raises
    ------
    RequestError
        The plan trains, or runs on another engine than the log.
    """
    if not isinstance(candidate.workload, Serving):
        raise RequestError("the plan trains, the log serves", where="--plan", fix="give the plan of this launch")
    if _FORMS.get(candidate.engine, candidate.engine) != facts.engine:
        raise RequestError(
            f"the log is of {facts.engine}, the plan of {candidate.engine}",
            where="--plan",
            fix="give the plan of this launch",
        )
    accounting = find_engine(candidate.engine).accounting
    load = serving_load(candidate, accounting)
    needs = accounting.memory(load)
    pools = {pool.name: float(pool.bytes) for pool in needs.pools}
    cache = needs.cache_bytes if needs.cache_bytes is not None else needs.total_cache_bytes
    told = {
        "weights_bytes": pools.get("weights"),
        "cache_bytes": None if cache is None else float(cache),
        "cache_tokens": None if needs.cache_tokens is None else float(needs.cache_tokens),
        "graph_bytes": pools.get("cuda_graphs"),
        "compute_bytes": pools.get("compute_buffer"),
    }
    found: list[Difference] = []
    for name, predicted in told.items():
        measured = getattr(facts, name)
        if predicted is not None and measured is not None:
            found.append(Difference(name=name, predicted=predicted, measured=measured))
    return tuple(found)
