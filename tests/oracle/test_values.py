"""What a trace says, from timelines and depths made by hand: no torch."""

from __future__ import annotations

import sys

import pytest

from tonnage.errors import OutsideError, RequestError
from tonnage.oracle.depths import extrapolated_phases, stacks
from tonnage.oracle.fit import fits
from tonnage.oracle.model import require_torch
from tonnage.oracle.timeline import FORWARD, HEAD_BACKWARD, STEP, left, phases
from tonnage.oracle.types import Job, KindKept, Snapshot, Timeline, Traced
from tonnage.workload.types import TrainingKind

GIB = 1 << 30


def test_stacks_hold_the_first_and_the_last_of_each_kind():
    dense_first = stacks("ddd" + "m" * 58)
    assert dense_first.base == (0, 2, 3, 60)
    assert dense_first.added == (1, 4)
    assert dense_first.longer == ((0, 1, 2, 3, 60), (0, 2, 3, 4, 60))
    assert dense_first.factors == (1, 56)
    assert stacks("ab").longer == ()
    assert stacks("lllflllf").base == (0, 3, 6, 7)


def test_phases_are_the_fullest_moments_and_the_later_of_two_steps():
    line = Timeline(
        events=((0, 10), (1, 5), (2, 7), (2, -7), (1, -5), (3, 2), (1, 5), (4, 1), (4, -1), (1, -5), (5, 20), (5, -20)),
        pools={0: "weights", 1: "activations", 3: "optimizer_states"},
        marks=((1, FORWARD), (3, HEAD_BACKWARD), (5, STEP), (6, FORWARD), (8, HEAD_BACKWARD), (10, STEP)),
    )
    found = phases(line)
    assert {name: moment.total_bytes for name, moment in found.items()} == {
        "start": 10, FORWARD: 18, HEAD_BACKWARD: 18, STEP: 32,
    }  # fmt: skip
    assert found[STEP].pools == {"weights": 10, "optimizer_states": 2, "temporaries": 20}
    assert left(line, HEAD_BACKWARD).pools == {"weights": 10, "activations": 5, "optimizer_states": 2, "temporaries": 1}


def test_extrapolation_is_linear_in_each_kind():
    def moment(dense: int, sparse: int) -> dict[str, Snapshot]:
        return {FORWARD: Snapshot(pools={"activations": 3.0 + 2 * dense + 5 * sparse})}

    found = extrapolated_phases(moment(2, 2), [moment(3, 2), moment(2, 3)], (1, 56))
    assert found[FORWARD].total_bytes == 3 + 2 * 3 + 5 * 58


def traced(job: Job) -> Traced:
    """A model of 8 GiB whose every sequence keeps 3 GiB, or 0.5 where layers are recomputed."""
    each = 0.5 if job.recomputes else 3.0
    moment = Snapshot(
        pools={"weights": 8.0 * GIB, "gradients": 8.0 * GIB, "activations": each * job.micro_batch_size * GIB}
    )
    return Traced(
        kept=moment,
        phases={HEAD_BACKWARD: moment},
        num_parameters=4 << 30,
        num_trained_parameters=4 << 30,
        num_layers=8,
        kept_by_kind=(KindKept(first_layer=0, num_layers=8, kept_bytes=each * GIB, weights_bytes=0.5 * GIB),),
        traced_layers=(2, 3),
    )


JOB = Job(config={"model_type": "new"}, kind=TrainingKind.FULL)


@pytest.mark.parametrize("num_devices", [1, 2, 8])
@pytest.mark.parametrize("mode", [False, True])
def test_the_largest_micro_batch_fits_and_one_more_does_not(mode, num_devices):
    found = fits(JOB, 40 * GIB, num_devices, traced, recomputes=mode).ways[0]
    assert found.short_by_bytes == 0
    more = fits(JOB, 40 * GIB, num_devices, traced, recomputes=mode, micro_batch_size=found.micro_batch_size + 1)
    assert more.ways[0].short_by_bytes > 0


def test_sharing_helps_and_what_does_not_fit_is_said():
    alone, shared = (fits(JOB, 40 * GIB, number, traced).ways[0] for number in (1, 8))
    assert shared.micro_batch_size > alone.micro_batch_size
    assert "gathered_weights" in shared.pools
    tight = fits(JOB, 17 * GIB, 1, traced).ways
    assert [way.short_by_bytes > 0 for way in tight] == [True, True]
    assert tight[0].micro_batch_size == 1
    assert fits(JOB, 40 * GIB, 8, traced, most_sequences=2).ways[0].micro_batch_size == 2
    recomputed = fits(JOB, 20 * GIB, 1, traced).ways
    assert [(way.recomputes, way.short_by_bytes > 0) for way in recomputed] == [(True, False), (False, True)]


def test_missing_torch_is_one_line_with_its_cure(monkeypatch, tonnage):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OutsideError, match=r"torch is not installed.*tonnage\[trace\]"):
        require_torch()
    answer = tonnage("plan", "Qwen/Qwen3-8B", "--finetune", "full", "--gpu", "h100-sxm", "--oracle")
    assert answer.code == 4
    assert answer.out == ""
    assert answer.err == "tonnage: --oracle: torch is not installed; pip install 'tonnage[trace]'\n"


def test_a_trace_is_of_training(monkeypatch, tonnage):
    monkeypatch.setattr("tonnage.oracle.model.require_torch", lambda: None)
    monkeypatch.setattr("tonnage.oracle.ask.trace", traced)
    answer = tonnage("plan", "Qwen/Qwen3-8B", "--serve", "--gpu", "h100-sxm", "--oracle")
    assert answer.code == 2
    assert "it traces training" in answer.err


def test_a_family_without_formulae_is_answered_by_traces(monkeypatch, tonnage, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "wholly_new", "hidden_size": 8}', encoding="utf-8")
    monkeypatch.setattr("tonnage.oracle.model.require_torch", lambda: None)
    monkeypatch.setattr("tonnage.oracle.ask.trace", lambda job, **_: traced(job))
    words = ("plan", str(config), "--finetune", "full", "--gpu", "h100-sxm:2", "--oracle")
    answer = tonnage(*words)
    assert answer.code == 0
    assert "no formula covers the family 'wholly_new'" in answer.out
    found = tonnage(*words, "--json").json
    assert found["schema"] == 1
    assert found["plans"] == []
    ways = found["oracle"]["ways"]
    assert [way["recompute"] for way in ways] == ["none", "full"]
    assert all(way["fits"] and sum(way["pools"].values()) == pytest.approx(way["total_bytes"]) for way in ways)
    small = tonnage("plan", str(config), "--finetune", "full", "--gpu", "rtx-3060", "--oracle", "--json")
    assert small.code == 3
    assert small.json["oracle"]["ways"][0]["short_by_bytes"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--recompute", "selective"), "is not traced; none or full"),
        (("--optimizer", "adafactor"), "is not traced; adamw_bf16"),
    ],
)
def test_what_cannot_be_traced_is_refused(monkeypatch, tonnage, tmp_path, words, said):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "wholly_new"}', encoding="utf-8")
    monkeypatch.setattr("tonnage.oracle.model.require_torch", lambda: None)
    answer = tonnage("plan", str(config), "--finetune", "full", "--gpu", "h100-sxm", "--oracle", *words)
    assert answer.code == 2
    assert said in answer.err


def test_cards_are_named():
    from tonnage.oracle.ask import fits_of
    from tonnage.plan.request import make_request

    request = make_request("new", goal="finetune", finetune="full")
    with pytest.raises(RequestError, match="no card"):
        fits_of(request, {"model_type": "new"})
