"""Candidate -> `torchrun pretrain_gpt.py` with the arguments that the prediction assumed.

Flags as in NVIDIA/Megatron-LM megatron/training/arguments.py, megatron/core/transformer/transformer_config.py and
megatron/core/model_parallel_config.py @d98e8a64. The base of the rotary embedding bears on no memory and is not part
of a plan: a checkpoint brings it (`--use-checkpoint-args`).
"""

from __future__ import annotations

from typing import Final

from tonnage.engines.elastic import LEARNING_RATES, num_steps, torchrun_words, training_of
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate, Recompute
from tonnage.model.types import Attention, LatentAttention, Layer, Mlp, Model, Moe
from tonnage.workload.types import TrainingKind

__all__ = ["PROGRAM", "launch"]

PROGRAM: Final = "Megatron-LM/pretrain_gpt.py"
_STEPS_WITHOUT_END: Final = 1000  # Megatron counts steps, not passes over the data
_OPTIMIZERS: Final = {"adamw": "adam", "adamw_bf16": "adam", "sgd": "sgd", "sgd_momentum": "sgd", "muon": "muon"}


def _attention(layer: Layer) -> list[str]:
    mixer = layer.mixers[0]
    if isinstance(mixer, LatentAttention):
        words = ["--multi-latent-attention", "--num-attention-heads", str(mixer.num_heads)]
        if mixer.q_lora_rank:
            words += ["--q-lora-rank", str(mixer.q_lora_rank)]
        return [
            *words,
            "--kv-lora-rank", str(mixer.kv_lora_rank),
            "--qk-head-dim", str(mixer.qk_nope_head_dim),
            "--qk-pos-emb-head-dim", str(mixer.qk_rope_head_dim),
            "--v-head-dim", str(mixer.v_head_dim),
        ]  # fmt: skip
    assert isinstance(mixer, Attention)
    words = ["--num-attention-heads", str(mixer.num_heads), "--kv-channels", str(mixer.head_dim)]
    if mixer.num_kv_heads < mixer.num_heads:
        words += ["--group-query-attention", "--num-query-groups", str(mixer.num_kv_heads)]
    if mixer.has_qkv_bias:
        words.append("--add-qkv-bias")
    if mixer.qk_norm == "head":
        words.append("--qk-layernorm")
    return words


def _feed_forward(model: Model) -> list[str]:
    dense = [f for layer in model.layers for f in layer.feed_forwards if isinstance(f, Mlp)]
    routed = [f for layer in model.layers for f in layer.feed_forwards if isinstance(f, Moe)]
    words: list[str] = []
    if any(part.is_gated for part in (*dense, *routed)):
        words.append("--swiglu")
    if dense:
        words += ["--ffn-hidden-size", str(dense[0].intermediate_size)]
    elif routed:
        words += ["--ffn-hidden-size", str(routed[0].expert_size)]
    if not routed:
        return words
    one = routed[0]
    words += [
        "--num-experts", str(one.num_experts),
        "--moe-router-topk", str(one.top_k),
        "--moe-ffn-hidden-size", str(one.expert_size),
        "--moe-grouped-gemm",
        "--moe-token-dispatcher-type", "alltoall",
        "--moe-router-dtype", "fp32",
    ]  # fmt: skip
    if one.shared is not None:
        words += ["--moe-shared-expert-intermediate-size", str(one.shared.intermediate_size)]
    if dense:
        routes = [int(any(isinstance(part, Moe) for part in layer.feed_forwards)) for layer in model.layers]
        words += ["--moe-layer-freq", f"[{','.join(map(str, routes))}]"]
    return words


