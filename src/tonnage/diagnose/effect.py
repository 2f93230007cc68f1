"""What changing one setting of a plan would free: the same candidate estimated anew, one change at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tonnage.diagnose.refine import both
from tonnage.diagnose.types import Effect
from tonnage.errors import RequestError
from tonnage.estimate.types import Candidate, Estimate
from tonnage.plan.choose import pinned
from tonnage.plan.scene import explore, set_scene
from tonnage.plan.types import Plan, Scalar
from tonnage.units import format_bytes
from tonnage.workload.types import Serving

# Findings that less memory on the device answers.
OF_MEMORY: Final = ("TORCH_OOM", "CUDA_DRIVER_OOM", "CUBLAS_NOT_INIT", "CUDNN_NOT_INIT", "VLLM_NO_KV", "VLLM_MAX_LEN", "VLLM_SAMPLER",
                    "VLLM_PREEMPTION", "SGLANG_", "LLAMACPP_WEIGHTS", "LLAMACPP_KV", "LLAMACPP_COMPUTE", "LLAMACPP_CUDA", "TRTLLM_MEMORY",
                    "NCCL_CUDA_FAILURE", "DS_CACHE_FLUSH")  # fmt: skip
_MORE: Final = {"none": "selective", "selective": "full"}


def is_of_memory(finding_id: str) -> bool:
    """Whether less memory on the device would answer a finding."""
    return finding_id.startswith(OF_MEMORY)


def effects(plan: Plan) -> tuple[Effect, ...]:
    """Return what single changes to a plan free on the fullest device, those that free most first.

    Parameters
    ----------
    plan : Plan
        The plan of the run that failed.

    Returns
    -------
    tuple of Effect
        Setting, its value now and then, bytes freed and whether the changed plan fits; nothing that frees nothing.
    """
    now = plan.estimate
    found = []
    for path, before, after in _trials(now.candidate):
        then = _with(plan, path, after)
        if then is None:
            continue
        freed = now.footprint.total.best - then.footprint.total.best
        if freed >= 1 << 20:
            fits = then.footprint.fits
            text = both("diagnose.effect_fits" if fits else "diagnose.effect_short", setting=path, before=before, after=after,
                        freed=format_bytes(freed), short=format_bytes(then.footprint.short_by_bytes))  # fmt: skip
            found.append(
                Effect(setting=path, before=before, after=after, freed_bytes=round(freed), fits=fits, text=text)
            )
    return tuple(sorted(found, key=lambda one: (not one.fits, -one.freed_bytes)))


def _trials(candidate: Candidate) -> Iterator[tuple[str, Scalar, Scalar]]:
    """Yield changes that keep the job what it is: path, value now, value then."""
    if isinstance(candidate.workload, Serving):
        if (seqs := candidate.settings.max_num_seqs) and seqs > 1:
            yield "settings.max_num_seqs", seqs, seqs // 2
        if candidate.precision.kv not in {"fp8", "q8_0", "q4_0"}:
            yield "precision.kv", candidate.precision.kv, "q8_0" if "llama" in candidate.engine else "fp8"
        if (tokens := candidate.settings.max_batched_tokens) and tokens > 2048:
            yield "settings.max_batched_tokens", tokens, tokens // 2
        return
    if candidate.micro_batch_size > 1:
        yield "micro_batch_size", candidate.micro_batch_size, candidate.micro_batch_size // 2
    if (more := _MORE.get(candidate.recompute.value)) is not None:
        yield "recompute", candidate.recompute.value, "full" if more == "selective" else more
    if candidate.layout.dp > 1 and candidate.layout.zero_stage < 3:
        yield "layout.zero_stage", candidate.layout.zero_stage, 3
    if candidate.optimizer == "adamw":
        yield "optimizer", candidate.optimizer, "adamw_8bit"
    if not candidate.offload.optimizer:
        yield "offload.optimizer", value_of(candidate.offload.optimizer), True


def value_of(value: Scalar | None) -> Scalar:
    """Return a field's value as a pin writes it."""
    return False if value is None else value


def _with(plan: Plan, path: str, value: Scalar) -> Estimate | None:
    """Return the plan's candidate with one field changed; None where its software does not take that."""
    candidate = plan.estimate.candidate
    request = pinned(plan.request, plan.estimate)
    request = replace(request, pins={**request.pins, path: value})
    try:
        explored = explore(set_scene(request, candidate.model, candidate.cluster))
    except RequestError:
        return None
    return min((*explored.kept, *explored.short), key=lambda one: one.footprint.total.best, default=None)
