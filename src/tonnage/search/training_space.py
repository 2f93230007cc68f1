"""The training space as columns: layouts down, ways of running one across, each cell a candidate.

A grid of a thousand layouts by a thousand ways is a million candidates, and what depends on the layout alone is
computed a thousand times. Every axis is whole; `search.constraints` masks what cannot be, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from tonnage import datafiles
from tonnage.estimate.types import Candidate, Layout, Offload, Recompute
from tonnage.hardware.types import Cluster
from tonnage.nouns import noun
from tonnage.search.constraints import num_experts
from tonnage.search.space import divisors
from tonnage.workload.types import Training, TrainingKind

if TYPE_CHECKING:
    import numpy as np

_MODES: Final = {"none": 0, "selective": 1, "full": 2}
_EVERY: Final = (1, 2, 4, 8)  # layers between two kept inputs: more keeps hardly less and computes as much again
_LAYOUT_PINS: Final = ("tp", "pp", "cp", "ep", "dp", "zero_stage", "num_virtual_stages")
_OFFLOAD_PINS: Final = ("offload.optimizer", "offload.parameters", "offload.activations")
_DRIVE_PINS: Final = ("offload.optimizer_nvme", "offload.parameters_nvme")
LAYOUT_COLUMNS: Final = (
    *("dp", "tp", "pp", "cp", "ep", "etp", "zero_stage", "num_virtual_stages", "has_sequence_parallel"),
    *("first_stage_layers", "last_stage_layers"),
)
WAY_COLUMNS: Final = (
    *("recompute", "recompute_every", "offload_optimizer", "offload_parameters", "offload_activations"),
    "micro_batch_size",
)
_DRIVE_COLUMNS: Final = ("nvme_optimizer", "nvme_parameters")


@noun
class TrainingWays:
    """What training software can be asked to do, from `data/search/training.toml`."""

    name: str
    methods: tuple[str, ...]
    ways: tuple[str, ...]
    zero: tuple[int, ...]
    offload: tuple[str, ...]
    recompute: tuple[str, ...]
    spans_devices: bool
    recipes: tuple[Mapping[str, Any], ...]
    vendors: tuple[str, ...]
    weights: tuple[str, ...]
    quantizes_experts: bool
    source: str
    min_devices_for_quantized_offload: int = 1
    optimizers: tuple[str, ...] = ()
    host_optimizers: tuple[str, ...] = ()  # those that it steps in host memory; none named: all
    unpredicted_offload: tuple[str, ...] = ()  # what it can keep on the host in a way that is not predicted
    most_zero_with_pipeline: int = 3
    interleaves: bool = False
    counts_groups: bool = False  # recomputes and keeps every n-th layer's input only
    needs_even_stages: bool = False  # each stage holds the same number of layers, embedding and loss counted or not
    repeats_kv_heads: bool = False  # tensor parallel over more ranks than key-value heads
    fills_pipeline: bool = False  # at least as many micro-batches as stages


@cache
def training_ways() -> tuple[TrainingWays, ...]:
    """Return what each training software can be asked to do."""
    found: list[TrainingWays] = []
    for name, row in datafiles.table(_TABLE).items():
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}
        found.append(TrainingWays(name=name, **values))
    return tuple(found)


_TABLE: Final = "search/training.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpace:
    """Every candidate of one software and precision on one cluster: `layouts` are the rows, `ways` the columns."""

    base: Candidate
    software: TrainingWays
    layouts: tuple[Layout, ...]
    ways: tuple[tuple[Recompute, int, Offload, int], ...]  # mode, every n-th layer, on the host, micro-batch
    num_devices: int
    pinned: frozenset[str] = frozenset()

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of layouts and of ways."""
        return len(self.layouts), len(self.ways)

    def candidate(self, row: int, way: int) -> Candidate:
        """Return one cell as a candidate."""
        mode, every, offload, micro_batch_size = self.ways[way]
        return replace(
            self.base,
            layout=self.layouts[row],
            recompute=mode,
            recompute_every=every,
            offload=offload,
            micro_batch_size=micro_batch_size,
        )

    def layout_columns(self) -> dict[str, np.ndarray]:
        """Return the layouts as columns, each n x 1."""
        import numpy as np  # noqa: PLC0415  serving does without

        rows = np.array([_layout_values(layout) for layout in self.layouts], dtype=float)
        return {name: rows[:, i : i + 1] for i, name in enumerate(LAYOUT_COLUMNS)}

    def way_columns(self) -> dict[str, np.ndarray]:
        """Return the ways as columns, each 1 x n."""
        import numpy as np  # noqa: PLC0415  serving does without

        rows = np.array(
            [
                (_MODES[mode.value], every, offload.optimizer, offload.parameters, offload.activations, micro)
                for mode, every, offload, micro in self.ways
            ],
            dtype=float,
        )
        columns = {name: rows[:, i][None, :] for i, name in enumerate(WAY_COLUMNS)}
        drives = np.array([(o.optimizer_nvme, o.parameters_nvme) for _, _, o, _ in self.ways], dtype=float)
        if not drives.any():
            return columns
        return {**columns, **{name: drives[:, i][None, :] for i, name in enumerate(_DRIVE_COLUMNS)}}


