"""What a checkpoint's own `quantization_config` says of its weights: the format, and which modules it leaves alone.

References
----------
.. [1] huggingface/transformers 5.24.0, `utils/quantization_config.py`: the methods and their fields.
.. [2] vllm-project/compressed-tensors, `quant_args.py` and `quant_config.py`: groups, strategies, ignored modules.
.. [3] NVIDIA TensorRT Model Optimizer, `hf_quant_config.json`: `quant_algo`, `exclude_modules`, `quantized_layers`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from tonnage.model.hf.fields import Fields
from tonnage.model.types import Attention, CompressedAttention, LatentAttention, Layer, Moe, Quantization

# NVIDIA's names of algorithms -> names of formats
ALGORITHMS: Final = {
    "FP8": "fp8_tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel",
    "FP8_PB_WO": "fp8",
    "FP8_PB_REAL": "fp8",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "W4A16_MXFP4": "mxfp4",
    "W4A16_AWQ": "awq",
    "W4A8_AWQ": "awq",
    "INT4_AWQ": "awq",
    "W4A16": "int4",
    "W8A16": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "INT8_SQ": "int8",
}
_KEPT_MODULES: Final = (
    "modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules",
)  # fmt: skip
# modules without a matrix that any format takes: they need no mention
_NEVER_QUANTISED: Final = re.compile(
    r"(norm|bias|embed_tokens|\bgate|router|rotary_emb\S*|conv1d)(\.weight)?\*?$|vision|visual|audio|projector|\bmtp"
)
_LAYER: Final = re.compile(r"^(.*?\blayers)\.(\d+)(\.?)(.*)$")
# parts of modules' names -> components, the first that matches
_COMPONENTS: Final = (
    ("shared_expert", "shared_experts"),
    ("experts", "experts"),
    ("linear_attn", "linear_attn_ssm"),
    ("mamba", "linear_attn_ssm"),
    ("attn", "attention"),
    ("attention", "attention"),
    ("mixer.in_proj", "linear_attn_ssm"),
    ("mixer.out_proj", "linear_attn_ssm"),
    ("mixer.up_proj", "mlp"),
    ("mixer.down_proj", "mlp"),
    ("mixer.", "attention"),
    ("lm_head", "lm_head"),
    ("mlp", "mlp"),
    ("feed_forward", "mlp"),
)
_MOST_MODULES: Final = 1_000_000
_SOFTMAX: Final = (Attention, LatentAttention, CompressedAttention)


def quantization_from_config(f: Fields, layers: Sequence[Layer] = ()) -> tuple[Quantization | None, str | None]:
    """Return the format of the weights on disk, None where they are in the model's own type; and a warning or None."""
    for config in (f.config, f.config.get("text_config")):
        if not isinstance(config, Mapping):
            continue
        for name in ("quantization_config", "compression_config"):
            value = cast("Mapping[str, Any]", config).get(name)
            if value is None:
                continue
            if not isinstance(value, Mapping):
                raise f.refuse(name, "is not an object")
            found = quantization_from_mapping(cast("Mapping[str, Any]", value), layers)
            if found is None:
                method = str(cast("Mapping[str, Any]", value).get("quant_method"))[:40]
                return None, f"the checkpoint's quantisation '{method}' is not known: weights counted in their own type"
            return with_expert_type(found, f), None
    return None, None


def with_expert_type(found: Quantization, f: Fields) -> Quantization:
    """Return DeepSeek-V4's quantisation: FP8, and FP4 for the experts where `expert_dtype` says so."""
    if f.word("expert_dtype") != "fp4" or found.other_schemes:
        return found
    return Quantization(
        scheme=found.scheme,
        unquantized=found.unquantized,
        group_size=found.group_size,
        other_schemes=(("experts", "mxfp4"),),
    )


