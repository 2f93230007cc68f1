"""A `Model` in a weight format -> `ServingShape`; a shape and a placement -> what each device and the host hold."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from tonnage.estimate.serving import CacheGroup, Held, ServingShape, StateGroup
from tonnage.estimate.weights import weights_bytes
from tonnage.model.matrices import EXPERTS, ROUTER, Matrix, layer_matrices
from tonnage.model.types import (
    Attention,
    CompressedAttention,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Mlp,
    Model,
    Moe,
    ShortConvolution,
)
from tonnage.units import Count

__all__ = ["held", "resized", "serving_shape"]

# Matrices that every tensor-parallel rank keeps whole: the router, the down-projections of latent attention and the
# selector (vllm/model_executor/models/deepseek_v2.py, ReplicatedLinear).
_REPLICATED: Final = frozenset({
    "mlp.gate", "self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.indexer.wq_b", "self_attn.indexer.wk",
    "self_attn.indexer.weights_proj",
})  # fmt: skip


_SHAPES: Final[dict[tuple[int, str], tuple[Model, ServingShape]]] = {}  # the model is kept so that its id stays its own
_MOST_SHAPES: Final = 256


def serving_shape(model: Model, weights_format: str) -> ServingShape:
    """Cut a model in one weight format the way that devices, hosts and stages share it."""
    key = id(model), weights_format
    if key not in _SHAPES:
        if len(_SHAPES) >= _MOST_SHAPES:
            del _SHAPES[next(iter(_SHAPES))]
        _SHAPES[key] = model, _shape(model, weights_format)
    return _SHAPES[key][1]


def _shape(model: Model, weights_format: str) -> ServingShape:
    component_bytes = dict(weights_bytes(model, weights_format))
    matrices = {layer: layer_matrices(layer, model.hidden_size) for layer, _ in model.groups()}
    totals: dict[str, float] = {}
    for layer, count in model.groups():
        for matrix in matrices[layer]:
            totals[matrix.component] = totals.get(matrix.component, 0.0) + count * matrix.num_parameters
    scale = {name: component_bytes.pop(name, 0.0) / total for name, total in totals.items() if total}
    norms = component_bytes.pop("norm", 0.0) / max(model.num_layers, 1)
    embedding = component_bytes.pop("embedding", 0.0)
    head = component_bytes.pop("lm_head", 0.0)
    encoder = component_bytes.pop("vision_audio", 0.0)
    parts = {layer: _layer_parts(matrices[layer], layer, scale, norms) for layer in matrices}
    fused = {layer: _fused_bytes(matrices[layer], scale) for layer in matrices}
    rows = [parts[layer] for layer in model.layers]
    moes = [part for layer, _ in model.groups() for part in layer.feed_forwards if isinstance(part, Moe)]
    mlps = [part for layer, _ in model.groups() for part in layer.feed_forwards if isinstance(part, Mlp)]
    attentions = [m for layer, _ in model.groups() for m in layer.mixers if isinstance(m, Attention | LatentAttention)]
    matrix_total = sum(totals.values())
    return ServingShape(
        name=model.name,
        family=model.family,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        num_heads=max((mixer.num_heads for mixer in attentions), default=1),
        rotary_bytes=_rotary_bytes(model),
        tensor_bytes=tuple(t for layer in model.layers for t in fused[layer]),
        latent_up_parameters=tuple(_latent_up_parameters(layer) for layer in model.layers),
        split_bytes=tuple(row[0] for row in rows),
        replicated_bytes=tuple(row[1] for row in rows),
        expert_bytes=tuple(row[2] for row in rows),
        matrix_parameters=tuple(row[3] for row in rows),
        expert_parameters=tuple(row[4] for row in rows),
        embedding_bytes=embedding,
        head_bytes=embedding if model.is_tied else head,
        head_parameters=float(model.vocab_size * model.hidden_size),
        is_tied=model.is_tied,
        encoder_bytes=encoder,
        other_bytes=sum(component_bytes.values()),
        num_experts=max((moe.num_experts for moe in moes), default=0),
        top_k=max((moe.top_k for moe in moes), default=0),
        max_expert_size=max((moe.expert_size for moe in moes), default=0),
        max_intermediate_size=max((mlp.intermediate_size for mlp in mlps), default=0),
        cache_groups=_cache_groups(model),
        state_groups=_state_groups(model),
        bytes_per_parameter=(sum(scale[name] * totals[name] for name in scale) / matrix_total) if matrix_total else 2.0,
    )


def resized(shape: ServingShape, num_bytes: float) -> ServingShape:
    """Scale every weight so that all together take what the file takes: a file's own size wins over a recipe's."""
    key = "resized", num_bytes
    if key not in shape.cache:
        ratio = num_bytes / shape.weights_bytes
        shape.cache[key] = replace(
            shape,
            split_bytes=tuple(ratio * b for b in shape.split_bytes),
            replicated_bytes=tuple(ratio * b for b in shape.replicated_bytes),
            expert_bytes=tuple(ratio * b for b in shape.expert_bytes),
            embedding_bytes=ratio * shape.embedding_bytes,
            head_bytes=ratio * shape.head_bytes,
            other_bytes=ratio * shape.other_bytes,
            encoder_bytes=ratio * shape.encoder_bytes,
            bytes_per_parameter=ratio * shape.bytes_per_parameter,
            cache={},
        )
    return shape.cache[key]


def _layer_parts(
    matrices: tuple[Matrix, ...], layer: Layer, scale: dict[str, float], norms: float
) -> tuple[float, float, float, float, float]:
    """Return bytes split, replicated and of experts, and parameters that a token multiplies, outside experts and in."""
    split, replicated, experts, active, expert_active = 0.0, norms, 0.0, 0.0, 0.0
    ratio = {moe.num_experts: moe.top_k / moe.num_experts for moe in layer.feed_forwards if isinstance(moe, Moe)}
    for matrix in matrices:
        num_bytes = matrix.num_parameters * scale[matrix.component]
        if matrix.component == EXPERTS:
            experts += num_bytes
            expert_active += matrix.num_parameters * ratio[matrix.num]
        elif matrix.component == ROUTER or matrix.name in _REPLICATED:
            replicated += num_bytes
            active += matrix.num_parameters
        else:
            split += num_bytes
            active += matrix.num_parameters
    return split, replicated, experts, active, expert_active


# Matrices that engines load into one tensor (vllm/model_executor/layers/linear.py, QKVParallelLinear,
# MergedColumnParallelLinear; fused_moe w13).
_FUSED: Final = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}


def _fused_bytes(matrices: tuple[Matrix, ...], scale: dict[str, float]) -> tuple[float, ...]:
    """Return the bytes of a layer's tensors that tensor parallelism divides, fused as engines fuse them."""
    found: dict[tuple[str, str], float] = {}
    for matrix in matrices:
        if matrix.component != ROUTER and matrix.name not in _REPLICATED:
            last = matrix.name.rpartition(".")[2]
            key = matrix.component, _FUSED.get(last, last)
            found[key] = found.get(key, 0.0) + matrix.num_parameters * scale[matrix.component]
    return tuple(found.values())


