"""A plan file reads back to the same plan, and nothing else passes for one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.nouns import make_candidate, make_estimate

from tonnage.errors import BadFileError
from tonnage.estimate.types import EngineSettings, Layout, Recompute
from tonnage.plan import file
from tonnage.plan.file import read_plan, write_plan
from tonnage.plan.request import make_request
from tonnage.plan.types import Plan
from tonnage.workload.types import Training, TrainingKind

REQUEST = make_request(
    "Qwen/Qwen3.5-27B", gpus=["rtx-4080:2"], pins={"layout.tp": 2}, load={"context": "32k", "ttft": "2s"}
)
PLAN = Plan(
    rank=1, request=REQUEST, estimate=make_estimate(), kind="layers in host memory", reasons=('says "yes"\n\x7f',)
)


def test_a_plan_reads_back_to_the_same_plan():
    assert read_plan(write_plan(PLAN)) == PLAN


@given(
    tp=st.integers(1, 64),
    micro=st.integers(1, 512),
    recompute=st.sampled_from(Recompute),
    utilization=st.none() | st.floats(0.01, 1.0),
    extra=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    total=st.floats(0, 1e15),
    targets=st.lists(st.text(max_size=5), max_size=3),
)
def test_every_candidate_reads_back(*, tp, micro, recompute, utilization, extra, total, targets):
    candidate = make_candidate(
        layout=Layout(tp=tp),
        micro_batch_size=micro,
        recompute=recompute,
        settings=EngineSettings(utilization_ratio=utilization, extra=extra),
        workload=Training(kind=TrainingKind.QLORA, seq_len=1, global_batch_size=1, lora_targets=tuple(targets)),
    )
    plan = replace(PLAN, estimate=make_estimate(candidate, total=total))
    assert read_plan(write_plan(plan)) == plan


def test_an_older_format_is_migrated(monkeypatch):
    """A table of format 0, which called the rank "place", becomes today's."""

    def from_zero(table):
        return {**{n: v for n, v in table.items() if n != "place"}, "rank": table["place"]}

    monkeypatch.setitem(file.MIGRATIONS, 0, from_zero)
    old = write_plan(PLAN).replace("format = 1", "format = 0").replace("rank = 1", "place = 1")
    assert read_plan(old) == PLAN


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("format = 1", "format = 99", "newer"),
        ("format = 1", "format = -1", "not known"),
        ("format = 1", 'format = "1"', "not a plan file"),
        ("rank = 1", 'rank = "first"', "rank"),
        ("rank = 1", "", "rank is missing"),
        ("rank = 1", "rank = 1\nspeed = 2", "speed is not known"),
        ("[candidate]", "[candidate", "not a TOML file"),
        ("hidden_size = 512", "hidden_size = 5.5", "hidden_size"),
        ("order = [[0, 3]", "order = [[9, 3]", "order"),
        ("hidden_size = 512", "hidden_size = 0", "above zero"),
        ("rank = 1", "rank = 0", "above zero"),
        ("hidden_size = 512", "hidden_size = 1" + "0" * 400, "hidden_size"),
        ("best = 0.01", "best = 1" + "0" * 400, "best"),
        ("best = 0.01", "best = 0.5", "total"),
        ('engine = "llama.cpp"', 'engine = "evil"', "not known"),
        ("order = [[0, 3], [1, 1], [0, 3], [1, 1]]", "order = []", "no layers"),
        ("num_cpu_layers = 1", "num_cpu_layers = -1", "layers in host memory"),
        ("num_cpu_layers = 1", "num_cpu_layers = 99", "layers in host memory"),
        ("bytes = 8053063680.0", "bytes = 1.0", "sum"),
        ("bytes = 8053063680.0", "bytes = -1.0", "below zero"),
        ("order = [[0, 3]", "order = [[0, 99999999]", "order"),
    ],
)
def test_a_spoilt_file_is_refused_in_one_line(old, new, what):
    text = write_plan(PLAN)
    assert old in text
    with pytest.raises(BadFileError, match=what) as caught:
        read_plan(text.replace(old, new, 1), where="p.toml")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("p.toml")


def test_a_plan_without_devices_is_refused():
    text = re.sub(r"^devices = \[$.*?^\]$", "devices = []", write_plan(PLAN), flags=re.MULTILINE | re.DOTALL)
    with pytest.raises(BadFileError, match="no devices"):
        read_plan(text)


@given(st.text(max_size=200) | st.just("format = 1\nwritten_by='x'\n") | st.just("a=" + "[" * 5000))
def test_no_text_at_all_raises_anything_else(text):
    with pytest.raises(BadFileError):
        read_plan(text)


@given(st.integers(0, 5000), st.text("[]{}=\"'.,x0 \n", min_size=1, max_size=3))
def test_a_damaged_plan_is_refused_or_read(place, damage):
    text = write_plan(PLAN)
    place %= len(text)
    try:
        read_plan(text[:place] + damage + text[place + 1 :])
    except BadFileError as error:
        assert "\n" not in str(error)