def quantization_from_mapping(config: Mapping[str, Any], layers: Sequence[Layer] = ()) -> Quantization | None:
    """Return what a `quantization_config`, or the `quantization` of an hf_quant_config.json, says.

    Parameters
    ----------
    config : mapping
        The parsed object.
    layers : sequence of Layer
        The model's layers: with them, what is left alone in every layer that has it is said once.

    Returns
    -------
    Quantization or None
        None for a method that is not known.
    """
    nested = config.get("quantization")
    if isinstance(nested, Mapping):
        config = cast("Mapping[str, Any]", nested)
    scheme, group_size, others = _scheme(config)
    if scheme is None:
        return None
    # beside an FP8 checkpoint whose experts are of another format, `ignore` lists what has not that other format
    names = _KEPT_MODULES[:1] if "experts" in others else _KEPT_MODULES
    kept = condensed((_strings(config.get(key)) for key in names), layers_by_component(layers))
    return Quantization(
        scheme=scheme,
        unquantized=kept,
        group_size=group_size,
        other_schemes=tuple(
            sorted((name, other) for name, other in others.items() if other != scheme or name == "lm_head")
        ),
    )


def _scheme(config: Mapping[str, Any]) -> tuple[str | None, int | None, dict[str, str]]:
    """Return the main format, its group size, and the formats of components that have another."""
    method = _word(config, "quant_method").lower().replace("_", "-")
    algorithm = _word(config, "quant_algo").upper()
    group_size, bits = _whole(config, "group_size"), _whole(config, "bits") or _whole(config, "w_bit")
    experts = ALGORITHMS.get(_word(config, "moe_quant_algo").upper())
    others = {"experts": experts} if experts else {}
    if algorithm == "MIXED_PRECISION" and not (experts and method == "fp8"):
        return _mixed(config)
    if method == "fp8":
        return ("fp8" if config.get("weight_block_size") else "fp8_tensor"), None, others
    if algorithm:
        return ALGORITHMS.get(algorithm), group_size, others
    if method in ("compressed-tensors", "modelopt", "") and isinstance(config.get("config_groups"), Mapping):
        return _grouped(config)
    if method == "bitsandbytes":
        return _bitsandbytes(config), 64 if config.get("load_in_4bit") else None, {}
    by_method = {
        "mxfp4": "mxfp4",
        "fbgemm-fp8": "fp8_channel",
        "eetq": "int8",
        "awq": "awq" if bits in (4, None) else None,
        "gptq": {4: "gptq", 8: "int8"}.get(bits or 4),
        "auto-round": {4: "gptq", 8: "int8"}.get(bits or 4),
        "quanto": {"int8": "int8", "int4": "int4", "float8": "fp8_tensor"}.get(_word(config, "weights")),
    }
    return by_method.get(method), group_size, {}


def _bitsandbytes(config: Mapping[str, Any]) -> str | None:
    if config.get("load_in_4bit"):
        return "nf4_double" if config.get("bnb_4bit_use_double_quant") else "nf4"
    return "int8" if config.get("load_in_8bit") else None


def _grouped(config: Mapping[str, Any]) -> tuple[str | None, int | None, dict[str, str]]:
    """Return the format of compressed-tensors' groups: the one for all linear layers first, else the largest."""
    groups = cast("Mapping[str, object]", config["config_groups"]).values()
    objects = [cast("Mapping[str, Any]", group) for group in groups if isinstance(group, Mapping)]
    ranked = sorted(objects, key=_reach)
    if not ranked:
        return None, None, {}
    main, group_size = _weights_scheme(ranked[0])
    others: dict[str, str] = {}
    for group in ranked[1:]:
        scheme, _ = _weights_scheme(group)
        for component in {component_of(name) for name in _strings(group.get("targets"))}:
            if scheme and component:
                others[component] = scheme
    return main, group_size, others


def _reach(group: Mapping[str, Any]) -> tuple[bool, int]:
    """Order groups by how much they take: all linear layers, then the longest list."""
    targets = _strings(group.get("targets"))
    return targets != ["Linear"], -len(targets)


def _weights_scheme(group: Mapping[str, Any]) -> tuple[str | None, int | None]:
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        return None, None
    fields = cast("Mapping[str, Any]", weights)
    bits, kind, group_size = _whole(fields, "num_bits"), _word(fields, "type"), _whole(fields, "group_size")
    if kind == "float" and bits == 8:
        return {"channel": "fp8_channel", "block": "fp8"}.get(_word(fields, "strategy"), "fp8_tensor"), group_size
    if kind == "float" and bits == 4:
        return ("nvfp4" if group_size == 16 else "mxfp4"), group_size
    if kind == "int" and bits == 8:
        return "int8", group_size
    if kind == "int" and bits == 4:
        if fields.get("symmetric") is False:
            return "awq", group_size
        return ("int4_g32" if group_size == 32 else "int4"), group_size
    return None, group_size