def _rotary_bytes(model: Model) -> float:
    """Return the table of sines and cosines, one a position: of the heads' rotary width, 2 bytes an element."""
    widths = [
        mixer.head_dim if isinstance(mixer, Attention) else mixer.qk_rope_head_dim
        for layer, _ in model.groups()
        for mixer in layer.mixers
        if isinstance(mixer, Attention | LatentAttention)
    ]
    return 2.0 * (model.max_position_tokens or 0) * max(widths, default=0)


def _latent_up_parameters(layer: Layer) -> float:
    """Return the weights that undo the latent, which engines with absorbed attention keep a second time."""
    return float(
        sum(
            mixer.kv_lora_rank * mixer.num_heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
            for mixer in layer.mixers
            if isinstance(mixer, LatentAttention)
        )
    )


def _cache_groups(model: Model) -> tuple[CacheGroup, ...]:
    found: dict[Mixer, list[int]] = {}
    for index, layer in enumerate(model.layers):
        for mixer in layer.mixers:
            is_kept = isinstance(mixer, LatentAttention | CompressedAttention)
            if is_kept or (isinstance(mixer, Attention) and not mixer.source_width):
                found.setdefault(mixer, []).append(index)
    groups: list[CacheGroup] = []
    for mixer, layers in found.items():
        if isinstance(mixer, LatentAttention):
            groups.append(_latent_group(mixer, tuple(layers)))
        elif isinstance(mixer, CompressedAttention):
            groups += _compressed_groups(mixer, tuple(layers))
        elif isinstance(mixer, Attention):
            value_dim = mixer.value_head_dim or mixer.head_dim
            groups.append(
                CacheGroup(
                    layers=tuple(layers),
                    num_kv_heads=mixer.num_kv_heads,
                    num_elements_per_head=mixer.head_dim + value_dim if mixer.stores_cache else 0,
                    num_index_elements=0,
                    window_tokens=mixer.window_tokens or mixer.chunk_tokens,
                    is_latent=False,
                    is_chunked=mixer.window_tokens is None and mixer.chunk_tokens is not None,
                    flop_per_pair=2.0 * mixer.num_heads * (mixer.head_dim + value_dim),
                    latent_flop_per_pair=2.0 * mixer.num_heads * (mixer.head_dim + value_dim),
                    num_query_heads=mixer.num_heads,
                )
            )
    return tuple(groups)


