"""The grid answers as brute force does: each candidate by itself, its own rules, the estimate for one candidate."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage import api
from tonnage.cli.plan_text import to_lines
from tonnage.estimate.compose_training import (
    case_of,
    columns_of,
    estimate_training,
    memory_of,
    step_timing,
    training_constants,
)
from tonnage.estimate.compose_training.case import filled
from tonnage.estimate.compose_training.memory import rank_memory
from tonnage.estimate.compose_training.stack import stacked
from tonnage.estimate.types import Candidate, Layout, Offload, Recompute
from tonnage.plan.request import make_request
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.search.explore import Fixed
from tonnage.search.rank import loses_updates, ranked
from tonnage.search.training import Grid, bases, explore_training, fastest_on_each, judge, may_be
from tonnage.search.training_space import grid_columns, training_space, training_ways
from tonnage.workload.types import Training, TrainingKind

SMALL = api.read_model("Qwen/Qwen3-0.6B")
SPARSE = api.read_model("Qwen/Qwen3-30B-A3B")
WAYS = {ways.name: ways for ways in training_ways()}
WAY_NAMES = ("tp", "pp", "cp", "ep")


def spaces(model, load, gpu, count, name, nodes=1, pins=None, host=None):
    cluster = place(Where(gpus=((gpu, count),), num_nodes=nodes, host=host)).cluster
    base = Candidate(model=model, workload=load, cluster=cluster, engine=name)
    return [training_space(one, WAYS[name], cluster, pins or {}) for one in bases(base, WAYS[name], Fixed())]


def is_even(layout, model):
    """Whether ranks hold equally many layers, embedding and loss counted as one each, or all but the two ends do."""
    first, last = layout.first_stage_layers, layout.last_stage_layers
    if first is None:
        return model.num_layers % (layout.pp * layout.num_virtual_stages) == 0
    if first == last and (first + 1) * layout.pp == model.num_layers + 2:
        return (model.num_layers + 2) % (layout.pp * layout.num_virtual_stages) == 0
    rest = model.num_layers - first - last
    return layout.num_virtual_stages == 1 and rest > 0 and rest % (layout.pp - 2) == 0


def may_run(candidate, name):
    """Say by itself, without columns, whether a candidate can be started: written apart from `constraints`."""
    soft, layout, load, model = WAYS[name], candidate.layout, candidate.workload, candidate.model
    heads = [m for layer in model.layers for m in layer.mixers]
    kv = {m.num_kv_heads for m in heads}
    experts = 128 if model is SPARSE else 0
    if layout.num_devices > candidate.cluster.num_devices:
        return False
    if candidate.precision.compute == "fp8" and not candidate.cluster.node.devices[0].flop_per_s.get("fp8"):
        return False
    if any(getattr(layout, way) > 1 and way not in soft.ways for way in WAY_NAMES):
        return False
    if any(m.num_heads % layout.tp for m in heads) or layout.tp > len(candidate.cluster.node.devices):
        return False
    if any(n % layout.tp for n in kv) and not (soft.repeats_kv_heads and all(layout.tp % n == 0 for n in kv)):
        return False
    stages = layout.pp * layout.num_virtual_stages
    counted = model.num_layers + 2 * bool(layout.first_stage_layers)
    if stages > model.num_layers or (soft.needs_even_stages and layout.pp > 1 and not is_even(layout, model)):
        return False
    if layout.pp > 1 and layout.zero_stage > soft.most_zero_with_pipeline:
        return False
    if load.global_batch_size % (layout.dp * candidate.micro_batch_size):
        return False
    batches = load.global_batch_size // (layout.dp * candidate.micro_batch_size)
    if layout.num_virtual_stages > 1 and batches % layout.pp:
        return False
    if soft.fills_pipeline and layout.pp > 1 and batches < stages:
        return False
    halves = 2 * layout.cp if layout.cp > 1 else 1
    if load.seq_len % (halves * (layout.tp if layout.has_sequence_parallel else 1)):
        return False
    if layout.ep > 1 and (experts % layout.ep or (layout.dp * layout.tp * layout.cp) % layout.ep):
        return False
    each = -(-counted // stages)
    if candidate.recompute_every > 1 and each % candidate.recompute_every:
        return False
    moved = candidate.offload.optimizer or candidate.offload.parameters
    is_quantized = candidate.precision.weights not in ("bf16", "fp16", "fp32")
    if moved and is_quantized and layout.num_devices < soft.min_devices_for_quantized_offload:
        return False
    offload, is_sharded = candidate.offload, layout.zero_stage == 3 or layout.num_devices == 1
    if offload.optimizer_nvme or offload.parameters_nvme:
        drive, held = candidate.cluster.node.host.drive, estimate_training(candidate).storage.offload_bytes
        if not is_sharded or drive is None or held > drive.free_bytes:
            return False
    return is_sharded or not offload.parameters


def brute(space):
    """Estimate every cell that can run, one by one."""
    every = [space.candidate(i, j) for i, j in product(*(range(n) for n in space.shape))]
    return [estimate_training(c) for c in every if may_run(c, space.software.name)]


CASES = [
    (SMALL, Training(kind=TrainingKind.FULL, seq_len=512, global_batch_size=4), "rtx-3090", 2, "transformers"),
    (SMALL, Training(kind=TrainingKind.PRETRAIN, seq_len=2048, global_batch_size=4), "rtx-4090", 2, "megatron"),
    (SMALL, Training(kind=TrainingKind.FULL, seq_len=4096, global_batch_size=6), "t4", 2, "torchtitan"),
    (SMALL, Training(kind=TrainingKind.LORA, seq_len=2048, global_batch_size=8), "rtx-4080", 1, "deepspeed"),
    (SMALL, Training(kind=TrainingKind.LORA, seq_len=2048, global_batch_size=8), "gtx-1070", 1, "unsloth"),
    (SPARSE, Training(kind=TrainingKind.PRETRAIN, seq_len=1024, global_batch_size=4), "h200-sxm5", 4, "megatron"),
]


# Host memory that holds all, the optimizer on a drive only, nothing but buffers, not even these; a drive too small.
FULL = Training(kind=TrainingKind.FULL, seq_len=512, global_batch_size=4)
DRIVES = [
    (SMALL, FULL, "rtx-3090", 2, "deepspeed", "64 GiB ddr5-5600 x2, nvme 2 TB 7/5 GB/s"),
    (SPARSE, FULL, "rtx-3090", 4, "deepspeed", "400 GiB ddr5-5600 x8, nvme 2 TB 7/5 GB/s"),
    (SPARSE, FULL, "rtx-3090", 4, "deepspeed", "200 GiB ddr5-5600 x8, nvme 2 TB 7/5 GB/s"),
    (SPARSE, FULL, "rtx-3090", 2, "deepspeed", "128 GiB ddr5-5600 x8, nvme 2 TB 7/5 GB/s"),
    (SPARSE, FULL, "rtx-3090", 1, "deepspeed", "32 GiB ddr5-5600 x2, nvme 2 TB"),
    (SPARSE, FULL, "rtx-3090", 4, "deepspeed", "200 GiB ddr5-5600 x8, nvme 500 GB"),
    (SMALL, FULL, "rtx-3090", 2, "torchtitan", "64 GiB ddr5-5600 x2, nvme 2 TB"),
]


def _case_id(case):
    return f"{case[4]}-{case[2]}x{case[3]}-{(case[5] or 'usual').replace(' ', '-')}"


@pytest.mark.parametrize("case", [(*c, None) for c in CASES] + DRIVES, ids=_case_id)
def test_the_grid_finds_what_brute_force_finds(case):
    model, load, gpu, count, name, host = case
    for space in spaces(model, load, gpu, count, name, host=host):
        found, every = judge(space), brute(space)
        assert len(every) == may_be(space, grid_columns(space))[0].sum()
        sure = [e for e in every if e.footprint.fits_surely]
        fitting = sure or [e for e in every if e.footprint.fits]
        assert bool(found.kept) == bool(fitting)
        if not every:
            assert not found.short
            continue
        if not fitting:
            least = min(e.footprint.short_by_bytes for e in every)
            assert found.short[0].footprint.short_by_bytes == least
            continue
        rate = max(e.performance.tokens_per_s.best for e in fitting)
        assert found.kept[0].performance.tokens_per_s.best == pytest.approx(rate, rel=1e-9)
        assert all(e.footprint.fits_surely == bool(sure) for e in found.kept)


@settings(max_examples=15)
@given(st.data())
def test_a_cell_is_estimated_as_its_candidate_is(data):
    model = data.draw(st.sampled_from([SMALL, SPARSE]))
    name = data.draw(st.sampled_from(["megatron", "torchtitan", "deepspeed"]))
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=2048, global_batch_size=16)
    space = data.draw(st.sampled_from(spaces(model, load, "h100-sxm5", 8, name, nodes=2)))
    grid = Grid(space)
    rows = np.flatnonzero(grid.alive.any(axis=1))
    some = np.array(data.draw(st.lists(st.sampled_from(rows.tolist()), min_size=1, max_size=3, unique=True)))
    (device, host), rates = grid.memory(some), grid.rates(some)
    way = data.draw(st.integers(0, space.shape[1] - 1))
    for place_, row in enumerate(some):
        if grid.alive[row, way]:
            one = estimate_training(space.candidate(int(row), way))
            assert device[place_, way] == pytest.approx(one.footprint.total.best, rel=1e-9)
            assert host[place_, way] == pytest.approx(one.footprint.host_total.best, rel=1e-9)
            assert rates[place_, way] == pytest.approx(one.performance.tokens_per_s.best, rel=1e-9)


@given(
    st.sampled_from(["megatron", "torchtitan", "deepspeed", "transformers"]),
    st.sampled_from([2, 4, 6, 8]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([8, 12, 30]),
)
@settings(max_examples=12)
def test_every_cell_is_kept_or_counted_under_one_reason(name, count, nodes, batch):
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=1000, global_batch_size=batch)
    for space in spaces(SMALL, load, "a100-sxm4-80gb", count, name, nodes=nodes):
        alive, out = may_be(space, grid_columns(space))
        assert alive.sum() + sum(one.num_candidates for one in out) == alive.size
        assert len({one.reason for one in out}) == len(out)
        assert all(one.reason for one in out)
        rows, ways = np.nonzero(alive)
        for row, way in list(zip(rows.tolist(), ways.tolist(), strict=True))[:: max(1, len(rows) // 20)]:
            assert may_run(space.candidate(row, way), name)


def test_a_drive_is_used_only_where_host_memory_is_too_small():
    """Brute force over hosts: of what swaps, something is kept if and only if no sibling in host memory fits."""
    seen = set()
    for size in (64, 400, 1200):
        host = f"{size} GiB ddr5-5600 x8, nvme 2 TB 7/5 GB/s"
        for space in spaces(SPARSE, FULL, "rtx-3090", 4, "deepspeed", host=host):
            found, every = judge(space), brute(space)
            kept = any(e.candidate.offload.optimizer_nvme for e in found.kept)
            on_host = [e for e in every if not e.candidate.offload.optimizer_nvme and e.footprint.fits_surely]
            swapping = [e for e in every if e.candidate.offload.optimizer_nvme and e.footprint.fits_surely]
            assert kept == (bool(swapping) and not on_host)
            seen.add((kept, bool(on_host)))
    assert seen == {(False, False), (True, False), (False, True)}


@pytest.mark.parametrize(
    ("name", "drive", "pins", "said"),
    [
        ("deepspeed", "", {"offload.optimizer_nvme": True}, "no drive is named"),
        ("deepspeed", ", nvme 1 GB", {"offload.optimizer_nvme": True, "layout.zero_stage": 3}, "would lie on a machine's drive"),
        ("deepspeed", ", nvme 2 TB", {"offload.optimizer_nvme": True, "layout.zero_stage": 2}, "at ZeRO 3 only"),
        ("deepspeed", ", nvme 2 TB", {"offload.optimizer_nvme": True, "optimizer": "muon"}, "steps adamw in host memory, not muon"),
        ("megatron", ", nvme 2 TB", {"offload.optimizer_nvme": True}, "megatron swaps nothing with a drive"),
        (
            "deepspeed", ", nvme 2 TB", {"offload.optimizer_nvme": True, "offload.optimizer": False},
            "says nothing without --set offload.optimizer=true",
        ),
    ],
)  # fmt: skip
def test_what_does_not_swap_says_why(name, drive, pins, said):
    request = make_request(
        "Qwen/Qwen3-0.6B", goal="finetune", finetune="full", gpus=["rtx-3090:2"], host=f"64 GiB ddr5-5600 x2{drive}",
        limits={"engines": [name]}, pins=pins,
    )  # fmt: skip
    answer = api.plan(request)
    assert not answer.plans
    assert any(said in one.reason for one in answer.rejections)


def test_a_layout_that_megatron_refuses_is_not_offered():
    model = api.read_model("meta-llama/Meta-Llama-3.1-405B")
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=8192, global_batch_size=2048)
    cluster = place(Where(gpus=(("h100-sxm5", 8),), num_nodes=2048)).cluster
    found = explore_training(model, load, cluster, [WAYS["megatron"]], Fixed())
    assert found.kept
    assert found.num_candidates > 100_000
    for estimate in found.kept:
        layout = estimate.candidate.layout
        assert layout.num_devices == 16384
        counted = 126 + 2 * bool(layout.first_stage_layers)
        assert counted % (layout.pp * layout.num_virtual_stages) == 0
    assert sum(one.num_candidates for one in found.ruled_out) < found.num_candidates


def test_unequal_ends_are_found_where_no_equal_ranks_are():
    """61 layers divide by no power of two, with embedding and loss neither; as DeepSeek-V3 was trained, on 16 ranks."""
    model = api.read_model("deepseek-ai/DeepSeek-V3")
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=4096, global_batch_size=8192)
    space = spaces(model, load, "h100-sxm5", 8, "megatron", nodes=128)[0]
    alive, _ = may_be(space, grid_columns(space))
    rows = np.flatnonzero(alive.any(axis=1))
    ends = {
        (space.layouts[r].pp, space.layouts[r].first_stage_layers, space.layouts[r].last_stage_layers) for r in rows
    }
    assert {pp for pp, _, _ in ends} == {1, 4, 8, 16}
    assert all(is_even(space.layouts[r], model) for r in rows if space.layouts[r].pp > 1)
    assert (16, 3, 2) in ends


@pytest.mark.parametrize(
    ("ends", "held"), [({}, (3, 2)), ({"first": 1}, (1, None)), ({"first": 3, "last": 2}, (3, 2)), ({"first": 4}, None)]
)
def test_megatron_takes_unequal_ends_where_the_ranks_between_are_equal(ends, held):
    pins = {f"layout.{end}_stage_layers": number for end, number in ends.items()}
    words = {"layout.tp": 1, "layout.pp": 16, "layout.ep": 64, **pins}
    request = make_request(
        "deepseek-ai/DeepSeek-V3",
        goal="pretrain",
        gpus=["h100-sxm5:8"],
        nodes=128,
        load={"global_batch": "8192"},
        limits={"engines": ["megatron"]},
        pins=words,
    )
    answer = api.plan(request)
    assert bool(answer.plans) == (held is not None)
    if answer.plans:
        layout = answer.plans[0].estimate.candidate.layout
        assert (layout.first_stage_layers, layout.last_stage_layers) == held
    else:
        refused = answer.rejections[0]
        assert "57 layers are left for 15 equal stages" in refused.reason
        assert not any("A100" in change.what or "of this card" in change.what for change in refused.changes)
        assert any("128 x (8 x h100-sxm5)" in line for line in to_lines(answer))


def test_a_short_first_rank_leaves_the_next_the_fullest():
    pins = {"layout.pp": 4, "layout.first_stage_layers": 2, "layout.last_stage_layers": 2, "layout.tp": 1}
    words = {"goal": "pretrain", "gpus": ["h100-sxm5:4"], "limits": {"engines": ["megatron"]}, "pins": pins}
    request = make_request("meta-llama/Llama-2-7b-hf", load={"seq_len": "1024", "global_batch": "16"}, **words)
    answer = api.plan(request)
    cell = (answer.plans or answer.rejections)[0].estimate.candidate
    case, x, constants = case_of(cell), filled(columns_of(cell)), training_constants()
    first, second, last = (rank_memory(case, constants, x, rank) for rank in ("first", "second", "last"))
    held = memory_of(case, x, constants, "driver", "fullest")
    assert held.total == second.total
    assert second.total > max(first.total, last.total)


def test_a_pinned_axis_has_its_one_value():
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=2048, global_batch_size=16)
    pins = {"layout.tp": 2, "micro_batch_size": 4}
    space = spaces(SMALL, load, "h100-sxm5", 8, "megatron", pins=pins)[0]
    assert {layout.tp for layout in space.layouts} == {2}
    assert {way[3] for way in space.ways} == {4}
    assert len({layout.pp for layout in space.layouts}) > 1


def test_one_cell_is_the_candidate_that_it_stands_for():
    load = Training(kind=TrainingKind.FULL, seq_len=2048, global_batch_size=16)
    space = spaces(SMALL, load, "h100-sxm5", 1, "deepspeed")[0]
    way = space.ways.index((Recompute.FULL, 1, Offload(optimizer=True), 8))
    candidate = space.candidate(0, way)
    assert candidate == replace(
        space.base,
        layout=Layout(),
        recompute=Recompute.FULL,
        offload=Offload(optimizer=True),
        micro_batch_size=8,
    )


def test_one_software_that_cannot_is_ruled_out_with_its_reason():
    load = Training(kind=TrainingKind.QLORA, seq_len=512, global_batch_size=8)
    found = explore_training(SMALL, load, place(Where(gpus=(("mi300x", 1),))).cluster, training_ways(), Fixed())
    reasons = {one.engine: one.reason for one in found.ruled_out}
    assert "qlora" in reasons["torchtitan"]
    assert "megatron" in reasons


@pytest.mark.parametrize("kind", [TrainingKind.FULL, TrainingKind.LORA, TrainingKind.QLORA])
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("may_offload", [False, True])
def test_many_cards_at_once_are_each_by_itself(kind, count, may_offload):
    names = (
        "t4",
        "rtx-4080",
        "rtx-3090",
        "h100-sxm5",
        "mi300x",
        "arc-b580",
        "gaudi2",
        "gtx-1070",
        "rtx-5090",
        "v100-sxm2-32gb",
    )
    load = Training(kind=kind, seq_len=2048, global_batch_size=8)
    clusters = [place(Where(gpus=((name, count),))).cluster for name in names]
    fixed = Fixed(may_offload=may_offload)
    together, looked = fastest_on_each(SMALL, load, clusters, training_ways(), fixed)
    alone = [explore_training(SMALL, load, cluster, training_ways(), fixed) for cluster in clusters]
    num_not_asked = sum(
        one.num_candidates == 1 for found in alone for one in found.ruled_out if "does not" in one.reason
    )
    narrow = 2 if kind is TrainingKind.FULL else 0  # recipes in eight bits are left out, each as large as its sibling
    assert looked * (1 + narrow / 2) >= sum(found.num_candidates for found in alone) - num_not_asked
    assert any(together)
    for fastest, found in zip(together, alone, strict=True):
        sure = [e for e in found.kept if e.footprint.fits_surely]
        fitting = [e for e in sure or found.kept if e.candidate.precision.compute != "fp8"]
        fitting = [e for e in fitting if not loses_updates(e.candidate)] or fitting
        assert (fastest is None) == (not fitting)
        if fastest is not None:
            rates = [e.performance.tokens_per_s.best for e in fitting]
            assert fastest.tokens_per_s == pytest.approx(max(rates), rel=1e-9)
            estimate = estimate_training(fastest.candidate)
            assert estimate.performance.tokens_per_s.best == pytest.approx(fastest.tokens_per_s, rel=1e-9)
            assert estimate.footprint.fits_surely == fastest.is_sure == bool(sure)


def test_a_stack_of_cards_is_timed_as_each_is():
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=2048, global_batch_size=16)
    names = ("h100-sxm5", "a100-pcie-80gb", "rtx-4090", "b200", "l40s", "rtx-2080-ti")
    candidates = [
        Candidate(model=SPARSE, workload=load, cluster=place(Where(gpus=((n, 8),))).cluster, engine="megatron")
        for n in names
    ]
    constants = training_constants()
    case, stack = stacked([case_of(one) for one in candidates], constants)
    together = step_timing(case, stack, filled(columns_of(candidates[0]))).total
    for number, one in enumerate(candidates):
        alone = step_timing(case_of(one), constants, filled(columns_of(one))).total
        assert together[number, 0, 0] == pytest.approx(float(alone), rel=1e-12)


@pytest.mark.parametrize("name", ["megatron", "torchtitan"])
@pytest.mark.parametrize("model", [SMALL, SPARSE], ids=["dense", "experts"])
def test_a_recipe_in_eight_bits_holds_what_its_sibling_holds(name, model):
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=2048, global_batch_size=8)
    plain, narrow = (Grid(space) for space in spaces(model, load, "h100-sxm5", 4, name))
    rows = np.flatnonzero(plain.alive.any(axis=1))
    assert narrow.case.precision.compute == "fp8"
    assert np.array_equal(plain.alive, narrow.alive)
    assert np.allclose(plain.memory(rows), narrow.memory(rows), rtol=1e-12)
    found = explore_training(model, load, place(Where(gpus=(("h100-sxm5", 4),))).cluster, training_ways(), Fixed())
    assert ranked(found.kept, "throughput")[0].candidate.precision.compute == "bf16"


def test_a_card_without_eight_bits_is_asked_for_none():
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=2048, global_batch_size=8)
    cluster = place(Where(gpus=(("a100-sxm4-80gb", 8),))).cluster
    found = explore_training(SMALL, load, cluster, [WAYS["megatron"]], Fixed())
    assert all(one.candidate.precision.compute == "bf16" for one in found.kept)
    assert any("does not compute in fp8" in one.reason for one in found.ruled_out)