def _mixed(config: Mapping[str, Any]) -> tuple[str | None, int | None, dict[str, str]]:
    """Return the formats of a checkpoint that lists each layer's: the commonest of each component."""
    layers = config.get("quantized_layers")
    if not isinstance(layers, Mapping) or len(cast("Mapping[str, Any]", layers)) > _MOST_MODULES:
        return None, None, {}
    votes: dict[str, Counter[str]] = {}
    for name, entry in cast("Mapping[Any, Any]", layers).items():
        fields = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {"quant_algo": entry}
        scheme = ALGORITHMS.get(_word(fields, "quant_algo").upper())
        component = component_of(str(name))
        if scheme and component:
            votes.setdefault(component, Counter())[scheme] += 1
    if not votes:
        return None, None, {}
    chosen = {component: counts.most_common(1)[0][0] for component, counts in votes.items()}
    main = chosen.get("experts") or chosen.get("mlp") or next(iter(chosen.values()))
    everything = {"attention", "linear_attn_ssm", "mlp", "experts", "shared_experts"}
    return main, None, chosen | dict.fromkeys(everything - set(chosen), "bf16")


def component_of(module: str) -> str | None:
    """Return the component that a module's weights count under, by its name.

    >>> component_of("model.layers.3.mlp.experts.7.up_proj"), component_of("model.layers.0.self_attn.q_proj")
    ('experts', 'attention')
    """
    return next((component for part, component in _COMPONENTS if part in module), None)


def layers_by_component(layers: Sequence[Layer]) -> dict[str, set[int]]:
    """Return which layers have a component."""
    found: dict[str, set[int]] = {}
    for index, layer in enumerate(layers):
        names = {"attention" if isinstance(mixer, _SOFTMAX) else "linear_attn_ssm" for mixer in layer.mixers}
        for part in layer.feed_forwards:
            names |= {"experts"} if isinstance(part, Moe) else {"mlp"}
            if isinstance(part, Moe) and part.shared is not None:
                names.add("shared_experts")
        for name in names:
            found.setdefault(name, set()).add(index)
    return found


def condensed(lists: Iterable[list[str]], having: Mapping[str, set[int]] | None = None) -> tuple[str, ...]:
    """Return lists of modules left alone as few patterns: what holds in every layer that has it is said once.

    >>> condensed([["lm_head", "model.layers.0.self_attn*", "model.layers.1.self_attn*", "model.layers.1.mlp.gate"]])
    ('lm_head', 'model.layers.*.self_attn*')
    """
    named = dict.fromkeys(name for names in lists for name in names if not _NEVER_QUANTISED.search(name))
    whole: set[int] = set()
    by_suffix: dict[tuple[str, str, str], set[int]] = {}
    plain: list[str] = []
    for name in named:
        match = _LAYER.match(name)
        if match is None or name.startswith("re:"):
            plain.append(name)
            continue
        prefix, index, dot, suffix = match[1], int(match[2]), match[3], match[4]
        if suffix in ("", "*"):
            whole.add(index)
        by_suffix.setdefault((prefix, dot, suffix), set()).add(index)
    highest = max((max(indices) for indices in by_suffix.values()), default=-1)
    found = list(plain)
    for (prefix, dot, suffix), indices in by_suffix.items():
        wanted = (having or {}).get(component_of(suffix) or "", set(range(highest + 1)))
        if suffix not in ("", "*") and wanted <= indices | whole:
            found.append(f"{prefix}.*{dot}{suffix}")
        else:
            found.extend(f"{prefix}.{index}{dot}{suffix}" for index in sorted(indices))
    return tuple(found)


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple) or len(cast("list[Any]", value)) > _MOST_MODULES:
        return []
    return [item for item in cast("list[Any]", value) if isinstance(item, str)]


def _word(config: Mapping[str, Any], name: str) -> str:
    value = config.get(name)
    return value if isinstance(value, str) else ""


def _whole(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