def _latent_group(mixer: LatentAttention, layers: tuple[int, ...]) -> CacheGroup:
    head = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
    return CacheGroup(
        layers=layers,
        num_kv_heads=1,
        num_elements_per_head=mixer.kv_lora_rank + mixer.qk_rope_head_dim,
        num_index_elements=mixer.indexer.head_dim if mixer.indexer else 0,
        window_tokens=mixer.window_tokens,
        is_latent=True,
        flop_per_pair=2.0 * mixer.num_heads * head,
        latent_flop_per_pair=2.0 * mixer.num_heads * (2 * mixer.kv_lora_rank + mixer.qk_rope_head_dim),
        num_selected_tokens=mixer.indexer.top_k if mixer.indexer else None,
        num_latent_values=mixer.kv_lora_rank,
        num_full_elements=mixer.num_heads * head,
        num_full_values=mixer.num_heads * mixer.v_head_dim,
    )


def _compressed_groups(mixer: CompressedAttention, layers: tuple[int, ...]) -> list[CacheGroup]:
    """Return DeepSeek-V4's window, and beside it the compressed entries as the share of one that each token fills."""
    pair_flop = 4.0 * mixer.num_heads * mixer.head_dim
    window = CacheGroup(
        layers=layers,
        num_kv_heads=1,
        num_elements_per_head=mixer.head_dim,
        num_index_elements=0,
        window_tokens=mixer.window_tokens,
        is_latent=False,
        flop_per_pair=pair_flop,
        latent_flop_per_pair=pair_flop,
    )
    if mixer.compress_tokens is None:
        return [window]
    share, indexer = 1.0 / mixer.compress_tokens, mixer.indexer
    entries = replace(
        window,
        window_tokens=None,
        num_elements_per_head=share * (mixer.head_dim + (indexer.head_dim if indexer else 0)),
        flop_per_pair=share * pair_flop,
        latent_flop_per_pair=share * pair_flop,
        num_selected_tokens=indexer.top_k * mixer.compress_tokens if indexer else None,
    )
    return [window, entries]


def _state_groups(model: Model) -> tuple[StateGroup, ...]:
    found: dict[Mixer, list[int]] = {}
    for index, layer in enumerate(model.layers):
        for mixer in layer.mixers:
            if not isinstance(mixer, Attention | LatentAttention | CompressedAttention):
                found.setdefault(mixer, []).append(index)
    groups: list[StateGroup] = []
    for mixer, layers in found.items():
        convolution, state = _state_elements(mixer)
        groups.append(
            StateGroup(
                layers=tuple(layers),
                num_convolution_elements=convolution,
                kernel_ratio=_kernel_ratio(mixer),
                num_state_elements=state,
                flop_per_token=6.0 * state,  # decay, rank-one update, read-out: three multiply-adds an element
            )
        )
    return tuple(groups)


def _kernel_ratio(mixer: Mixer) -> float:
    kernel = getattr(mixer, "conv_kernel", 0)
    return (kernel - 1) / kernel if kernel else 0.0


