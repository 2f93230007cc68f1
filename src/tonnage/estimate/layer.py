"""One transformer layer as a list of operations: flop, elements moved, elements kept for the backward pass, weights.

Memory and time of training both come from this list. Everything is counted per token (or per query–key pair) and per
whole layer; how a layout divides it is said by each operation's `split` and applied in `compose_training`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from tonnage.model.types import (
    Attention,
    CompressedAttention,
    FeedForward,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Mlp,
    Moe,
    NormKind,
    Norms,
    ShortConvolution,
)

# Traffic of one operator after another over that of one kernel, counted in modeling_llama.py of transformers 5.24.0.
# A 16-bit norm that is one kernel moves 4 B an element; cast (6), square (8), mean (4), scale (8), cast (6), weight (4).
_UNFUSED_NORM: Final = 9.0
# Two products, a negated half, a concatenation and a sum: ten elements moved where one kernel moves two.
_UNFUSED_ROTARY: Final = 5.0
_UNFUSED_GATE: Final = 5 / 3  # the activation reads and writes one element, the product moves three

_CHUNK_TOKENS: Final = 64  # chunk of the parallel form of linear attention; Mamba2 uses 256, its states count likewise
_MAMBA_CHUNK_TOKENS: Final = 256
# Activations, in tensors as wide as the inner size: (what backward needs of a plain one's input, what unfused code
# keeps beyond that). ReLU needs its result alone, which the next product keeps. Formulas of several operators keep
# each product's factors: transformers 5.24.0, `activations.py`, and `_apply_gate` of `GptOssExperts`.
_SCORE_BYTES: Final = 6  # of one pair in unfused attention: an fp32 probability and its 16-bit copy
_ONE_KERNEL: Final = (1, 0)
_ACTIVATIONS: Final = {
    "relu": (0, 0),
    "gelu_new": (1, 3),
    "quick_gelu": (1, 1),
    "clamped_swiglu": (1, 3),
    "xielu": (1, 3.5),
}


class Kind(StrEnum):
    """What limits an operation."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    SCAN = "scan"
    ELEMENTWISE = "elementwise"


class Split(StrEnum):
    """Which devices share an operation's width.

    `TENSOR`: tensor-parallel ranks. `SEQUENCE`: whole on every tensor-parallel rank, unless sequence parallelism cuts
    its tokens. `EXPERT`: weights over expert and expert-tensor ranks, tokens follow their experts. `ROUTED`: routed
    tokens at full width, which every expert-tensor rank gathers.
    """

    TENSOR = "tensor"
    SEQUENCE = "sequence"
    EXPERT = "expert"
    ROUTED = "routed"


class Width(StrEnum):
    """Bytes of one kept element: that of the compute type, of fp32, or of a one-byte mask."""

    COMPUTE = "compute"
    FP32 = "fp32"
    MASK = "mask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A tensor that forward keeps for backward, in elements per token.

    `is_weight_input`: kept only when the weights it meets are trained (or carry an adapter).
    `by`: kept by every implementation ("all"), only by fused kernels ("fused"), only by unfused code ("eager"), only by
    attention that makes its scores ("scores"), where one product makes queries, keys and values ("fused_qkv"), by
    attention that makes no scores and whose values are a view of a larger product ("views"), by
    activations of several operators ("formulas"), by norms weighed in fp32 beyond 16 bit ("norm_fp32"), or by the
    operation before, as its output ("other").
    """

    elements: float
    split: Split
    width: Width = Width.COMPUTE
    is_weight_input: bool = False
    is_dropout_mask: bool = False
    by: str = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Equal weight matrices of one operation, by the name that adapters target."""

    name: str
    num_inputs: int
    num_outputs: int
    count: int = 1

    @property
    def num_parameters(self) -> int:
        """Weights of all `count` matrices."""
        return self.num_inputs * self.num_outputs * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One step of a layer's forward pass, per token."""

    name: str
    kind: Kind
    split: Split
    matrices: tuple[Matrix, ...] = ()
    num_other_parameters: int = 0
    tokens_ratio: float = 1.0  # tokens computed per token of the batch: top_k for routed experts
    flop_per_token: float = 0.0
    flop_per_pair: float = 0.0  # per query–key pair that is really attended
    window_tokens: int | None = None
    moved_elements: float = 0.0  # read and written beside the matrices, elements of the compute type
    kept: tuple[Kept, ...] = ()
    score_elements_per_pair: float = 0.0  # heads: one probability a pair when the attention is not fused
    num_kernels: float = 1.0  # launched by unfused code
    unfused_ratio: float = 1.0  # traffic of one operator after another over that of one kernel
    is_row_parallel: bool = False  # its input is what tensor parallelism divides (and its output is summed)

    @property
    def num_parameters(self) -> int:
        """Weights of the operation."""
        return sum(m.num_parameters for m in self.matrices) + self.num_other_parameters


