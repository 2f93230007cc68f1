"""Driver floors: of CUDA runtimes, of the releases that bring them, of cards; each reason with its cures."""

from __future__ import annotations

from pathlib import Path

import pytest

import tonnage
from tonnage import api, datafiles
from tonnage.engines import ENGINES, TRAINERS
from tonnage.engines.drivers import branch_of, floor_of, floors, newest_for, why_card_cannot, why_engine_cannot
from tonnage.engines.facts import version_key
from tonnage.errors import RequestError
from tonnage.hardware.catalogue import find_device
from tonnage.plan.request import make_request

DATA = Path(tonnage.__file__).parent / "data"


def test_every_row_names_an_engine_and_one_floor():
    known = {one.name for one in (*ENGINES, *TRAINERS)} | {"torch"}
    for row in datafiles.rows("engines/cuda.csv"):
        assert row["engine"] in known
        assert version_key(row["version"])
        assert bool(row["cuda_major"]) != bool(row["min_driver_branch"])
        assert row["source"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "torch", "ollama"])
def test_a_newer_release_needs_no_older_driver(engine):
    branches = [one.branch for one in floors(engine)]
    assert branches == sorted(branches)
    assert len(branches) > 1


@pytest.mark.parametrize(
    ("engine", "version", "branch"),
    [
        ("vllm", "0.33.0", 580), ("vllm", "0.24.0", 580), ("vllm", "0.14.2", 525), ("vllm", "0.4.0", None),
        ("sglang", "0.5.23", 580), ("ktransformers", "0.7.0", 525), ("ollama", "0.12", 531), ("llama.cpp", "b8000", None),
    ],
)  # fmt: skip
def test_a_release_between_two_on_record_has_the_floor_of_the_older(engine, version, branch):
    found = floor_of(engine, version)
    assert (found.branch if found else None) == branch


def test_the_reason_names_every_cure():
    h100, card = find_device("h100-sxm5"), find_device("rtx-4090")
    said = why_engine_cannot("vllm", "vLLM", "0.33.0", h100, "535.154.05")
    assert "needs R580" in said
    assert "take vLLM 0.19.0" in said
    assert "compatibility libraries" in said
    assert "compatibility libraries" not in why_engine_cannot("vllm", "vLLM", "0.33.0", card, "535")  # a game card
    assert "compatibility libraries" not in why_engine_cannot("vllm", "vLLM", "0.33.0", h100, "550")  # not on the list
    assert why_engine_cannot("vllm", "vLLM", "0.33.0", h100, "580.65.06") is None
    assert why_engine_cannot("vllm", "vLLM", "0.33.0", find_device("mi300x"), "535") is None
    assert newest_for("vllm", 524) is None


def test_a_card_has_a_first_and_a_last_driver():
    assert "R570 or newer" in why_card_cannot(find_device("rtx-5090"), "560.35")
    assert "R580 at most" in why_card_cannot(find_device("v100-sxm2-32gb"), "590.10")
    assert why_card_cannot(find_device("rtx-4090"), "535") is None
    assert why_card_cannot(find_device("mi300x"), "400") is None


@pytest.mark.parametrize(("text", "branch"), [("535.154.05", 535), ("R580", 580), ("r570.x", 570), ("12.8", None)])
def test_a_driver_is_read(text, branch):
    assert branch_of(text) == branch


def plan(**words):
    return api.plan(make_request("Qwen/Qwen3-0.6B", **words))


def test_an_old_driver_takes_engines_out_and_says_so():
    old, new = (plan(gpus=["rtx-4090"], driver=driver) for driver in ("535.154.05", "580.65.06"))
    assert {"vllm", "sglang"} & {one.estimate.candidate.engine for one in new.plans}
    assert not {"vllm", "sglang"} & {one.estimate.candidate.engine for one in old.plans}
    assert {one.what for one in old.rejections if "too old" in one.reason} == {"vllm", "sglang"}
    assert old.plans[0].estimate.candidate.cluster.node.driver == "535.154.05"
    assert not [one for one in new.rejections if "too old" in one.reason]


def test_what_is_left_is_the_answer_without_those_engines():
    """The mask changes nothing else: the plans are those of the engines that start."""
    old = plan(gpus=["rtx-4090"], driver="535")
    rest = [one.name for one in ENGINES if one.name not in ("vllm", "sglang")]
    alone = plan(gpus=["rtx-4090"], limits={"engines": rest})
    rates = [[one.estimate.performance for one in answer.plans] for answer in (old, alone)]
    assert rates[0] == rates[1]


def test_the_nearest_cure_is_a_driver():
    answer = plan(gpus=["rtx-5090"], driver="560")
    assert not answer.plans
    assert answer.rejections[0].changes[0].what == "driver R570 or newer"
    assert "--driver R570" in answer.rejections[0].changes[0].command


def test_training_says_which_torch_starts():
    answer = plan(goal="finetune", finetune="lora", gpus=["rtx-4090"], driver="535")
    assert any("torch 2.10.0 is the newest" in text for text in answer.plans[0].warnings)


def test_training_on_a_card_that_cuda_13_dropped_says_which_torch_knows_it():
    old, new = (plan(goal="finetune", finetune="lora", gpus=[name]) for name in ("v100-sxm2-32gb", "t4"))
    said = "torch 2.10.0 is the newest whose wheels hold code for Tesla V100 SXM2 32GB"
    assert any(said in text for text in old.plans[0].warnings)
    assert not any("torch" in text for text in new.plans[0].warnings)


@pytest.mark.parametrize("words", [{"driver": "12.8", "gpus": ["rtx-4090"]}, {"driver": "535"}])
def test_a_driver_that_says_nothing_is_refused(words):
    with pytest.raises(RequestError):
        make_request("Qwen/Qwen3-0.6B", **words)