def _state_elements(mixer: Mixer) -> tuple[int, int]:
    """Return the elements of the convolution's and of the recurrent state of one sequence."""
    if isinstance(mixer, GatedDeltaNet):
        keys, values = mixer.num_key_heads * mixer.key_head_dim, mixer.num_value_heads * mixer.value_head_dim
        return (
            2 * keys + values
        ) * mixer.conv_kernel, mixer.num_value_heads * mixer.key_head_dim * mixer.value_head_dim
    if isinstance(mixer, Mamba2):
        inner = mixer.num_heads * mixer.head_dim
        return (inner + 2 * mixer.num_groups * mixer.state_size) * mixer.conv_kernel, inner * mixer.state_size
    if isinstance(mixer, Mamba1):
        return mixer.inner_size * mixer.conv_kernel, mixer.inner_size * mixer.state_size
    if isinstance(mixer, ShortConvolution):
        return mixer.channels * mixer.conv_kernel, 0
    assert isinstance(mixer, LightningAttention)
    return 0, mixer.num_heads * mixer.head_dim * mixer.head_dim


def held(
    shape: ServingShape, pp: Count, num_cpu_layers: Count, num_cpu_expert_layers: Count, *, counts_output: bool = False
) -> Held:
    """Return what the fullest stage holds when the first layers, or only their experts, stay on the host.

    The layers that remain are cut into `pp` runs as equal as whole layers allow. Numbers or columns.

    Parameters
    ----------
    shape : ServingShape
        The model.
    pp : numeric
        Runs of layers, one a device. [1]
    num_cpu_layers : numeric
        First layers that stay on the host whole. [1]
    num_cpu_expert_layers : numeric
        First layers whose routed experts stay on the host. [1]
    counts_output : bool
        Whether the output counts as one layer more when runs are cut.

    Returns
    -------
    Held
        Bytes and layers of the fullest device, of all devices, and of the host.

    Notes
    -----
    Derived.
    """
    if isinstance(pp, int) and isinstance(num_cpu_layers, int) and isinstance(num_cpu_expert_layers, int):
        return _held(shape, pp, num_cpu_layers, num_cpu_expert_layers, counts_output)
    import numpy as np  # noqa: PLC0415  only columns need it

    columns: list[Any] = list(np.broadcast_arrays(pp, num_cpu_layers, num_cpu_expert_layers))
    keys, inverse = np.unique(
        np.stack([np.asarray(column, dtype=np.int64).ravel() for column in columns]), axis=1, return_inverse=True
    )
    values = [_held(shape, int(p), int(layers), int(experts), counts_output) for p, layers, experts in keys.T]
    index = inverse.reshape(columns[0].shape)

    def gathered(name: str) -> Any:
        first: Any = getattr(values[0], name)
        if isinstance(first, tuple):
            width = len(getattr(values[0], name))
            return tuple(np.array([getattr(v, name)[i] for v in values])[index] for i in range(width))
        return np.array([getattr(v, name) for v in values])[index]

    return Held(**{f.name: gathered(f.name) for f in fields(Held)})


def _held(shape: ServingShape, pp: int, num_cpu_layers: int, num_cpu_expert_layers: int, counts_output: bool) -> Held:
    key = pp, num_cpu_layers, num_cpu_expert_layers, counts_output
    if key not in shape.cache:
        shape.cache[key] = _held_anew(
            shape, pp, min(num_cpu_layers, shape.num_layers), num_cpu_expert_layers, counts_output
        )
    return shape.cache[key]