def _linear(
    name: str,
    split: Split,
    matrices: tuple[Matrix, ...],
    *,
    bias: int = 0,
    keeps_input: bool = True,
    is_row_parallel: bool = False,
) -> Operation:
    """Return a dense projection: matrices that share one input, which backward needs for their gradients."""
    width = matrices[0].num_inputs
    kept_split = Split.SEQUENCE if split is Split.TENSOR and not is_row_parallel else split
    kept = Kept(elements=width, split=kept_split, is_weight_input=True, by="all" if keeps_input else "other")
    return Operation(
        name=name,
        kind=Kind.MATMUL,
        split=split,
        matrices=matrices,
        num_other_parameters=bias,
        flop_per_token=2.0 * sum(m.num_parameters for m in matrices),
        kept=(kept,),
        num_kernels=len(matrices),
        is_row_parallel=is_row_parallel,
    )


def _norm(name: str, width: int, num_parameters: int, kind: NormKind = "rms", *, keeps_input: bool = True) -> Operation:
    """Return a normalisation.

    Mean and variance are one kernel in most software, which keeps its input. An unfused RMS keeps an fp32 copy of it
    and, for the weight's gradient, what the weight multiplies: 16 bit, or fp32 where the cast comes last. Unfused mean
    and variance keep the difference to the mean twice.
    """
    if kind == "layer":
        kept = (Kept(elements=width, split=Split.SEQUENCE),) if keeps_input else ()
    else:
        weighed = Width.COMPUTE if kind == "rms" else Width.FP32
        narrow = width if kind == "rms" else 0  # weighed in fp32 it would be twice as wide
        copies = 2 if kind == "layer_fp32" else 1
        kept = (
            Kept(elements=width, split=Split.SEQUENCE, by="fused"),
            Kept(elements=copies * width, split=Split.SEQUENCE, width=Width.FP32, by="eager"),
            Kept(elements=width, split=Split.SEQUENCE, width=weighed, is_weight_input=True, by="eager"),
            Kept(elements=narrow, split=Split.SEQUENCE, is_weight_input=True, by="norm_fp32"),
        )
    return Operation(
        name=name,
        kind=Kind.ELEMENTWISE,
        split=Split.SEQUENCE,
        num_other_parameters=num_parameters,
        moved_elements=2.0 * width,
        kept=kept,
        num_kernels=1 if kind == "layer" else 6,
        unfused_ratio=1.0 if kind == "layer" else _UNFUSED_NORM,
    )


def _residual(name: str, width: int) -> Operation:
    """Return the addition to the residual stream, with its dropout where there is one."""
    return Operation(
        name=name,
        kind=Kind.ELEMENTWISE,
        split=Split.SEQUENCE,
        moved_elements=3.0 * width,
        kept=(Kept(elements=width, split=Split.SEQUENCE, width=Width.MASK, is_dropout_mask=True),),
        num_kernels=1,
    )


