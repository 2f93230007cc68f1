"""What rules a candidate out before it is estimated, each with its reason: divisibility, hardware, requirements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tonnage.estimate.types import Candidate, Recompute
from tonnage.hardware.types import Cluster, Device
from tonnage.messages import say
from tonnage.model.types import (
    Attention,
    CompressedAttention,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba2,
    Model,
    Moe,
)
from tonnage.search.software import means_nothing
from tonnage.units import format_bytes
from tonnage.workload.precision import is_plain
from tonnage.workload.types import Training

if TYPE_CHECKING:
    from tonnage.search.training_space import TrainingSpace

Reason = str
Rule = tuple[Any, Callable[[Candidate], Reason]]
"""Where in a grid of candidates something cannot be, and the reason for one of them."""
_SHARDS_ALL: Final = 3  # ZeRO stage
_NO_BF16: Final = frozenset({"Turing", "Volta", "Pascal", "Maxwell"})


def head_counts(model: Model) -> tuple[int, ...]:
    """Return the numbers of heads that tensor parallelism must divide, of every kind of layer."""
    return _shape(model)[0]


def num_experts(model: Model) -> int:
    """Return the routed experts of a layer, 0 for a dense model."""
    return _shape(model)[1]


def kv_head_counts(model: Model) -> tuple[int, ...]:
    """Return the numbers of key-value heads of every kind of attention that has them."""
    counts = {m.num_kv_heads for layer, _ in model.groups() for m in layer.mixers if isinstance(m, Attention)}
    return tuple(sorted(counts))


def has_states(model: Model) -> bool:
    """Whether some layers are recurrent: each token needs the state that those before it left."""
    kinds = (GatedDeltaNet, LightningAttention, Mamba2)
    return any(isinstance(m, kinds) for layer, _ in model.groups() for m in layer.mixers)


_SHAPES: dict[int, tuple[tuple[Layer, ...], tuple[tuple[int, ...], int]]] = {}
_MOST_SHAPES: Final = 16


def _shape(model: Model) -> tuple[tuple[int, ...], int]:
    """Return heads and experts, counted once a model: a search asks thousands of times."""
    known = _SHAPES.get(id(model.layers))
    if known is None or known[0] is not model.layers:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        known = _SHAPES[id(model.layers)] = model.layers, (_count_heads(model), _count_experts(model))
    return known[1]


def _count_heads(model: Model) -> tuple[int, ...]:
    counts: set[int] = set()
    for layer, _ in model.groups():
        for mixer in layer.mixers:
            if isinstance(mixer, (Attention, CompressedAttention, LatentAttention, LightningAttention, Mamba2)):
                counts.add(mixer.num_heads)
            elif isinstance(mixer, GatedDeltaNet):
                counts |= {mixer.num_key_heads, mixer.num_value_heads}
    return tuple(sorted(counts))


def _count_experts(model: Model) -> int:
    parts = (part for layer, _ in model.groups() for part in layer.feed_forwards)
    return max((part.num_experts for part in parts if isinstance(part, Moe)), default=0)


def _too_few_devices(candidate: Candidate) -> Reason | None:
    needed, there = candidate.layout.num_devices, candidate.cluster.num_devices
    return say("search.too_few_devices", needed=needed, there=there) if needed > there else None


def _heads_do_not_divide(candidate: Candidate) -> Reason | None:
    tp = candidate.layout.tp
    for heads in head_counts(candidate.model):
        if heads % tp:
            return say("search.heads", heads=heads, tp=tp)
    return None


def _too_few_layers(candidate: Candidate) -> Reason | None:
    stages = candidate.layout.pp * candidate.layout.num_virtual_stages
    if stages > candidate.model.num_layers:
        return say("search.layers", layers=candidate.model.num_layers, stages=stages)
    return None


def _experts_do_not_divide(candidate: Candidate) -> Reason | None:
    ep, experts = candidate.layout.ep, num_experts(candidate.model)
    if ep > 1 and not experts:
        return say("search.no_experts", ep=ep)
    if ep > 1 and experts % ep:
        return say("search.experts", experts=experts, ep=ep)
    layout = candidate.layout
    if ep > 1 and (layout.dp * layout.tp * layout.cp) % ep:
        return say("search.expert_group", ep=ep, ranks=layout.dp * layout.tp * layout.cp)
    if candidate.offload.num_cpu_expert_layers and not experts:
        return say("search.no_experts_to_move")
    return None


def _compute_not_there(candidate: Candidate) -> Reason | None:
    compute = candidate.precision.compute
    for device in candidate.cluster.node.devices:
        is_old = device.vendor == "NVIDIA" and device.architecture in _NO_BF16
        if (compute == "bf16" and is_old) or (compute in ("fp8", "fp4") and not device.flop_per_s.get(compute)):
            return say("search.compute", name=device.name, compute=compute)
    return None


def _batch_does_not_divide(candidate: Candidate) -> Reason | None:
    load = candidate.workload
    if not isinstance(load, Training):
        return None
    one = candidate.layout.dp * candidate.micro_batch_size
    return say("search.batch", total=load.global_batch_size, one=one) if load.global_batch_size % one else None


def training_rules(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield what rules cells of a training space out, each a mask over layouts, ways or both, with its reason."""
    yield from ((mask, lambda _, reason=reason: reason) for mask, reason in means_nothing(space, x))
    yield from _device_rules(space, x)
    yield from _ability_rules(space, x)
    yield from _split_rules(space, x)
    yield from _stage_rules(space, x)
    yield from _host_rules(space, x)
    yield from _drive_rules(space, x)
    yield from _batch_rules(space, x)