def _held_anew(
    shape: ServingShape, pp: int, num_cpu_layers: int, num_cpu_expert_layers: int, counts_output: bool
) -> Held:
    num_layers = shape.num_layers
    on_device = range(num_cpu_layers, num_layers)
    first_expert = max(num_cpu_layers, num_cpu_expert_layers)

    def weight(layer: int) -> float:
        experts = shape.expert_bytes[layer] if layer >= first_expert else 0.0
        return shape.split_bytes[layer] + shape.replicated_bytes[layer] + experts

    stages = _cut(
        [weight(layer) for layer in on_device],
        pp,
        is_balanced=num_cpu_expert_layers > 0,
        num_more=int(counts_output and num_cpu_layers == 0),
    )
    starts = [num_cpu_layers + start for start in stages]
    runs = [range(a, b) for a, b in zip(starts, [*starts[1:], num_layers], strict=True)]
    sizes = [
        sum(weight(layer) for layer in run)
        + (shape.embedding_bytes if i == 0 else 0.0)
        + (shape.head_bytes if i == len(runs) - 1 else 0.0)
        for i, run in enumerate(runs)
    ]
    fullest = max(range(len(runs)), key=lambda i: sizes[i])
    run = runs[fullest]
    is_first, is_last = fullest == 0, fullest == len(runs) - 1
    host_dense = sum(shape.split_bytes[i] + shape.replicated_bytes[i] for i in range(num_cpu_layers))
    host_experts = sum(shape.expert_bytes[:first_expert])
    expert_run = range(max(run.start, first_expert), max(run.stop, first_expert))
    device_experts = range(first_expert, num_layers)
    embedding = shape.embedding_bytes if is_first and not (is_last and shape.is_tied) else 0.0

    def count(layers: tuple[int, ...], where: range) -> int:
        return sum(layer in where for layer in layers)

    host = range(num_cpu_layers)
    return Held(
        num_layers=len(run),
        split_bytes=sum(shape.split_bytes[i] for i in run),
        replicated_bytes=sum(shape.replicated_bytes[i] for i in run),
        expert_bytes=sum(shape.expert_bytes[i] for i in expert_run),
        embedding_bytes=embedding,
        head_bytes=shape.head_bytes if is_last else 0.0,
        latent_up_parameters=sum(shape.latent_up_parameters[i] for i in run),
        cache_layers=tuple(count(group.layers, run) for group in shape.cache_groups),
        state_layers=tuple(count(group.layers, run) for group in shape.state_groups),
        host_bytes=host_dense + host_experts,
        host_cache_layers=tuple(count(group.layers, host) for group in shape.cache_groups),
        host_state_layers=tuple(count(group.layers, host) for group in shape.state_groups),
        total_device_layers=len(on_device),
        total_split_bytes=sum(shape.split_bytes[i] for i in on_device),
        total_replicated_bytes=sum(shape.replicated_bytes[i] for i in on_device),
        total_expert_bytes=sum(shape.expert_bytes[i] for i in device_experts),
        host_dense_bytes=host_dense,
        host_expert_bytes=host_experts,
        device_matrix_parameters=sum(shape.matrix_parameters[i] for i in on_device),
        device_expert_parameters=sum(shape.expert_parameters[i] for i in device_experts),
        host_matrix_parameters=sum(shape.matrix_parameters[:num_cpu_layers]),
        host_expert_parameters=sum(shape.expert_parameters[:first_expert]),
        device_expert_layers=sum(shape.expert_bytes[i] > 0 for i in device_experts),
        host_expert_layers=sum(experts > 0 for experts in shape.expert_bytes[:first_expert]),
        total_cache_layers=tuple(count(group.layers, on_device) for group in shape.cache_groups),
        total_state_layers=tuple(count(group.layers, on_device) for group in shape.state_groups),
    )


def _cut(weights: list[float], num_runs: int, *, is_balanced: bool, num_more: int) -> list[int]:
    """Return where each run starts: equal numbers of layers, or the cut with the lightest heaviest run.

    What does not divide goes to the runs before the last, which has the output matrix (vllm/distributed/utils.py,
    `get_pp_indices`). With `num_more` things after the layers that count as layers too, layer i goes to run
    floor(i runs / all) (ggml-org/llama.cpp src/llama-model.cpp, `get_layer_buft_list`).
    """
    if num_runs == 1:
        return [0]
    if num_more and weights and not is_balanced:
        total = len(weights) + num_more
        return [min(-(-run * total // num_runs), len(weights)) for run in range(num_runs)]
    if not is_balanced or not weights:
        base, extra = divmod(len(weights), num_runs)
        sizes = [base + (num_runs - 1 - extra <= i < num_runs - 1) for i in range(num_runs)]
        return [sum(sizes[:i]) for i in range(num_runs)]
    low, high = max(weights), sum(weights)
    starts = [0]
    for _ in range(40):
        middle = (low + high) / 2
        tried = _starts_under(weights, middle)
        if len(tried) <= num_runs:
            high, starts = middle, tried
        else:
            low = middle
    return starts + [len(weights)] * (num_runs - len(starts))


def _starts_under(weights: list[float], limit: float) -> list[int]:
    starts, total = [0], 0.0
    for i, weight in enumerate(weights):
        if total + weight > limit and total > 0:
            starts.append(i)
            total = 0.0
        total += weight
    return starts
