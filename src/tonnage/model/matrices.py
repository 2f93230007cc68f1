"""Which weight matrices a model has: name, component and shape of each, layer by layer.

What formats quantise, what adapters attach to and what is sharded are matrices; biases, norms and other vectors are
what remains of a component's count. Names are transformers' names inside a layer; `gguf` is llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

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
from tonnage.nouns import noun

ATTENTION = "attention"
LINEAR_ATTENTION = "linear_attn_ssm"
MLP = "mlp"
EXPERTS = "experts"
ROUTER = "router"
SHARED_EXPERTS = "shared_experts"
SHARED_EXPERT_GATE = "shared_expert_gate"
EMBEDDING = "embedding"
LM_HEAD = "lm_head"
_PER_LAYER_WIDTH = 256  # of Gemma's per-layer embeddings, counted layer by layer


@noun
class Matrix:
    """`num` equal weight matrices of one layer: `rows` outputs, each made of `columns` inputs."""

    name: str
    component: str
    rows: int
    columns: int
    gguf: str
    num: int = 1
    is_linear: bool = True  # False: a convolution or state table, which no format quantises

    @property
    def num_parameters(self) -> int:
        """Weights in all of them."""
        return self.num * self.rows * self.columns


def _attention(part: Attention, hidden_size: int, has_fused_qkv: bool) -> Iterator[Matrix]:
    head, value_head = part.head_dim, part.value_head_dim or part.head_dim
    width = part.input_size or hidden_size
    source = part.source_width or width
    q_rows = part.num_heads * head * (2 if part.has_output_gate else 1)
    k_rows, v_rows = part.num_kv_heads * head, 0 if part.key_is_value else part.num_kv_heads * value_head
    if has_fused_qkv and part.stores_cache:
        yield _of("self_attn.qkv_proj", ATTENTION, q_rows + k_rows + v_rows, width, "attn_qkv")
    else:
        yield _of("self_attn.q_proj", ATTENTION, q_rows, width, "attn_q")
        if part.stores_cache:
            yield _of("self_attn.k_proj", ATTENTION, k_rows, source, "attn_k")
            if v_rows:
                yield _of("self_attn.v_proj", ATTENTION, v_rows, source, "attn_v")
    yield _of("self_attn.o_proj", ATTENTION, hidden_size, part.num_heads * value_head, "attn_output")
    yield _of("self_attn.g_proj", ATTENTION, part.num_head_gates, hidden_size, "attn_gate")
    if part.indexer is not None:
        index = part.indexer
        yield _of("self_attn.indexer.q_proj", ATTENTION, index.num_heads * index.head_dim, width, "indexer.attn_q")
        yield _of("self_attn.indexer.k_proj", ATTENTION, index.head_dim, width, "indexer.attn_k")


def _latent_attention(part: LatentAttention, hidden_size: int) -> Iterator[Matrix]:
    heads, rank = part.num_heads, part.kv_lora_rank
    q_rows = heads * (part.qk_nope_head_dim + part.qk_rope_head_dim)
    if part.q_lora_rank:
        yield _of("self_attn.q_a_proj", ATTENTION, part.q_lora_rank, hidden_size, "attn_q_a")
        yield _of("self_attn.q_b_proj", ATTENTION, q_rows, part.q_lora_rank, "attn_q_b")
    else:
        yield _of("self_attn.q_proj", ATTENTION, q_rows, hidden_size, "attn_q")
    yield _of("self_attn.kv_a_proj_with_mqa", ATTENTION, rank + part.qk_rope_head_dim, hidden_size, "attn_kv_a_mqa")
    yield _of("self_attn.kv_b_proj", ATTENTION, heads * (part.qk_nope_head_dim + part.v_head_dim), rank, "attn_kv_b")
    yield _of("self_attn.o_proj", ATTENTION, hidden_size, heads * part.v_head_dim, "attn_output")
    yield _of("self_attn.g_proj", ATTENTION, part.num_head_gates, hidden_size, "attn_gate")
    if part.indexer:
        heads, head = part.indexer.num_heads, part.indexer.head_dim
        source = part.q_lora_rank or hidden_size
        yield _of("self_attn.indexer.wq_b", ATTENTION, heads * head, source, "indexer.attn_q_b")
        yield _of("self_attn.indexer.wk", ATTENTION, head, hidden_size, "indexer.attn_k")
        yield _of("self_attn.indexer.weights_proj", ATTENTION, heads, hidden_size, "indexer.proj")


def _compressed_attention(part: CompressedAttention, hidden_size: int) -> Iterator[Matrix]:
    width, head, rank = part.num_heads * part.head_dim, part.head_dim, part.q_lora_rank
    groups, series = part.num_output_groups, 2 if part.has_overlap else 1
    yield _of("self_attn.q_a_proj", ATTENTION, rank, hidden_size, "attn_q_a")
    yield _of("self_attn.q_b_proj", ATTENTION, width, rank, "attn_q_b")
    yield _of("self_attn.kv_proj", ATTENTION, head, hidden_size, "attn_kv")
    yield _of("self_attn.o_a_proj", ATTENTION, groups * part.o_lora_rank, width // groups, "attn_output_a")
    yield _of("self_attn.o_b_proj", ATTENTION, hidden_size, groups * part.o_lora_rank, "attn_output_b")
    if part.compress_tokens is not None:
        yield _of("self_attn.compressor.kv_proj", ATTENTION, series * head, hidden_size, "attn_compress_kv")
        yield _of("self_attn.compressor.gate_proj", ATTENTION, series * head, hidden_size, "attn_compress_gate")
    if part.indexer is not None:
        index = part.indexer
        rows = index.num_heads * index.head_dim
        yield _of("self_attn.compressor.indexer.q_b_proj", ATTENTION, rows, rank, "indexer.attn_q_b")
        yield _of("self_attn.compressor.indexer.kv_proj", ATTENTION, series * index.head_dim, hidden_size, "indexer.kv")
        yield _of(
            "self_attn.compressor.indexer.gate_proj", ATTENTION, series * index.head_dim, hidden_size, "indexer.gate"
        )
        yield _of("self_attn.compressor.indexer.weights_proj", ATTENTION, index.num_heads, hidden_size, "indexer.proj")


def _low_rank(name: str, rows: int, rank: int | None, columns: int, gguf: str) -> Iterator[Matrix]:
    if rank is None:
        yield _of(name, LINEAR_ATTENTION, rows, columns, gguf)
    else:
        yield _of(f"{name}_a", LINEAR_ATTENTION, rank, columns, f"{gguf}_a")
        yield _of(f"{name}_b", LINEAR_ATTENTION, rows, rank, f"{gguf}_b")


def _recurrent(part: Mixer, hidden_size: int) -> Iterator[Matrix]:
    if isinstance(part, GatedDeltaNet):
        keys, values = part.num_key_heads * part.key_head_dim, part.num_value_heads * part.value_head_dim
        yield _of("linear_attn.in_proj_qkv", LINEAR_ATTENTION, 2 * keys + values, hidden_size, "attn_qkv")
        decay = keys if part.has_channel_decay else part.num_value_heads
        yield from _low_rank("linear_attn.in_proj_z", values, part.gate_rank, hidden_size, "attn_gate")
        yield _of("linear_attn.in_proj_b", LINEAR_ATTENTION, part.num_value_heads, hidden_size, "ssm_beta")
        yield from _low_rank("linear_attn.in_proj_a", decay, part.decay_rank, hidden_size, "ssm_alpha")
        yield _table("linear_attn.conv1d", 2 * keys + values, part.conv_kernel, "ssm_conv1d")
        yield _of("linear_attn.out_proj", LINEAR_ATTENTION, hidden_size, values, "ssm_out")
    elif isinstance(part, Mamba1):
        inner = part.inner_size
        yield _of("mixer.in_proj", LINEAR_ATTENTION, 2 * inner, hidden_size, "ssm_in")
        yield _table("mixer.conv1d", inner, part.conv_kernel, "ssm_conv1d")
        yield _of("mixer.x_proj", LINEAR_ATTENTION, part.dt_rank + 2 * part.state_size, inner, "ssm_x")
        yield _of("mixer.dt_proj", LINEAR_ATTENTION, inner, part.dt_rank, "ssm_dt")
        yield _table("mixer.A_log", inner, part.state_size, "ssm_a")
        yield _of("mixer.out_proj", LINEAR_ATTENTION, hidden_size, inner, "ssm_out")
    elif isinstance(part, Mamba2):
        inner = part.inner_size or part.num_heads * part.head_dim
        channels = inner + 2 * part.num_groups * part.state_size
        yield _of("mixer.in_proj", LINEAR_ATTENTION, inner + channels + part.num_heads, hidden_size, "ssm_in")
        yield _table("mixer.conv1d", channels, part.conv_kernel, "ssm_conv1d")
        yield _of("mixer.out_proj", LINEAR_ATTENTION, hidden_size, inner, "ssm_out")
    elif isinstance(part, ShortConvolution):
        yield _of("conv.in_proj", LINEAR_ATTENTION, 3 * part.channels, hidden_size, "shortconv.in_proj")
        yield _table("conv.conv", part.channels, part.conv_kernel, "shortconv.conv")
        yield _of("conv.out_proj", LINEAR_ATTENTION, hidden_size, part.channels, "shortconv.out_proj")
    elif isinstance(part, LightningAttention):
        width = part.num_heads * part.head_dim
        yield _of("self_attn.qkv_proj", ATTENTION, 3 * width, hidden_size, "attn_qkv")
        yield _of("self_attn.output_gate", ATTENTION, width, hidden_size, "attn_gate")
        yield _of("self_attn.out_proj", ATTENTION, hidden_size, width, "attn_output")


def _mlp(part: Mlp, hidden_size: int, prefix: str, component: str, suffix: str) -> Iterator[Matrix]:
    width, inputs = part.intermediate_size, part.input_size or hidden_size
    if part.is_gated:
        yield _of(f"{prefix}.gate_proj", component, width, inputs, f"ffn_gate{suffix}")
    yield _of(f"{prefix}.up_proj", component, width, inputs, f"ffn_up{suffix}")
    yield _of(f"{prefix}.down_proj", component, hidden_size, width, f"ffn_down{suffix}")


def _moe(part: Moe, hidden_size: int, mlp_component: str) -> Iterator[Matrix]:
    yield Matrix(
        name="mlp.gate", component=ROUTER, rows=part.num_experts + part.num_identity_experts, columns=hidden_size, gguf="ffn_gate_inp",
        is_linear=False,
    )  # fmt: skip
    width, num, stream = part.expert_size, part.num_experts, part.expert_input_size or hidden_size
    if part.is_gated:
        yield _of("mlp.experts.gate_proj", EXPERTS, width, stream, "ffn_gate_exps", num=num)
    yield _of("mlp.experts.up_proj", EXPERTS, width, stream, "ffn_up_exps", num=num)
    yield _of("mlp.experts.down_proj", EXPERTS, stream, width, "ffn_down_exps", num=num)
    if part.expert_input_size:
        yield _of("mlp.fc1_latent_proj", mlp_component, stream, hidden_size, "ffn_latent_down")
        yield _of("mlp.fc2_latent_proj", mlp_component, hidden_size, stream, "ffn_latent_up")
    if part.shared:
        yield from _mlp(part.shared, hidden_size, "mlp.shared_experts", SHARED_EXPERTS, "_shexp")


def _beside_mlp(matrices: Iterable[Matrix]) -> list[Matrix]:
    """Return a mixture's matrices under the names they have where the layer's `mlp` is another feed-forward."""
    return [replace(matrix, name=matrix.name.removeprefix("mlp.")) for matrix in matrices]


def _of(name: str, component: str, rows: int, columns: int, gguf: str, *, num: int = 1) -> Matrix:
    return Matrix(name=name, component=component, rows=rows, columns=columns, gguf=gguf, num=num)


def _table(name: str, rows: int, columns: int, gguf: str) -> Matrix:
    return Matrix(name=name, component=LINEAR_ATTENTION, rows=rows, columns=columns, gguf=gguf, is_linear=False)


@lru_cache(maxsize=1024)
def layer_matrices(layer: Layer, hidden_size: int, has_fused_qkv: bool = False) -> tuple[Matrix, ...]:
    """Return the weight matrices of one layer.

    >>> from tonnage.model.types import Attention, Layer, Mlp
    >>> layer = Layer(mixers=(Attention(num_heads=4, num_kv_heads=2, head_dim=8),),
    ...               feed_forwards=(Mlp(intermediate_size=96),))
    >>> [(m.name, m.rows, m.columns) for m in layer_matrices(layer, 32)][1:5]
    [('self_attn.k_proj', 16, 32), ('self_attn.v_proj', 16, 32), ('self_attn.o_proj', 32, 32), ('mlp.gate_proj', 96, 32)]
    """
    if layer.is_repeat:
        return ()
    found: list[Matrix] = []
    for mixer in layer.mixers:
        inside = list(_mixer(mixer, hidden_size, has_fused_qkv))
        found += _as(layer.mixer_component, inside) if layer.mixer_component else inside
    for part in layer.feed_forwards:
        if isinstance(part, Moe):
            experts = _moe(part, hidden_size, layer.mlp_component)
            found += _beside_mlp(experts) if any(isinstance(one, Mlp) for one in layer.feed_forwards) else experts
        else:
            found += _mlp(part, hidden_size, "mlp", layer.mlp_component, "")
    return tuple(matrix for matrix in found if matrix.num_parameters)


def _mixer(mixer: Mixer, hidden_size: int, has_fused_qkv: bool) -> Iterator[Matrix]:
    if isinstance(mixer, Attention):
        return _attention(mixer, hidden_size, has_fused_qkv)
    if isinstance(mixer, LatentAttention):
        return _latent_attention(mixer, hidden_size)
    if isinstance(mixer, CompressedAttention):
        return _compressed_attention(mixer, hidden_size)
    return _recurrent(mixer, hidden_size)


def _as(component: str, matrices: Iterable[Matrix]) -> list[Matrix]:
    return [replace(matrix, component=component) for matrix in matrices]


def outer_matrices(model: Model) -> tuple[Matrix, ...]:
    """Return the matrices outside the layers: the token embedding, and the head where it is not the same weights.

    What an embedding holds beyond its table and amounts to half a table is a second one, of Gemma's layers.
    """
    shape = model.vocab_size, model.hidden_size
    table, embedding = shape[0] * shape[1], model.other_parameters.get(EMBEDDING, 0)
    found: list[Matrix] = []
    if embedding >= table > 0:
        found.append(_of("embed_tokens", EMBEDDING, *shape, "token_embd"))
        if 2 * (embedding - table) > table:
            rows = (embedding - table) // _PER_LAYER_WIDTH
            found.append(_of("embed_tokens_per_layer", EMBEDDING, rows, _PER_LAYER_WIDTH, "per_layer_token_embd"))
    if not model.is_tied and model.other_parameters.get(LM_HEAD, 0) >= table > 0:
        found.append(_of("lm_head", LM_HEAD, *shape, "output"))
    return tuple(found)
