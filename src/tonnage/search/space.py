"""The space that is searched: layouts, weight formats, cache formats, ways to train.

Axes are small tuples in the order in which a person would try them; what they cross to is thinned only by
`search.constraints`, and by the rule that a way which fits needs no sacrifice that makes it slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from tonnage.engines.types import EngineTraits
from tonnage.estimate.types import Layout
from tonnage.estimate.weights import FORMATS, checkpoint_format, find_format, is_gguf_file
from tonnage.model.types import Model
from tonnage.search.constraints import head_counts, num_experts

# One format for each step of size that checkpoints are published in; others are reached by a pin.
_LADDER: Final = (
    "bf16", "fp8", "q8_0", "q6_k", "q5_k_m", "awq", "nvfp4", "q4_k_m", "nf4", "iq4_xs", "q3_k_m",
    "q2_k",
)  # fmt: skip
# An assumption, said in the answer: below about four bits a weight most models answer visibly worse.
LEAST_GOOD_BITS: Final = 3.9
_PLAIN: Final = frozenset({"bf16", "fp16", "fp32", "f16", "f32", "gguf_bf16"})


def divisors(number: int) -> tuple[int, ...]:
    """Return what divides a number.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def bits_of(weights: str) -> float:
    """Return the bits of one weight in a format."""
    return find_format(weights).bits_per_weight


def bits_class(bits: float) -> int:
    """Return the step of size that weights stand on: 16, 8, 6, 4 or fewer bits.

    >>> bits_class(8.5), bits_class(4.84), bits_class(3.06)
    (8, 4, 2)
    """
    return next((step for step, least in ((16, 12.0), (8, 7.0), (6, 5.2), (4, LEAST_GOOD_BITS)) if bits >= least), 2)


def weight_formats(model: Model, traits: EngineTraits) -> tuple[str, ...]:
    """Return the formats to try on an engine, the most exact first: the checkpoint's own, and smaller ones.

    None where the model is a GGUF file and the engine reads no such files.
    """
    own = checkpoint_format(model)
    most = bits_of(own)
    names = [name for name in _ladder(traits.weight_formats) if bits_of(name) <= most + 1e-9]
    if is_gguf_file(model):
        if not any(fnmatchcase(own, pattern) for pattern in traits.weight_formats):
            return ()
        smaller = (name for name in names if FORMATS[name].kind == "gguf" and bits_of(name) < most - 0.5)
        return (own, *smaller)
    if own not in names and any(fnmatchcase(own, pattern) for pattern in traits.weight_formats):
        names.insert(0, own)
    if own not in _PLAIN and own in names:  # a checkpoint that is quantised already is served as it is
        names = [own, *(name for name in names if bits_of(name) < most - 0.5)]
    return tuple(names)


@cache
def _ladder(patterns: tuple[str, ...]) -> tuple[str, ...]:
    known = [name for name in _LADDER if name in FORMATS and any(fnmatchcase(name, p) for p in patterns)]
    return tuple(sorted(known, key=bits_of, reverse=True))


def cache_formats(traits: EngineTraits) -> tuple[str, ...]:
    """Return the cache formats to try, the most exact first: 16 bits, 8 bits, and 4 bits."""
    wanted = (("fp16", "bf16"), ("fp8", "q8_0"), ("q4_0",))
    found = (next((name for name in step if name in traits.cache_formats), None) for step in wanted)
    return tuple(name for name in found if name is not None)


def serving_layouts(
    model: Model, num_devices: int, devices_per_node: int, ways: Sequence[str], expert_ways: str = ""
) -> tuple[Layout, ...]:
    """Return the layouts that use all devices with the parallelisms an engine has.

    An engine without data parallelism uses as many devices as one copy can be split over. Where copies may share the
    experts, they do so in a layout of its own; experts spread over the ranks of one copy alone take the memory and
    time of experts cut among them, and make no other candidate.
    """
    if "dp" in ways:
        layouts = _splits(model, num_devices, devices_per_node, ways)
        experts = num_experts(model) if expert_ways == "copies" else 0
        shared = (replace(one, ep=one.tp * one.dp) for one in layouts if one.dp > 1)
        return (*layouts, *(one for one in shared if experts and experts % one.ep == 0))
    most = min(num_devices, devices_per_node * model.num_layers)  # no copy is split further
    return next(
        (found for number in range(most, 0, -1) if (found := _splits(model, number, devices_per_node, ways))), ()
    )


def _splits(model: Model, num_devices: int, devices_per_node: int, ways: Sequence[str]) -> tuple[Layout, ...]:
    heads = head_counts(model)
    layouts: list[Layout] = []
    for tp in divisors(num_devices) if "tp" in ways else (1,):
        if tp > devices_per_node or any(count % tp for count in heads):
            continue
        for pp in divisors(num_devices // tp) if "pp" in ways else (1,):
            rest = num_devices // (tp * pp)
            if pp <= model.num_layers and (rest == 1 or "dp" in ways):
                layouts.append(Layout(dp=rest, tp=tp, pp=pp))
    return tuple(layouts)


def training_layouts(
    model: Model, num_devices: int, devices_per_node: int, ways: Sequence[str], zero_stages: Sequence[int]
) -> Iterator[Layout]:
    """Yield the layouts that use all devices: tensor parallel inside a node, pipeline over what is left.

    ZeRO stages above 1 are not combined with a pipeline: each micro-batch would gather or scatter again.
    """
    heads, experts = head_counts(model), num_experts(model)
    for tp in divisors(num_devices) if "tp" in ways else (1,):
        if tp > devices_per_node or any(count % tp for count in heads):
            continue
        for pp in divisors(num_devices // tp) if "pp" in ways else (1,):
            if pp > model.num_layers:
                continue
            dp = num_devices // (tp * pp)
            for ep in _expert_ways(experts, dp * tp) if "ep" in ways else (1,):
                for zero in zero_stages if dp > 1 else (0,):
                    if not (zero > 1 and pp > 1):
                        yield Layout(dp=dp, tp=tp, pp=pp, ep=ep, zero_stage=zero, has_sequence_parallel=tp > 1)


def _expert_ways(experts: int, ranks: int) -> tuple[int, ...]:
    return tuple(way for way in divisors(ranks) if way == 1 or (experts and experts % way == 0))


def micro_batches(global_batch_size: int, dp: int) -> tuple[int, ...]:
    """Return the micro-batch sizes that divide what one rank gets of the global batch.

    >>> micro_batches(64, 4)
    (1, 2, 4, 8, 16)
    """
    return divisors(global_batch_size // dp) if global_batch_size % dp == 0 else ()
