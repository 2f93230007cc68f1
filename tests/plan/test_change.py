"""What would make a training fit: no more cards than it takes, sure ones first, what is unsure said so."""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.plan.request import make_request

MODEL = "Qwen/Qwen3.5-27B"


def refused(method, **load):
    return api.plan(make_request(MODEL, goal="finetune", finetune=method, gpus=["rtx-4080"], load=load))


@pytest.fixture(scope="module")
def lora():
    return refused("lora")


def test_the_least_number_of_cards_counts_those_with_weights_on_the_host():
    changes = refused("qlora", seq_len="512").rejections[0].changes
    words = next(change.what for change in changes if "of this card" in change.what)
    assert words.startswith("2 of this card, weights in host memory")


def test_sure_changes_come_first_and_others_say_perhaps(lora):
    changes = lora.rejections[0].changes
    sure = [change.estimate.footprint.fits_surely for change in changes]
    assert sure == sorted(sure, reverse=True)
    assert len(set(sure)) == 2
    assert all(("perhaps" in change.what) != is_sure for change, is_sure in zip(changes, sure, strict=True))


def test_one_machine_is_not_made_many_and_qlora_stands_beside_lora(lora):
    changes = lora.rejections[0].changes
    assert not any("--nodes" in change.command for change in changes)
    assert any("qlora instead of lora" in change.what and "--gpu rtx-4080:2" in change.command for change in changes)


def test_why_quantised_weights_stay_on_one_card_is_said():
    answer = refused("qlora", seq_len="512")
    assert any(
        "transformers keeps quantised weights in host memory only on 2 cards" in r.reason for r in answer.rejections
    )


def test_weights_in_16_bit_wait_on_the_host_of_one_card():
    words = {"goal": "finetune", "finetune": "lora", "gpus": ["rtx-4090"], "limits": {"engines": ["transformers"]}}
    plans = api.plan(make_request("Qwen/Qwen3-14B", load={"seq_len": "512"}, **words)).plans
    assert plans
    assert plans[0].estimate.candidate.offload.parameters