def _softmax_attention(mixer: Attention, hidden: int, norm: NormKind) -> tuple[Operation, ...]:
    n, k, d = mixer.num_heads, mixer.num_kv_heads, mixer.head_dim
    dv = mixer.value_head_dim or d
    gate = 2 if mixer.has_output_gate else 1
    source = mixer.source_width or hidden
    matrices = [Matrix(name="q", num_inputs=hidden, num_outputs=gate * n * d)]
    if mixer.stores_cache or mixer.source_width:
        matrices.append(Matrix(name="k", num_inputs=source, num_outputs=k * d))
        if not mixer.key_is_value:
            matrices.append(Matrix(name="v", num_inputs=source, num_outputs=k * dv))
    if mixer.num_head_gates:
        matrices.append(Matrix(name="gate", num_inputs=hidden, num_outputs=mixer.num_head_gates))
    norms = {"none": 0, "head": 2 * d, "row": (n + k) * d}[mixer.qk_norm]
    bias = (n * d + k * (d + dv)) if mixer.has_qkv_bias else 0
    window = min((w for w in (mixer.window_tokens, mixer.chunk_tokens) if w), default=None)
    rotated = (n + k) * d
    weighed = Width.FP32 if norm == "rms_fp32" else Width.COMPUTE
    kept_norm = (
        (
            Kept(elements=rotated, split=Split.TENSOR, by="fused"),
            Kept(elements=rotated, split=Split.TENSOR, width=Width.FP32, by="eager"),
            Kept(elements=rotated, split=Split.TENSOR, width=weighed, is_weight_input=True, by="eager"),
        )
        if norms
        else ()
    )
    view = Kept(elements=rotated, split=Split.TENSOR, by="views" if mixer.is_fused_view else "fused_qkv")
    gates = (Kept(elements=n * dv, split=Split.TENSOR, by="eager"),) if mixer.has_output_gate else ()
    return (
        _linear("qkv", Split.TENSOR, tuple(matrices), bias=bias),
        Operation(
            name="rotary",
            kind=Kind.ELEMENTWISE,
            split=Split.TENSOR,
            num_other_parameters=norms + mixer.extra_parameters,
            moved_elements=2.0 * rotated,
            kept=(*kept_norm, view, *gates),
            num_kernels=10 + (12 if norms else 0),
            unfused_ratio=_UNFUSED_ROTARY,
        ),
        _attention_core(
            n, d, dv, (n * d, k * d, k * dv), window, n - k, mixer.num_sinks, bytes_of_scores=_score_bytes(mixer)
        ),
        _linear(
            "attention_output",
            Split.TENSOR,
            (Matrix(name="o", num_inputs=n * dv, num_outputs=hidden),),
            bias=hidden if mixer.has_output_bias else 0,
            keeps_input=mixer.has_output_gate,
            is_row_parallel=True,
        ),
    )


def _score_bytes(mixer: Attention) -> int:
    """Return what unfused attention keeps of one pair: softmax in fp32 with a copy or in 16 bit, and a cap's tanh."""
    return (_SCORE_BYTES if mixer.has_fp32_softmax else 2) + (2 if mixer.has_score_cap else 0)


def _attention_core(
    heads: int,
    key_width: int,
    value_width: int,
    kept_widths: tuple[int, ...],
    window: int | None,
    repeated: int = 0,
    sinks: int = 0,
    *,
    bytes_of_scores: int = _SCORE_BYTES,
) -> Operation:
    """Return the attention itself: it keeps its inputs, its output and one fp32 log-sum a head.

    Scores are counted in units of an fp32 softmax and its 16-bit copy.
    """
    return Operation(
        name="attention",
        kind=Kind.ATTENTION,
        split=Split.TENSOR,
        num_other_parameters=sinks,
        flop_per_pair=2.0 * heads * (key_width + value_width),
        window_tokens=window,
        moved_elements=float(sum(kept_widths) + heads * value_width),
        kept=(
            Kept(elements=sum(kept_widths) + heads * value_width, split=Split.TENSOR),
            Kept(elements=heads, split=Split.TENSOR, width=Width.FP32),
            Kept(elements=repeated * (key_width + value_width), split=Split.TENSOR, by="scores"),
        ),
        score_elements_per_pair=heads * bytes_of_scores / _SCORE_BYTES,
        num_kernels=4,
    )