def _layout_values(layout: Layout) -> tuple[float, ...]:
    return tuple(float(getattr(layout, name) or 0) for name in LAYOUT_COLUMNS)


def grid_columns(space: TrainingSpace) -> dict[str, Any]:
    """Return what `compose_training` takes, for all cells of a space: layouts down, ways across.

    Micro-batches of a step are rounded as for one candidate; where they do not divide, the cell is masked.
    """
    import numpy as np  # noqa: PLC0415  serving does without

    load = space.base.workload
    assert isinstance(load, Training)
    columns: dict[str, Any] = {
        **dict.fromkeys(_DRIVE_COLUMNS, 0.0),
        **space.layout_columns(),
        **space.way_columns(),
    }
    rank_batch = load.global_batch_size / (columns["dp"] * columns["micro_batch_size"])
    columns["num_micro_batches"] = np.maximum(1.0, np.round(rank_batch))
    columns["seq_len"] = float(load.seq_len)
    columns["lora_rank"] = float(load.lora_rank)
    columns["num_cpu_expert_layers"] = float(space.base.offload.num_cpu_expert_layers)
    return columns


def training_space(
    base: Candidate, software: TrainingWays, cluster: Cluster, pins: Mapping[str, Any], *, may_offload: bool = True
) -> TrainingSpace:
    """Return the space of one software and precision; a pinned field has its one value."""
    num_devices = cluster.num_devices if software.spans_devices else 1
    layouts = tuple(dict.fromkeys(_layouts(base, software, num_devices, pins)))
    load = base.workload
    assert isinstance(load, Training)
    pinned = pins.get("micro_batch_size")
    batches = (pinned,) if pinned else divisors(load.global_batch_size)
    offloads = _offloads(base, software, cluster, pins) if may_offload else (base.offload,)
    modes = _modes(base, software, pins)
    ways = [
        (mode, every, offload, micro)
        for (mode, every), offload, micro in product(modes, offloads, batches)
        if not (offload.activations and mode is not Recompute.FULL) or "offload.activations" in pins
    ]
    return TrainingSpace(
        base=base, software=software, layouts=layouts, ways=tuple(ways), num_devices=num_devices, pinned=frozenset(pins)
    )


def _modes(base: Candidate, software: TrainingWays, pins: Mapping[str, Any]) -> tuple[tuple[Recompute, int], ...]:
    names = [base.recompute] if "recompute" in pins else [Recompute(name) for name in software.recompute]
    every = (base.recompute_every,) if "recompute_every" in pins else _EVERY if software.counts_groups else (1,)
    return tuple((name, n) for name in names for n in (every if name is Recompute.FULL else every[:1]))


def _offloads(
    base: Candidate, software: TrainingWays, cluster: Cluster, pins: Mapping[str, Any]
) -> tuple[Offload, ...]:
    """Return what may be moved to the host, each more than the last; and then what may go on to its drive."""
    if any(path in pins for path in (*_OFFLOAD_PINS, *_DRIVE_PINS)):
        return (_completed(base.offload, pins),)
    load = base.workload
    assert isinstance(load, Training)
    trains_all = load.kind in (TrainingKind.FULL, TrainingKind.PRETRAIN)
    can = software.offload
    found = [Offload()]
    if "optimizer" in can and trains_all:
        found.append(Offload(optimizer=True))
    if "parameters" in can:
        found.append(Offload(optimizer=trains_all, parameters=True))
    if "activations" in can:
        found += [replace(one, activations=True) for one in found]
    return (*found, *_swapped(found, software, cluster))


def _completed(offload: Offload, pins: Mapping[str, Any]) -> Offload:
    """Return what is fixed to be on the drive as moved, unless that it is not moved is fixed as well."""
    return replace(
        offload,
        optimizer=offload.optimizer or (offload.optimizer_nvme and "offload.optimizer" not in pins),
        parameters=offload.parameters or (offload.parameters_nvme and "offload.parameters" not in pins),
    )


