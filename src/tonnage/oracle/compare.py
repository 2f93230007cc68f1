"""The formulae beside a trace, pool by pool: one device, nothing split, transformers' own code for both. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tonnage.errors import RequestError
from tonnage.estimate.activations import attention_score_bytes, checkpointed_layer_bytes, logits_bytes
from tonnage.estimate.compose_training import TrainingCase, case_of, columns_of, memory_of, training_constants
from tonnage.estimate.compose_training.case import filled
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.memory import kept_bytes, logit_bytes
from tonnage.estimate.compose_training.sums import layer_sums
from tonnage.estimate.types import Candidate, EngineSettings, Layout, Offload, Recompute
from tonnage.model.types import Layer
from tonnage.nouns import noun
from tonnage.oracle.timeline import HEAD_BACKWARD, STEP
from tonnage.oracle.types import Job, Step, Traced
from tonnage.workload.precision import is_plain
from tonnage.workload.types import Training, TrainingKind

_SCORE_BYTES: Final = 6.0  # an fp32 probability and its 16-bit copy
_OWN_STEPS: Final[Mapping[tuple[str, str], Step]] = {
    ("adamw", "fp32"): "adamw",
    ("adamw_bf16", "bf16"): "adamw",
    ("adamw_bf16", "fp16"): "adamw",
    ("sgd", "bf16"): "sgd",
    ("sgd", "fp32"): "sgd",
}


@noun
class Row:
    """One quantity by formula and by trace; None: the other side has no such thing."""

    name: str
    formula_bytes: float | None
    traced_bytes: float | None

    @property
    def difference_ratio(self) -> float | None:
        """How far the formula lies above the trace."""
        if not self.traced_bytes or self.formula_bytes is None:
            return None
        return self.formula_bytes / self.traced_bytes - 1


@noun
class Comparison:
    """A trace with the formulae beside it."""

    job: Job
    traced: Traced
    rows: tuple[Row, ...]


def alone(candidate: Candidate) -> Candidate:
    """Return a candidate on one device, nothing split or moved to the host, with transformers' own eager code."""
    recompute = Recompute.FULL if candidate.recompute is Recompute.FULL else Recompute.NONE
    return replace(
        candidate,
        engine="transformers",
        layout=Layout(),
        recompute=recompute,
        recompute_every=1,
        offload=Offload(),
        settings=EngineSettings(
            has_flash_attention=candidate.settings.has_flash_attention, has_dropout=candidate.settings.has_dropout
        ),
    )


def job_of(candidate: Candidate, config: Mapping[str, Any]) -> Job:
    """Return what to trace of a training candidate."""
    workload, precision = candidate.workload, candidate.precision
    if not isinstance(workload, Training):
        raise RequestError("it traces training", where="--oracle", fix="add --pretrain or --finetune full|lora|qlora")
    compute = precision.compute if precision.compute in ("fp32", "fp16") else "bf16"
    weights = precision.weights if precision.weights in ("fp32", "fp16", "bf16") else compute
    is_adapted = workload.kind in (TrainingKind.LORA, TrainingKind.QLORA)
    kept_in = "fp32" if is_adapted else weights
    return Job(
        config=config,
        kind=workload.kind,
        seq_len=workload.seq_len,
        micro_batch_size=candidate.micro_batch_size,
        attention="flash" if candidate.settings.has_flash_attention else "eager",
        recomputes=candidate.recompute is Recompute.FULL,
        weights=weights,
        compute=compute,
        step="none" if precision.has_fp32_master else _OWN_STEPS.get((candidate.optimizer, kept_in), "none"),
        lora_rank=workload.lora_rank,
        lora_targets=workload.lora_targets,
        has_dropout=candidate.settings.has_dropout,
    )


def layer_kept_bytes(
    case: TrainingCase, constants: Constants, layer: Layer, x: Mapping[str, Any], *, has_scores: bool = False
) -> float:
    """Return what one layer keeps for backward on one device, by the formulae.

    Routed tokens are counted as they are on average, and scores as transformers' eager code holds them: the trace has
    no imbalance, and nothing of it is calibrated.
    """
    plain = {**constants, "expert_imbalance_ratio": 1.0}
    columns, sums = dict(x), layer_sums(case, layer)
    tokens = x["micro_batch_size"] * x["seq_len"]
    kept = tokens * sum(kept_bytes(case, plain, sums, columns))
    if not has_scores:
        return float(kept)
    length = x["seq_len"]
    return float(
        kept + attention_score_bytes(x["micro_batch_size"], length, length, sums.scores, _SCORE_BYTES, x["tp"])
    )


