"""Everything that can be asked for is written down, or refused with a reason that helps."""

from __future__ import annotations

import re

import pytest
from tests.contract import cases

from tonnage import api
from tonnage.errors import RequestError
from tonnage.plan.request import make_request
from tonnage.render.targets import PLACES

QUICK = ("one card", "eight cards", "two machines")


def thin(program: str, goal: str):
    """Return plans of a program for a goal on a few machines, and the reasons where there are none."""
    return cases.plans(program, goal, [(machine, cases.DENSE, {}) for machine in QUICK])


@pytest.mark.parametrize("goal", cases.GOALS)
def test_every_combination_is_written_down_or_refused_with_a_reason(goal):
    offered = set()
    for program in cases.programs(goal):
        plans, reasons = thin(program, goal)
        assert plans or reasons, program
        assert all(reason.strip() for reason in reasons)
        for place in PLACES:
            for offer in cases.written_down(program, goal, place, plans):
                if offer.bundle is None:
                    assert re.fullmatch(r"[^:]+: .+; .+", offer.refusal), offer.refusal  # where: what; what to do
                else:
                    offered.add(place)
                    assert offer.bundle.start
                    assert all(file.text.strip() and file.purpose for file in offer.bundle.files), offer.what
    assert offered == set(PLACES)


@pytest.mark.contract
@pytest.mark.slow
def test_every_program_is_offered_somewhere():
    """What no plan is ever written for would pass every other test unseen."""
    offered = {(offer.program, offer.goal == cases.SERVE) for offer in cases.rendered("local")}
    assert offered == {(program, goal == cases.SERVE) for goal in cases.GOALS for program in cases.programs(goal)}


# Program, goal, machine, place, and why there is no bundle.
SENSELESS = [
    ("vllm", "serve", "two machines", "compose", "one machine"),
    ("llama.cpp", "serve", "two machines", "kubernetes", "several machines"),
    ("deepspeed", "full", "two machines", "compose", "one machine"),
    ("ktransformers", "serve", "eight cards", "compose", "no container image"),
    ("ik_llama.cpp", "serve", "one card", "kubernetes", "no container image"),
    ("sglang", "serve", "eight cards of AMD", "compose", "no container image"),
]


@pytest.mark.parametrize(("program", "goal", "machine", "place", "reason"), SENSELESS)
def test_what_makes_no_sense_is_refused_with_the_reason(program, goal, machine, place, reason):
    plans, _ = cases.plans(program, goal, [(machine, cases.DENSE, {}), (machine, cases.SPARSE, {})])
    assert plans
    for _, plan in plans:
        with pytest.raises(RequestError, match=reason) as caught:
            api.deploy(plan, place=place)
        assert caught.value.fix


def test_a_program_that_does_not_do_a_goal_says_so():
    answer = api.plan(
        make_request(cases.DENSE, goal="finetune", finetune="qlora", gpus=["h100-sxm5-80gb:8"], limits={"engines": ["deepspeed"]})
    )  # fmt: skip
    assert not answer.plans
    assert "qlora" in answer.rejections[0].reason


def test_a_card_that_no_cloud_rents_is_refused_there():
    answer = api.plan(make_request(cases.DENSE, gpus=["rtx-4060-ti-16gb:1"], limits={"engines": ["vllm"]}))
    with pytest.raises(RequestError, match="rtx-4060-ti"):
        api.deploy(answer.plans[0], place="skypilot")


def test_words_that_are_known_late_are_filled_in_as_a_shell_does():
    text = 'x\nexec torchrun \\\n  --rdzv-endpoint "$MASTER_ADDR:29500" \\\n  --port "${TONNAGE_PORT:-80}"\n'
    assert cases.shell_command(text) == ["torchrun", "--rdzv-endpoint", "node-0:29500", "--port", "8001"]