def _model(candidate: Candidate) -> list[str]:
    model, tokens = candidate.model, training_of(candidate).seq_len
    words = [
        "--num-layers", str(model.num_layers),
        "--hidden-size", str(model.hidden_size),
        *_attention(model.layers[0]),
        *_feed_forward(model),
        "--seq-length", str(tokens),
        "--max-position-embeddings", str(max(tokens, model.max_position_tokens or 0)),
        "--position-embedding-type", "rope",
        "--normalization", "RMSNorm",
        "--disable-bias-linear",
        "--tokenizer-type", "HuggingFaceTokenizer",
        "--tokenizer-model", model.name,
    ]  # fmt: skip
    return words if model.is_tied else [*words, "--untie-embeddings-and-output-weights"]


def _layout(candidate: Candidate) -> list[str]:
    layout = candidate.layout
    words = [
        "--tensor-model-parallel-size", str(layout.tp),
        "--pipeline-model-parallel-size", str(layout.pp),
        "--context-parallel-size", str(layout.cp),
        "--expert-model-parallel-size", str(layout.ep),
    ]  # fmt: skip
    if candidate.model.is_moe:
        words += ["--expert-tensor-parallel-size", str(layout.etp or (1 if layout.ep > 1 else layout.tp))]
    if layout.has_sequence_parallel and layout.tp > 1:
        words.append("--sequence-parallel")
    if layout.num_virtual_stages > 1:
        words += ["--num-virtual-stages-per-pipeline-rank", str(layout.num_virtual_stages)]
    for flag, layers in (("first", layout.first_stage_layers), ("last", layout.last_stage_layers)):
        if layers is not None:
            words += [f"--decoder-{flag}-pipeline-num-layers", str(layers)]
    if layout.zero_stage == 1:
        words += ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
    return words


def _memory(candidate: Candidate) -> list[str]:
    precision, words = candidate.precision, list[str]()
    if precision.weights in ("bf16", "fp16"):
        words.append(f"--{precision.weights}")
    if precision.compute == "fp8":
        words += ["--fp8-format", "hybrid"]
    if precision.gradients != "fp32" and precision.weights == "bf16":
        words.append("--grad-reduce-in-bf16")
    if candidate.recompute is Recompute.FULL:
        every = str(candidate.recompute_every)
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", every]
    elif candidate.recompute is Recompute.SELECTIVE:
        modules = candidate.settings.recompute_modules
        words += ["--recompute-granularity", "selective", *(("--recompute-modules", *modules) if modules else ())]
    if candidate.offload.optimizer:
        words += ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    words += ["--optimizer", _OPTIMIZERS.get(candidate.optimizer, "adam")]
    words += ["--attention-backend", "auto" if candidate.settings.has_flash_attention else "unfused"]
    return [*words, "--cross-entropy-loss-fusion"] if candidate.settings.has_fused_loss else words


def _run(candidate: Candidate) -> list[str]:
    workload = training_of(candidate)
    words = [
        "--micro-batch-size", str(candidate.micro_batch_size),
        "--global-batch-size", str(workload.global_batch_size),
        "--train-iters", str(num_steps(candidate) or _STEPS_WITHOUT_END),
        "--lr", f"{LEARNING_RATES[workload.kind]:g}",
        "--lr-decay-style", "cosine",
        "--lr-warmup-fraction", "0.03",
        "--clip-grad", "1.0",
        "--seed", "42",
        "--data-path", "data/text_document",
        "--split", "99,1,0",
        "--save", "run",
        "--save-interval", "500",
        "--ckpt-format", "torch_dist",
        "--log-interval", "1",
    ]  # fmt: skip
    if workload.kind is TrainingKind.FULL:  # read from the converted weights first, from its own checkpoints later
        return [*words, "--load", "run", "--pretrained-checkpoint", "checkpoint", "--use-checkpoint-args"]
    return [*words, "--load", "run"]


def launch(candidate: Candidate) -> Launch:
    """Return the command line."""
    argv = [
        *torchrun_words(candidate), PROGRAM,
        *_model(candidate), *_layout(candidate), *_memory(candidate), *_run(candidate),
    ]  # fmt: skip
    return Launch(argv=tuple(argv), env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