def _latent_attention(mixer: LatentAttention, hidden: int) -> tuple[Operation, ...]:
    n, r, rope = mixer.num_heads, mixer.kv_lora_rank, mixer.qk_rope_head_dim
    d = mixer.qk_nope_head_dim + rope
    dv = mixer.v_head_dim
    down = [Matrix(name="kv_a", num_inputs=hidden, num_outputs=r + rope)]
    if mixer.num_head_gates:
        down.append(Matrix(name="gate", num_inputs=hidden, num_outputs=mixer.num_head_gates))
    up: list[Operation] = []
    if mixer.q_lora_rank:
        down.append(Matrix(name="q_a", num_inputs=hidden, num_outputs=mixer.q_lora_rank))
        up.append(_norm("q_norm", mixer.q_lora_rank, mixer.q_lora_rank))
        up.append(_linear("q_up", Split.TENSOR, (Matrix(name="q", num_inputs=mixer.q_lora_rank, num_outputs=n * d),)))
    else:
        up.append(_linear("q", Split.TENSOR, (Matrix(name="q", num_inputs=hidden, num_outputs=n * d),)))
    up.append(_norm("kv_norm", r, r))
    kv_up = Matrix(name="kv_b", num_inputs=r, num_outputs=n * (mixer.qk_nope_head_dim + dv))
    up.append(_linear("kv_up", Split.TENSOR, (kv_up,)))
    indexer: tuple[Operation, ...] = ()
    if (i := mixer.indexer) is not None:
        q_in = mixer.q_lora_rank or hidden
        matrices = (
            Matrix(name="index_q", num_inputs=q_in, num_outputs=i.num_heads * i.head_dim),
            Matrix(name="index_k", num_inputs=hidden, num_outputs=i.head_dim + i.num_heads),
        )
        pairs = Operation(
            name="indexer_scores",
            kind=Kind.ATTENTION,
            split=Split.SEQUENCE,
            num_other_parameters=2 * i.head_dim,
            flop_per_pair=2.0 * i.num_heads * (i.head_dim + 1),
            num_kernels=4,
        )
        indexer = (_linear("indexer", Split.SEQUENCE, matrices), pairs)
    window = mixer.window_tokens
    if mixer.indexer is not None:
        window = min(w for w in (window, mixer.indexer.top_k) if w)
    return (
        _linear("latent_down", Split.SEQUENCE, tuple(down)),
        *up,
        *indexer,
        Operation(
            name="rotary",
            kind=Kind.ELEMENTWISE,
            split=Split.TENSOR,
            num_other_parameters=mixer.extra_parameters,
            moved_elements=4.0 * n * d,
            kept=(Kept(elements=n * mixer.qk_nope_head_dim, split=Split.TENSOR, by="views"),),
            num_kernels=14,
            unfused_ratio=_UNFUSED_ROTARY,
        ),
        _attention_core(n, d, dv, (n * d, n * d, n * dv), window),
        _linear(
            "attention_output",
            Split.TENSOR,
            (Matrix(name="o", num_inputs=n * dv, num_outputs=hidden),),
            keeps_input=False,
            is_row_parallel=True,
        ),
    )