def _swapped(offloads: Sequence[Offload], software: TrainingWays, cluster: Cluster) -> tuple[Offload, ...]:
    """Return what may swap with the machine's drive; without one there is none.

    Notes
    -----
    A way that swaps takes as much of the device as its sibling in host memory, and the drive's traffic comes on top: it
    is never faster. `judge` keeps of what moves something only what is faster than all before, so it drops this unless
    the sibling does not fit the host.
    """
    if "nvme" not in software.offload or cluster.node.host.drive is None:
        return ()
    return (
        *(replace(one, optimizer_nvme=True) for one in offloads if one.optimizer),
        *(replace(one, optimizer_nvme=one.optimizer, parameters_nvme=True) for one in offloads if one.parameters),
    )


def _layouts(base: Candidate, software: TrainingWays, num_devices: int, pins: Mapping[str, Any]) -> Iterator[Layout]:
    """Yield the layouts that use all devices, or, where pinned ways leave a rest, as many as they divide."""
    fixed = {name: pins.get(f"layout.{name}") for name in _LAYOUT_PINS}
    can = software.ways
    model = base.model
    found: list[tuple[int, int, int, int]] = []
    for tp in _axis(fixed["tp"], num_devices, "tp" in can):
        for pp in _axis(fixed["pp"], num_devices // tp or 1, "pp" in can):
            for cp in _axis(fixed["cp"], num_devices // (tp * pp) or 1, "cp" in can):
                rest = max(1, num_devices // (tp * pp * cp))
                found.append((fixed["dp"] or rest, tp, pp, cp))
    whole = [one for one in found if one[0] * one[1] * one[2] * one[3] == num_devices]
    for dp, tp, pp, cp in whole or found:
        has_experts = num_experts(model) > 0 and "ep" in can
        for ep in _axis(fixed["ep"], dp * tp * cp, has_experts):
            for zero in _stages(software, fixed["zero_stage"], dp * cp):
                for virtual, first, last in _chunks(base, software, pp, fixed["num_virtual_stages"], pins):
                    yield Layout(
                        dp=dp,
                        tp=tp,
                        pp=pp,
                        cp=cp,
                        ep=ep,
                        zero_stage=zero,
                        num_virtual_stages=virtual,
                        has_sequence_parallel=pins.get("layout.has_sequence_parallel", tp > 1),
                        first_stage_layers=first,
                        last_stage_layers=last,
                    )


def _axis(pinned: int | None, most: int, can: bool) -> Sequence[int]:
    return (pinned,) if pinned else divisors(most) if can else (1,)


def _stages(software: TrainingWays, pinned: int | None, ranks: int) -> Sequence[int]:
    if pinned is not None:
        return (pinned,)
    return software.zero if ranks > 1 else (0,)


def _chunks(
    base: Candidate, software: TrainingWays, pp: int, pinned: int | None, pins: Mapping[str, Any]
) -> Sequence[tuple[int, int | None, int | None]]:
    """Return how many chunks of layers a rank may hold, with the layers of the first and the last rank if fewer.

    Where the layers with embedding and loss, each counted as one, divide evenly, the ends may hold one layer less.
    Where neither divides, and the number of ranks is fixed or the software wants equal ranks between the ends, the ends
    share what those leave.
    """
    if pp == 1:
        return ((pinned or 1, None, None),)
    ends = pins.get("layout.first_stage_layers"), pins.get("layout.last_stage_layers")
    if ends != (None, None):
        return ((pinned or 1, *ends),)
    layers = base.model.num_layers
    found: list[tuple[int, int | None]] = []
    for total, less in ((layers, 0), (layers + 2, 1)):
        each = total // pp
        if total % pp == 0 and each > less:
            chunks = divisors(each) if software.interleaves else (1,)
            found += [(n, each - 1 if less else None) for n in chunks]
    if not found and (pins.get("layout.pp") or software.needs_even_stages):
        return ((pinned or 1, *_uneven_ends(layers, pp)),)
    if not found or pinned:
        found = [(pinned or 1, ends) for ends in dict.fromkeys(ends for _, ends in found or [(1, None)])]
    return [(number, ends, ends) for number, ends in found]


def _uneven_ends(num_layers: int, pp: int) -> tuple[int | None, int | None]:
    """Return the layers of the first and the last rank where all between hold equally many; none where it cannot be.

    >>> _uneven_ends(61, 16), _uneven_ends(3, 16)
    ((3, 2), (None, None))
    """
    rest = num_layers - -(-num_layers // pp) * (pp - 2)
    return (rest - rest // 2, rest // 2) if pp > 2 and rest >= 2 else (None, None)
