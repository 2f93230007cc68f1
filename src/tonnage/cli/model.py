"""`tonnage model`: what a model is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tonnage.cli.options import common, emit_json, note
from tonnage.cli.tables import style, table, wrap
from tonnage.messages import say
from tonnage.units import format_bytes, format_count

if TYPE_CHECKING:
    from tonnage.estimate.summary import ModelSummary
    from tonnage.model.types import FeedForward, Mixer

_DEFAULT_CONTEXT = 4096
_CONTEXTS = (4096, 32_768, 131_072, 262_144, 1_048_576)
# Formats that a person chooses among; --json has all of them.
_SHOWN = ("bf16", "fp8", "int8", "awq", "nf4", "mxfp4", "nvfp4", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m",
          "q2_k", "iq2_xxs")  # fmt: skip
_SOURCES = {"catalogue", "reconstructed", "config", "header"}


@click.command("model")
@click.argument("spec", metavar="MODEL")
@click.option(
    "--context", default=str(_DEFAULT_CONTEXT), metavar="N", help="Length that operations a token are counted at."
)
@common
def command(spec: str, context: str, is_json: bool, is_quiet: bool) -> None:
    """Say what a model is: parameters by component, active ones, cache, operations, weights in each format.

    MODEL is a name of the catalogue, a hub id, modelscope:ID, a folder, a config.json, a .gguf, a .safetensors or its
    index, or - for standard input. Only headers are read; nothing from a model is ever executed.

    \b
    tonnage model Qwen/Qwen3.5-35B-A3B
    tonnage model ./Qwen3-8B-Q4_K_M.gguf --json
    """
    from tonnage import api
    from tonnage.units import parse_count

    shown = None if is_json else _SHOWN
    summary = api.describe_model(spec, context_tokens=parse_count(context, "--context"), formats=shown)
    for warning in summary.model.warnings:
        note(say("model.warning", text=warning), is_quiet=is_quiet)
    if is_json:
        emit_json(to_json(summary))
    else:
        print("\n".join(to_lines(summary)))


def to_json(summary: ModelSummary) -> dict[str, Any]:
    """Return the object that --json prints."""
    model, cache = summary.model, summary.cache
    return {
        "name": model.name,
        "family": model.family or None,
        "num_layers": model.num_layers or None,
        "hidden_size": model.hidden_size or None,
        "vocab_size": model.vocab_size or None,
        "max_position_tokens": model.max_position_tokens,
        "is_moe": "experts" in summary.parameters.by_component,
        "parameters": {
            "total": summary.parameters.total,
            "text": summary.parameters.text,
            "active": summary.active,
            "active_without_embedding": summary.active_without_embedding,
            "by_component": summary.parameters.by_component,
        },
        "cache": {
            "bytes_per_token": None if cache is None else round(cache.bytes_per_token),
            "window_bytes_per_token": None
            if cache is None
            else {str(window): round(kept) for window, kept in cache.window_bytes_per_token.items()},
            "state_bytes_per_sequence": None if cache is None else round(cache.state_bytes_per_sequence),
        },
        "flops": {
            "forward_per_token": None
            if summary.forward_flop_per_token is None
            else round(summary.forward_flop_per_token),
            "context_tokens": summary.context_tokens,
        },
        "weights_bytes": dict(summary.weights_bytes),
        "checkpoint": {"format": summary.checkpoint_format, "bytes": summary.checkpoint_bytes},
        "source": model.source or None,
        "status": model.status,
        "warnings": list(model.warnings),
    }


def to_lines(summary: ModelSummary) -> list[str]:
    """Return what a person reads."""
    return [
        *_head(summary),
        "",
        *_parameters(summary),
        "",
        *_cache(summary),
        *_flops(summary),
        "",
        *_weights(summary),
    ]


def _head(summary: ModelSummary) -> list[str]:
    model = summary.model
    title = style(model.name, "bold") + (f"  {model.family}" if model.family else "")
    facts = say("model.shape", layers=model.num_layers or "?", hidden=model.hidden_size, vocabulary=model.vocab_size)
    if model.max_position_tokens:
        facts += " · " + say("model.context", tokens=model.max_position_tokens)
    status = model.status if model.status in _SOURCES else "config"
    lines = [title, "  " + facts, *(f"  {kind}" for kind in _kinds(summary))]
    return [*lines, style("  " + say(f"model.source_{status}", source=model.source or "-"), "dim")]


def _kinds(summary: ModelSummary) -> list[str]:
    """Describe the different mixers and feed-forwards with how many layers have each."""
    from collections import Counter

    mixers: Counter[Mixer] = Counter()
    feed_forwards: Counter[FeedForward] = Counter()
    for layer, times in summary.model.groups():
        for mixer in layer.mixers:
            mixers[mixer] += times
        for part in layer.feed_forwards:
            feed_forwards[part] += times
    described = [_mixer(mixer, times) for mixer, times in mixers.items()]
    described += [_feed_forward(part, times) for part, times in feed_forwards.items()]
    return list(dict.fromkeys(described))[:8]


def _mixer(mixer: Mixer, times: int) -> str:
    from tonnage.model.types import Attention, GatedDeltaNet, LatentAttention, LightningAttention, ShortConvolution

    match mixer:
        case Attention():
            window = mixer.window_tokens or mixer.chunk_tokens
            more: dict[str, Any] = {"times": times, "heads": mixer.num_heads, "kv_heads": mixer.num_kv_heads}
            return say("model.kind_window", window=window, **more) if window else say("model.kind_attention", **more)
        case LatentAttention():
            return say("model.kind_latent", times=times, rank=mixer.kv_lora_rank, heads=mixer.num_heads)
        case GatedDeltaNet():
            return say("model.kind_delta", times=times)
        case ShortConvolution():
            return say("model.kind_convolution", times=times)
        case LightningAttention():
            return say("model.kind_lightning", times=times)
        case _:
            return say("model.kind_mamba", times=times)


def _feed_forward(part: FeedForward, times: int) -> str:
    from tonnage.model.types import Mlp

    if isinstance(part, Mlp):
        return say("model.kind_mlp", times=times, width=part.intermediate_size)
    name = "kind_moe_shared" if part.shared else "kind_moe"
    return say(f"model.{name}", times=times, experts=part.num_experts, top_k=part.top_k)


def _parameters(summary: ModelSummary) -> list[str]:
    counts, total = summary.parameters, summary.parameters.total
    rows = [
        (say(f"model.{name}"), f"{number:,}", f"{100 * number / total:.1f} %")
        for name, number in sorted(counts.by_component.items(), key=lambda item: -item[1])
    ]
    rows.append((say("model.total"), f"{total:,}", format_count(total)))
    is_moe = "experts" in counts.by_component
    if is_moe:
        rows.append(_row("active", summary.active))
    if is_moe and summary.active_without_embedding:
        rows.append(_row("active_without_embedding", summary.active_without_embedding))
    lines = table((say("model.parameters"), "", ""), rows, right=(1, 2), indent="  ")
    if summary.model.is_tied:
        lines.append("  " + say("model.tied"))
    if is_moe and summary.active:
        text = say("model.moe", total=format_count(total), active=format_count(summary.active))
        lines += ["", *wrap(text, indent="  ")]
    return lines


def _row(name: str, number: int | None) -> tuple[str, str, str]:
    if number is None:
        return say(f"model.{name}"), say("model.active_unknown"), ""
    return say(f"model.{name}"), f"{number:,}", format_count(number)


def _cache(summary: ModelSummary) -> list[str]:
    cache = summary.cache
    lines = [style("  " + say("model.cache"), "dim")]
    if cache is None:
        return [*lines, "  " + say("model.unknown_cache")]
    parts = [say("model.cache_growing", size=format_bytes(cache.bytes_per_token))] if cache.bytes_per_token else []
    parts += [
        say("model.cache_window", size=format_bytes(kept), window=window)
        for window, kept in sorted(cache.window_bytes_per_token.items())
    ]
    if cache.state_bytes_per_sequence:
        parts.append(say("model.cache_state", size=format_bytes(cache.state_bytes_per_sequence)))
    longest = summary.model.max_position_tokens or _CONTEXTS[2]
    contexts = sorted({n for n in _CONTEXTS if n < longest} | {min(longest, _CONTEXTS[-1]), summary.context_tokens})
    rows = [(say("model.cache_at", tokens=n), format_bytes(cache.bytes_at(n))) for n in contexts]
    return [*lines, *(f"  {part}" for part in parts), *table(("", ""), rows, right=(0, 1), indent="    ")[1:]]


def _flops(summary: ModelSummary) -> list[str]:
    if summary.forward_flop_per_token is None:
        return []
    flop = f"{summary.forward_flop_per_token / 1e9:,.2f} GFLOP"
    text = say("model.flops_forward", flop=flop, tokens=summary.context_tokens)
    return ["", style("  " + say("model.flops"), "dim"), "  " + text]


def _weights(summary: ModelSummary) -> list[str]:
    from tonnage.estimate.weights import FORMATS

    own, counts = summary.checkpoint_format, summary.parameters
    names = list(summary.weights_bytes)
    rows: list[tuple[str, str, str, str]] = []
    for name in sorted(names, key=lambda one: -summary.weights_bytes[one]):
        stored = summary.weights_bytes[name]
        is_own = name == own and (summary.checkpoint_bytes is not None or summary.model.quantization is not None)
        mark = say("model.is_checkpoint") if is_own else ""
        weights = counts.text if FORMATS[name].kind == "gguf" else counts.total
        rows.append((name, f"{8 * stored / weights:.2f}", f"{stored / 2**30:,.1f}", mark))
    header = (say("model.weights"), say("model.bits"), say("model.gib"), "")
    lines = table(header, rows, right=(1, 2), indent="  ")
    if summary.model.encoder and any(name.startswith(("q", "iq")) for name in names):
        size = format_bytes(2 * summary.model.encoder.num_parameters)
        lines += wrap(say("model.gguf_note", size=size), indent="  ")
    return lines