def compare(candidate: Candidate, job: Job, traced: Traced) -> Comparison:
    """Put the formulae beside a trace of a candidate that stands alone."""
    if traced.attention == "eager" and candidate.settings.has_flash_attention:
        candidate = replace(candidate, settings=replace(candidate.settings, has_flash_attention=False))
    case, constants = case_of(candidate), training_constants()
    x = filled(columns_of(candidate))
    held = memory_of(case, x, constants, "allocated", "first")
    pools = {name: float(value) for name, value in held.pools.items()}
    phases = traced.phases
    grown = max((moment.pools.get("gradients", 0.0) for moment in phases.values()), default=0.0)
    states = max((moment.pools.get("optimizer_states", 0.0) for moment in phases.values()), default=0.0)
    is_stepped = STEP in phases
    whole = traced.kept.pools.get("weights", 0.0)
    frozen = 0.0 if is_plain(candidate.precision.weights) else whole - pools["weights"]  # the format is no trace's
    rows = [
        Row(name="weights", formula_bytes=pools["weights"], traced_bytes=whole - frozen),
        Row(
            name="gradients",
            formula_bytes=_gradients(candidate, traced),
            traced_bytes=grown if is_stepped or candidate.precision.gradients == job.weights else None,
        ),
        Row(
            name="optimizer_states",
            formula_bytes=pools["optimizer_states"] + pools["master_weights"],
            traced_bytes=states if is_stepped else None,
        ),
        Row(
            name="kept_activations",
            formula_bytes=_kept(case, constants, x),
            traced_bytes=traced.kept.pools.get("activations", 0.0),
        ),
        Row(name="logits", formula_bytes=_logits(case, constants, x), traced_bytes=_at_loss(traced)),
    ]
    peak = traced.peak.total_bytes - frozen if is_stepped else None  # no step, no peak to tell
    rows.append(
        Row(name="allocated_peak", formula_bytes=float(held.total) - pools["library_workspace"], traced_bytes=peak)
    )
    return Comparison(job=job, traced=traced, rows=tuple(rows))


def _kept(case: TrainingCase, constants: Constants, x: Mapping[str, Any]) -> float:
    groups, tokens = case.model.groups(), x["micro_batch_size"] * x["seq_len"]
    last = tokens * case.model.hidden_size * _last_norm_bytes(case)
    if x["recompute"]:
        each = checkpointed_layer_bytes(tokens, case.model.hidden_size, case.residual_bytes, 1)
        return float(each * case.model.num_layers + last)
    eager = not case.has_flash_attention
    return last + sum(layer_kept_bytes(case, constants, layer, x, has_scores=eager) * count for layer, count in groups)


def _last_norm_bytes(case: TrainingCase) -> float:
    """Return what the norm behind the layers keeps of one element, with the head's input where the head is trained."""
    layer = case.model.layers[-1]
    kind = layer.norms.kind if layer.norms else "rms"
    trained = 1.0 if case.trains_all else 0.0
    weighed = 4.0 if kind in ("rms_fp32", "layer_fp32") else 2.0
    norm = {"layer": 2.0, "layer_fp32": 8.0 + weighed * trained}.get(kind, 4.0 + weighed * trained)
    return norm + 2.0 * trained


def _logits(case: TrainingCase, constants: Constants, x: Mapping[str, Any]) -> float:
    tokens = x["micro_batch_size"] * x["seq_len"]
    return float(logits_bytes(tokens, case.model.vocab_size, logit_bytes(case, constants), 1))


def _at_loss(traced: Traced) -> float:
    moment = traced.phases.get(HEAD_BACKWARD)
    return 0.0 if moment is None else moment.pools.get("logits", 0.0) + moment.pools.get("temporaries", 0.0)


def _gradients(candidate: Candidate, traced: Traced) -> float:
    each = {"fp32": 4.0}.get(candidate.precision.gradients, 2.0)
    return each * traced.num_trained_parameters