def _compressed_attention(mixer: CompressedAttention, hidden: int) -> tuple[Operation, ...]:
    """DeepSeek-V4: attention in a window, and beyond it to one entry for many tokens, some of them chosen."""
    n, d, rank, rate = mixer.num_heads, mixer.head_dim, mixer.q_lora_rank, mixer.compress_tokens
    series, groups = (2 if mixer.has_overlap else 1), mixer.num_output_groups
    down = [
        Matrix(name="q_a", num_inputs=hidden, num_outputs=rank),
        Matrix(name="kv", num_inputs=hidden, num_outputs=d),
    ]
    far: list[Operation] = []
    if rate is not None:
        down.append(Matrix(name="compressor", num_inputs=hidden, num_outputs=2 * series * d))
        reach = mixer.indexer.top_k * rate if mixer.indexer else None
        far.append(
            Operation(
                name="compressed_attention",
                kind=Kind.ATTENTION,
                split=Split.TENSOR,
                num_other_parameters=(rate * series + 1) * d,
                flop_per_pair=4.0 * n * d / rate,
                window_tokens=reach,
                score_elements_per_pair=n / rate,
                num_kernels=6,
            )
        )
    if rate is not None and (i := mixer.indexer) is not None:
        matrices = (
            Matrix(name="index_q", num_inputs=rank, num_outputs=i.num_heads * i.head_dim),
            Matrix(name="index_k", num_inputs=hidden, num_outputs=2 * series * i.head_dim + i.num_heads),
        )
        scores = Operation(
            name="indexer_scores",
            kind=Kind.ATTENTION,
            split=Split.SEQUENCE,
            num_other_parameters=(rate * series + 1) * i.head_dim,
            flop_per_pair=2.0 * i.num_heads * (i.head_dim + 1) / rate,
            num_kernels=4,
        )
        far += [_linear("indexer", Split.SEQUENCE, matrices), scores]
    output = (Matrix(name="o_a", num_inputs=n * d // groups, num_outputs=groups * mixer.o_lora_rank),)
    return (
        _linear("latent_down", Split.SEQUENCE, tuple(down)),
        _norm("q_norm", rank, rank),
        _linear("q_up", Split.TENSOR, (Matrix(name="q", num_inputs=rank, num_outputs=n * d),)),
        _norm("kv_norm", d, d),
        *far,
        Operation(
            name="rotary",
            kind=Kind.ELEMENTWISE,
            split=Split.TENSOR,
            num_other_parameters=mixer.extra_parameters,
            moved_elements=4.0 * n * d,
            num_kernels=14,
            unfused_ratio=_UNFUSED_ROTARY,
        ),
        _attention_core(n, d, d, (n * d, d), mixer.window_tokens, sinks=n),
        _linear("attention_output_a", Split.TENSOR, output, is_row_parallel=True),
        _linear(
            "attention_output",
            Split.TENSOR,
            (Matrix(name="o_b", num_inputs=groups * mixer.o_lora_rank, num_outputs=hidden),),
            is_row_parallel=True,
        ),
    )


def _scan(
    name: str, flop: float, moved: float, kept: float, kept_fp32: float, parameters: int, kernels: float = 6
) -> Operation:
    """Return a recurrent core in its chunked form: inputs, output and one fp32 state a chunk are kept."""
    return Operation(
        name=name,
        kind=Kind.SCAN,
        split=Split.TENSOR,
        num_other_parameters=parameters,
        flop_per_token=flop,
        moved_elements=moved,
        kept=(
            Kept(elements=kept, split=Split.TENSOR),
            Kept(elements=kept_fp32, split=Split.TENSOR, width=Width.FP32),
        ),
        num_kernels=kernels,
    )


def _gated_delta_net(mixer: GatedDeltaNet, hidden: int) -> tuple[Operation, ...]:
    kd = mixer.num_key_heads * mixer.key_head_dim
    vh, dk, dv = mixer.num_value_heads, mixer.key_head_dim, mixer.value_head_dim
    vd = vh * dv
    conv = 2 * kd + vd
    flop = (
        vh * (2.0 * _CHUNK_TOKENS * (2 * dk + dv) + 6.0 * dk * dv + _CHUNK_TOKENS * (dk + dv))
        + 2.0 * conv * mixer.conv_kernel
    )
    states = vh * dk * dv / _CHUNK_TOKENS
    small = conv * mixer.conv_kernel + 2 * vh + dv + mixer.extra_parameters
    project = Matrix(name="in_proj", num_inputs=hidden, num_outputs=2 * kd + 2 * vd + 2 * vh)
    return (
        _linear("linear_in", Split.TENSOR, (project,)),
        _scan("delta_rule", flop, 4.0 * conv + 4.0 * vd, 2 * conv + 3 * vd, states + 2 * vh, small, 20),
        _linear(
            "linear_out",
            Split.TENSOR,
            (Matrix(name="out_proj", num_inputs=vd, num_outputs=hidden),),
            is_row_parallel=True,
        ),
    )


def _mamba2(mixer: Mamba2, hidden: int) -> tuple[Operation, ...]:
    di = mixer.num_heads * mixer.head_dim
    conv = di + 2 * mixer.num_groups * mixer.state_size
    flop = mixer.num_heads * (
        2.0 * _MAMBA_CHUNK_TOKENS * (mixer.state_size + mixer.head_dim) / 2 + 4.0 * mixer.state_size * mixer.head_dim
    )
    states = di * mixer.state_size / _MAMBA_CHUNK_TOKENS
    small = conv * (mixer.conv_kernel + int(mixer.has_conv_bias)) + 3 * mixer.num_heads + mixer.extra_parameters
    small += (di if mixer.has_norm else 0) + (di + conv + mixer.num_heads + hidden) * int(mixer.has_projection_bias)
    project = Matrix(name="in_proj", num_inputs=hidden, num_outputs=di + conv + mixer.num_heads)
    return (
        _linear("mamba_in", Split.TENSOR, (project,)),
        _scan("mamba_scan", flop, 3.0 * conv + 4.0 * di, 2 * conv + 3 * di, states + mixer.num_heads, small, 8),
        _linear(
            "mamba_out",
            Split.TENSOR,
            (Matrix(name="out_proj", num_inputs=di, num_outputs=hidden),),
            is_row_parallel=True,
        ),
    )


def _mamba1(mixer: Mamba1, hidden: int) -> tuple[Operation, ...]:
    width, state, rank = mixer.inner_size, mixer.state_size, mixer.dt_rank
    small = width * (mixer.conv_kernel + int(mixer.has_conv_bias)) + width * (2 + state) + mixer.extra_parameters
    select = (
        Matrix(name="x_proj", num_inputs=width, num_outputs=rank + 2 * state),
        Matrix(name="dt_proj", num_inputs=rank, num_outputs=width),
    )
    return (
        _linear("mamba_in", Split.TENSOR, (Matrix(name="in_proj", num_inputs=hidden, num_outputs=2 * width),)),
        _linear("mamba_select", Split.TENSOR, select, keeps_input=False),
        _scan("selective_scan", 9.0 * width * state, 8.0 * width, 5 * width, width, small, 6),
        _linear(
            "mamba_out",
            Split.TENSOR,
            (Matrix(name="out_proj", num_inputs=width, num_outputs=hidden),),
            is_row_parallel=True,
        ),
    )


def _short_convolution(mixer: ShortConvolution, hidden: int) -> tuple[Operation, ...]:
    c = mixer.channels
    small = c * mixer.conv_kernel + (4 * c if mixer.has_bias else 0)
    return (
        _linear("conv_in", Split.TENSOR, (Matrix(name="in_proj", num_inputs=hidden, num_outputs=3 * c),)),
        _scan("convolution", 2.0 * c * mixer.conv_kernel, 6.0 * c, 5 * c, 0.0, small, 4),
        _linear(
            "conv_out",
            Split.TENSOR,
            (Matrix(name="out_proj", num_inputs=c, num_outputs=hidden),),
            is_row_parallel=True,
        ),
    )


def _lightning(mixer: LightningAttention, hidden: int) -> tuple[Operation, ...]:
    width, d = mixer.num_heads * mixer.head_dim, mixer.head_dim
    flop = mixer.num_heads * (4.0 * _MAMBA_CHUNK_TOKENS * d + 4.0 * d * d)
    project = (
        Matrix(name="qkv", num_inputs=hidden, num_outputs=3 * width),
        Matrix(name="gate", num_inputs=hidden, num_outputs=width),
    )
    states = width * d / _MAMBA_CHUNK_TOKENS
    return (
        _linear("linear_in", Split.TENSOR, project),
        _scan("lightning", flop, 6.0 * width, 6 * width, states, width + mixer.extra_parameters, 10),
        _linear(
            "linear_out",
            Split.TENSOR,
            (Matrix(name="o", num_inputs=width, num_outputs=hidden),),
            is_row_parallel=True,
        ),
    )


def _mixer(mixer: Mixer, hidden: int, norm: NormKind) -> tuple[Operation, ...]:
    match mixer:
        case Attention():
            return _softmax_attention(mixer, hidden, norm)
        case LatentAttention():
            return _latent_attention(mixer, hidden)
        case CompressedAttention():
            return _compressed_attention(mixer, hidden)
        case GatedDeltaNet():
            return _gated_delta_net(mixer, hidden)
        case Mamba1():
            return _mamba1(mixer, hidden)
        case Mamba2():
            return _mamba2(mixer, hidden)
        case ShortConvolution():
            return _short_convolution(mixer, hidden)
        case LightningAttention():
            return _lightning(mixer, hidden)


def _kept_activation(activation: str, width: int, num_outputs: int, split: Split) -> tuple[Kept, ...]:
    """Return what an activation keeps of what the first products made, its own result left out.

    A gate's result is a tensor of its own in unfused code, beside its product with what it gates.
    """
    plain, more = _ACTIVATIONS.get(activation, _ONE_KERNEL)
    is_gated = num_outputs > width
    needed = num_outputs if is_gated else plain * width
    return (
        Kept(elements=needed, split=split),
        Kept(elements=int(is_gated) * width, split=split, by="eager"),
        Kept(elements=more * width, split=split, by="formulas"),
    )


def _mlp(part: Mlp, hidden: int, prefix: str = "", *, keeps_input: bool = True) -> tuple[Operation, ...]:
    f = part.intermediate_size
    names = ("gate", "up") if part.is_gated else ("up",)
    outputs = len(names) * f
    matrices = tuple(Matrix(name=name, num_inputs=hidden, num_outputs=f) for name in names)
    bias = (outputs + hidden if part.has_bias else 0) + part.extra_parameters
    return (
        _linear(f"{prefix}mlp_up", Split.TENSOR, matrices, bias=bias, keeps_input=keeps_input),
        Operation(
            name=f"{prefix}mlp_activation",
            kind=Kind.ELEMENTWISE,
            split=Split.TENSOR,
            moved_elements=float(outputs + f),
            kept=_kept_activation(part.activation, f, outputs, Split.TENSOR),
            num_kernels=2,
            unfused_ratio=_UNFUSED_GATE if part.is_gated else 1.0,
        ),
        _linear(
            f"{prefix}mlp_down",
            Split.TENSOR,
            (Matrix(name="down", num_inputs=f, num_outputs=hidden),),
            is_row_parallel=True,
        ),
    )


def _moe(part: Moe, hidden: int) -> tuple[Operation, ...]:
    e, k, f = part.num_experts, part.top_k, part.expert_size
    names = ("gate", "up") if part.is_gated else ("up",)
    outputs = len(names) * f
    router = e * hidden if part.router_parameters is None else part.router_parameters
    up = tuple(Matrix(name=f"expert_{name}", num_inputs=hidden, num_outputs=f, count=e) for name in names)
    down = Matrix(name="expert_down", num_inputs=f, num_outputs=hidden, count=e)
    bias = e * (outputs + hidden) if part.has_expert_bias else 0
    is_read = part.shared is not None or not part.has_fp32_router  # the 16-bit input; experts read a copy by token
    inputs = [Kept(elements=hidden, split=Split.SEQUENCE, is_weight_input=True, by="all" if is_read else "fused")]
    if part.has_fp32_router:
        inputs.append(Kept(elements=hidden, split=Split.SEQUENCE, width=Width.FP32, is_weight_input=True, by="eager"))

    def experts(name: str, matrices: tuple[Matrix, ...], width: int, *, is_down: bool) -> Operation:
        return Operation(
            name=name,
            kind=Kind.MATMUL,
            split=Split.EXPERT,
            matrices=matrices,
            num_other_parameters=bias if is_down else part.extra_parameters,
            tokens_ratio=float(k),
            flop_per_token=2.0 * k * sum(m.num_inputs * m.num_outputs for m in matrices),
            kept=(Kept(elements=k * width, split=Split.EXPERT if is_down else Split.ROUTED, is_weight_input=True),),
            num_kernels=3.0 * e,
            is_row_parallel=is_down,
        )

    routed = (
        Operation(
            name="router",
            kind=Kind.ELEMENTWISE,
            split=Split.SEQUENCE,
            num_other_parameters=router,
            flop_per_token=2.0 * e * hidden,
            moved_elements=float(hidden + 6 * e),
            kept=(*inputs, Kept(elements=e, split=Split.SEQUENCE, width=Width.FP32)),
            num_kernels=8,
        ),
        Operation(
            name="dispatch", kind=Kind.ELEMENTWISE, split=Split.EXPERT, moved_elements=2.0 * k * hidden, num_kernels=6
        ),
        experts("expert_up", up, hidden, is_down=False),
        Operation(
            name="expert_activation",
            kind=Kind.ELEMENTWISE,
            split=Split.EXPERT,
            moved_elements=float(k * (outputs + f)),
            kept=_kept_activation(part.activation, k * f, k * outputs, Split.EXPERT),
            num_kernels=2,
            unfused_ratio=_UNFUSED_GATE if part.is_gated else 1.0,
        ),
        experts("expert_down", (down,), f, is_down=True),
        Operation(
            name="combine",
            kind=Kind.ELEMENTWISE,
            split=Split.EXPERT,
            moved_elements=float((k + 1) * hidden),
            kept=(Kept(elements=k * hidden, split=Split.ROUTED, by="eager"),),
            num_kernels=6,
        ),
    )
    shared = _mlp(part.shared, hidden, "shared_", keeps_input=False) if part.shared else ()
    if part.shared_gate_parameters:
        gate = Operation(
            name="shared_gate",
            kind=Kind.ELEMENTWISE,
            split=Split.SEQUENCE,
            num_other_parameters=part.shared_gate_parameters,
            moved_elements=2.0 * hidden,
            kept=(Kept(elements=hidden, split=Split.SEQUENCE, by="eager"),),
            num_kernels=2,
        )
        shared = (*shared, gate)
    return (*routed, *shared)


def _feed_forward(part: FeedForward, hidden: int, *, keeps_input: bool) -> tuple[Operation, ...]:
    return _moe(part, hidden) if isinstance(part, Moe) else _mlp(part, hidden, keeps_input=keeps_input)


@cache
def layer_operations(layer: Layer, hidden_size: int) -> tuple[Operation, ...]:
    """List the operations of one layer's forward pass, in order.

    Parameters
    ----------
    layer : Layer
        The layer.
    hidden_size : int
        Width of the residual stream. [1]

    Returns
    -------
    tuple of Operation
        Norms, mixers, feed-forwards and residual additions. Their parameters sum to the layer's.

    Notes
    -----
    Unless the layer says otherwise its mixers share a norm, as do its feed-forwards. A norm before a part and one behind
    it keep the same. A layer without parts keeps nothing.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198,
       section 4, counts the tensors that fused kernels keep.
    .. [2] Unfused code: modeling_llama.py of transformers 5.24.0 (RMSNorm in fp32, `repeat_kv`, SwiGLU in two steps).

    Examples
    --------
    >>> from tonnage.model.types import Attention, Layer, Mlp
    >>> gpt = Layer(mixers=(Attention(num_heads=8, num_kv_heads=8, head_dim=64),),
    ...             feed_forwards=(Mlp(intermediate_size=2048, is_gated=False),), norm_parameters=1024)
    >>> sum(operation.num_parameters for operation in layer_operations(gpt, 512))
    3146752
    """
    norms = layer.norms or Norms(count=sum(1 for parts in (layer.mixers, layer.feed_forwards) if parts))
    is_shared = layer.is_parallel and norms.count == 1  # both read one norm's output, which the mixer keeps
    blocks = [
        tuple(o for mixer in layer.mixers for o in _mixer(mixer, hidden_size, norms.kind)),
        tuple(o for part in layer.feed_forwards for o in _feed_forward(part, hidden_size, keeps_input=not is_shared)),
    ]
    present = [block for block in blocks if block]
    operations: list[Operation] = []
    weights = layer.norm_parameters if present else 0
    made = 0
    for index, block in enumerate(present):
        number = (norms.count + len(present) - 1 - index) // len(present)
        for _ in range(number):
            share = weights // norms.count + (weights % norms.count if made == 0 else 0)
            keeps = not (layer.is_parallel and made > 0)
            operations.append(_norm("norm", hidden_size, share, norms.kind, keeps_input=keeps))
            made += 1
        operations += [*block, _residual("residual", hidden_size)]
    rest = layer.other_parameters + (0 if made else layer.norm_parameters)
    if rest:
        operations.append(
            Operation(name="other", kind=Kind.ELEMENTWISE, split=Split.SEQUENCE, num_other_parameters=rest)
        )
    return tuple(operations)