def _device_rules(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[Rule]:
    base, most = space.base, space.num_devices
    reason = _compute_not_there(base)
    if reason is not None:
        yield x["dp"] >= 1, lambda _: reason
    used = x["dp"] * x["tp"] * x["pp"] * x["cp"]
    yield used > most, lambda c: say("search.too_few_devices", needed=c.layout.num_devices, there=most)


def _ability_rules(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield what the software is not able to: ways to split, ZeRO stages, modes of recomputation, what goes to the host."""
    soft, name = space.software, space.software.name
    swaps = _swaps(x)
    if swaps is not None and "nvme" not in soft.offload:
        yield swaps, lambda _: say("search.no_nvme", name=name)
    for way in ("tp", "pp", "cp", "ep"):
        if way not in soft.ways:
            yield x[way] > 1, lambda _, way=way: say("search.no_way", name=name, way=way)
    if not soft.interleaves:
        yield x["num_virtual_stages"] > 1, lambda _: say("search.no_interleaving", name=name)
    ranks = x["dp"] * x["cp"]
    for stage in {0, 1, 2, 3} - set(soft.zero):
        yield (
            (x["zero_stage"] == stage) & (ranks > 1),
            lambda _, stage=stage: say("search.no_zero", name=name, stage=stage),
        )
    for code, mode in enumerate(Recompute):
        if mode.value not in soft.recompute:
            yield x["recompute"] == code, lambda _, mode=mode: say("search.no_mode", name=name, mode=mode.value)
    if not soft.counts_groups:
        yield x["recompute_every"] > 1, lambda _: say("search.no_groups", name=name)
    for what in ("optimizer", "parameters", "activations"):
        if what not in soft.offload and not (what == "optimizer" and "parameters" in soft.offload):
            word = "search.unpredicted_offload" if what in soft.unpredicted_offload else "search.no_offload"
            yield x[f"offload_{what}"] > 0, lambda _, word=word, what=what: say(word, name=name, what=what)


def _split_rules(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield what does not divide: heads, tokens, experts."""
    model, load, tp, cp, ep = space.base.model, space.base.workload, x["tp"], x["cp"], x["ep"]
    per_node = len(space.base.cluster.node.devices)
    assert isinstance(load, Training)
    for heads in head_counts(model):
        yield heads % tp != 0, lambda c, heads=heads: say("search.heads", heads=heads, tp=c.layout.tp)
    for heads in kv_head_counts(model):
        cut = (heads % tp != 0) & ((tp % heads != 0) if space.software.repeats_kv_heads else True)
        yield cut, lambda c, heads=heads: say("search.kv_heads", heads=heads, tp=c.layout.tp)
    if "layout.tp" not in space.pinned:
        yield tp > per_node, lambda c: say("search.tensor_nodes", tp=c.layout.tp, num=per_node)
    if has_states(model):
        yield cp > 1, lambda _: say("search.states", name=space.software.name)
    parts = _token_parts(cp, tp, x["has_sequence_parallel"])
    yield (
        load.seq_len % parts != 0,
        lambda c: say("search.tokens", tokens=load.seq_len, num=_parts_of(c)),
    )
    experts, ranks = num_experts(model), x["dp"] * tp * cp
    if not experts:
        yield ep > 1, lambda c: say("search.no_experts", ep=c.layout.ep)
        return
    yield experts % ep != 0, lambda c: say("search.experts", experts=experts, ep=c.layout.ep)
    yield (
        ranks % ep != 0,
        lambda c: say("search.expert_group", ep=c.layout.ep, ranks=c.layout.dp * c.layout.tp * c.layout.cp),
    )


def _token_parts(cp: Any, tp: Any, has_sequence_parallel: Any) -> Any:
    """Return into how many parts a sequence is cut: two for each context rank, and each again over tensor ranks."""
    return cp * (1 + (cp > 1)) * (1 + (tp - 1) * has_sequence_parallel)


def _parts_of(c: Candidate) -> int:
    return int(_token_parts(c.layout.cp, c.layout.tp, c.layout.has_sequence_parallel))


def _stage_rules(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield what does not divide into pipeline stages, or is not combined with them."""
    soft, layers, pp = space.software, space.base.model.num_layers, x["pp"]
    stages = pp * x["num_virtual_stages"]
    counted = layers + 2 * (x["first_stage_layers"] > 0)
    yield (
        stages > layers,
        lambda c: say("search.layers", layers=layers, stages=c.layout.pp * c.layout.num_virtual_stages),
    )
    if soft.needs_even_stages:
        yield (
            (pp > 1) & _is_uneven(layers, x),
            lambda c: _uneven(layers, c),
        )
    if soft.most_zero_with_pipeline < max(soft.zero):
        yield (
            (x["zero_stage"] > soft.most_zero_with_pipeline) & (pp > 1),
            lambda c: say("search.zero_pipeline", name=soft.name, stage=c.layout.zero_stage),
        )
    batches = x["num_micro_batches"]
    yield (
        (x["num_virtual_stages"] > 1) & (batches % pp != 0),
        lambda c: say("search.interleaved", pp=c.layout.pp),
    )
    if soft.fills_pipeline:
        yield (pp > 1) & (batches < stages), lambda _: say("search.unfilled", name=soft.name)
    each = _rounded_up(counted, stages)
    yield (
        (x["recompute_every"] > 1) & (each % x["recompute_every"] != 0),
        lambda c: say("search.groups", num=c.recompute_every),
    )


def _uneven(layers: int, c: Candidate) -> Reason:
    layout = c.layout
    first, last = layout.first_stage_layers, layout.last_stage_layers
    stages = layout.pp * layout.num_virtual_stages
    if first is None and last is None:
        return say("search.uneven", layers=layers, stages=stages)
    rest = layers - (first or 0) - (last or 0)
    others = (layout.pp - (first is not None) - (last is not None)) * layout.num_virtual_stages
    return say("search.uneven_rest", layers=rest, stages=others)


def _is_uneven(layers: int, x: Mapping[str, Any]) -> Any:
    """Whether the ranks between those whose number of layers is given hold unequal ones, or a rank unequal chunks.

    As Megatron-LM checks `decoder_first_pipeline_num_layers` and its sibling in transformer_config.py.
    """
    first, last, pp, chunks = x["first_stage_layers"], x["last_stage_layers"], x["pp"], x["num_virtual_stages"]
    embedded = (first > 0) & (first == last) & ((layers + 2) == pp * (first + 1))
    others = pp - (first > 0) - (last > 0)
    rest = layers - first - last
    each = rest // (others + (others == 0))
    is_cut = (
        (rest != each * others)
        | ((others > 0) & (each < 1))
        | (each * others % (chunks * (others + (others == 0))) != 0)
    )
    is_cut = is_cut | (first % chunks != 0) | (last % chunks != 0)
    return ((~embedded) & is_cut) | (embedded & ((layers + 2) % (pp * chunks) != 0))


def _rounded_up(number: Any, by: Any) -> Any:
    """Divide columns of whole numbers, rounding up."""
    return -(-number // by)


def _host_rules(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield what the software does not move to the host in this layout, or does not step there."""
    soft = space.software
    if soft.host_optimizers and space.base.optimizer not in soft.host_optimizers:
        known = ", ".join(soft.host_optimizers)
        yield (
            x["offload_optimizer"] > 0,
            lambda c: say("search.host_optimizer", name=soft.name, optimizer=c.optimizer, known=known),
        )
    used = x["dp"] * x["tp"] * x["pp"] * x["cp"]
    moved = x["offload_optimizer"] + x["offload_parameters"] > 0
    least = soft.min_devices_for_quantized_offload
    if least > 1 and not is_plain(space.base.precision.weights):
        yield moved & (used < least), lambda _: say("search.offload_devices", name=soft.name, num=least)
    yield (
        (x["offload_parameters"] > 0) & (x["zero_stage"] != 3) & (used > 1),
        lambda _: say("search.offload_zero", name=soft.name),
    )


def _swaps(x: Mapping[str, Any]) -> Any:
    """Return which cells swap with a drive; None where none does."""
    swaps = x["nvme_optimizer"] + x["nvme_parameters"] > 0
    return swaps if getattr(swaps, "any", bool)() else None


def _drive_rules(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield what does not swap with a drive: without one, too large for it, or not in this layout."""
    swaps = _swaps(x)
    if swaps is None:
        return
    soft, drive = space.software, space.base.cluster.node.host.drive
    for what in ("optimizer", "parameters"):
        yield (
            (x[f"nvme_{what}"] > 0) & (x[f"offload_{what}"] == 0),
            lambda _, what=what: say(
                "search.nothing", path=f"offload.{what}_nvme", without=f"--set offload.{what}=true"
            ),
        )
    if "nvme" not in soft.offload:
        return
    if drive is None:
        yield swaps, lambda _: say("search.no_drive")
        return
    used = x["dp"] * x["tp"] * x["pp"] * x["cp"]
    yield swaps & (x["zero_stage"] != _SHARDS_ALL) & (used > 1), lambda _: say("search.nvme_zero", name=soft.name)
    from tonnage.estimate.compose_training import case_of, columns_of, drive_bytes  # noqa: PLC0415  few spaces swap
    from tonnage.estimate.compose_training.case import filled  # noqa: PLC0415

    case = case_of(space.base)
    yield (
        drive_bytes(case, {**x}) > drive.free_bytes,
        lambda c: say(
            "search.small_drive",
            needed=format_bytes(float(drive_bytes(case, filled(columns_of(c))))),
            free=format_bytes(drive.free_bytes),
        ),
    )


def _batch_rules(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[Rule]:
    load = space.base.workload
    assert isinstance(load, Training)
    total = load.global_batch_size
    yield (
        total % (x["dp"] * x["micro_batch_size"]) != 0,
        lambda c: say("search.batch", total=total, one=c.layout.dp * c.micro_batch_size),
    )


_CHECKS: Final[tuple[Callable[[Candidate], Reason | None], ...]] = (
    _too_few_devices,
    _heads_do_not_divide,
    _too_few_layers,
    _experts_do_not_divide,
    _compute_not_there,
    _batch_does_not_divide,
)


def why_not(candidate: Candidate) -> Reason | None:
    """Return why a candidate cannot be, or None.

    >>> why_not.__name__
    'why_not'
    """
    return next((reason for check in _CHECKS if (reason := check(candidate)) is not None), None)


def lacks(device: Device, requirements: Iterable[str]) -> Reason | None:
    """Return which required feature a device lacks, or does not say that it has; None when it has all."""
    has = {
        "ecc": device.has_ecc,
        "p2p": device.has_p2p or device.nvlink_bytes_per_s is not None,
        "nvlink": device.nvlink_bytes_per_s is not None,
        "official": not device.is_unofficial,
    }
    missing = [name for name in requirements if not has[name]]
    return say("search.lacks", name=device.name, feature=missing[0]) if missing else None


def power_watts(cluster: Cluster) -> float | None:
    """Return the power limit of all devices together, None when one is not known."""
    limits = [device.power_watts for device in cluster.node.devices]
    return None if None in limits else sum(w for w in limits if w is not None) * cluster.num_nodes
