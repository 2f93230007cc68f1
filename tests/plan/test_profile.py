"""What a machine's measurements are believed to say, and the file that holds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.engines import find_engine
from tonnage.errors import BadFileError, UnknownNameError
from tonnage.estimate.compose_serving import serving_load
from tonnage.plan.ask import answer
from tonnage.plan.profile import (
    Lesson,
    Observation,
    Profile,
    belief_of,
    believed,
    forget,
    is_believed,
    learn,
    quantity,
    read_profile,
    teaching_of,
    write_profile,
)
from tonnage.plan.request import make_request
from tonnage.probe.spec import read_spec
from tonnage.units import GIB, MIB

MODEL = "Qwen/Qwen3-8B"
SPREADS = st.floats(0.02, 2.0)
MOVES = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=6)


def observation(move=0.1 * GIB, model=MODEL, file="a.log", noise=16.0 * MIB, expected=1.0 * GIB):
    return Observation(
        file=file, day="2026-11-30", kind="start-up log", model=model, expected=expected, achieved=expected + move,
        noise=noise, digest=file,
    )  # fmt: skip


def lesson(*observations, name="pool_bytes", engine="vllm", gpu="rtx-4090", machine="here", **more):
    return Lesson(
        machine=machine, gpu=gpu, engine=engine, quantity=name, observations=observations or (observation(),), **more
    )


@given(MOVES, SPREADS)
def test_belief_lies_between_the_constant_and_what_was_measured(moves, spread):
    value, rest = believed(moves, [0.05] * len(moves), spread)
    assert min(0.0, *moves) - 1e-9 <= value <= max(0.0, *moves) + 1e-9
    assert 0 < rest <= spread


@given(MOVES, SPREADS)
def test_belief_does_not_hang_on_the_order(moves, spread):
    noises = [0.05] * len(moves)
    assert believed(moves, noises, spread) == believed(moves[::-1], noises, spread)


@given(st.floats(-0.2, 0.2), st.integers(1, 8))
def test_agreeing_measurements_are_believed(move, number):
    value, rest = believed([move] * number, [0.02] * number, 0.15)
    assert value == pytest.approx(move, abs=0.03 * abs(move) + 1e-9)
    assert rest < 0.15 / 3


@given(st.floats(3.0, 50.0), st.integers(3, 6))
def test_one_odd_measurement_wrecks_nothing(odd, number):
    value, _ = believed([0.05] * number + [odd], [0.02] * (number + 1), 0.15)
    assert value == pytest.approx(0.05, abs=0.01)
    alone, _ = believed([odd], [0.02], 0.15)
    assert abs(alone) < 0.05


def test_a_second_that_agrees_makes_an_odd_one_believed():
    one = lesson(observation(4 * GIB))
    assert not is_believed(one, one.observations[0])
    assert belief_of(one, MODEL) == 0
    assert teaching_of([one], "vllm", MODEL).is_empty
    three = lesson(*(observation(4 * GIB, file=f"{n}.log") for n in range(3)))
    assert is_believed(three, three.observations[0])
    assert belief_of(three, MODEL) == pytest.approx(4 * GIB, rel=0.05)


@given(st.floats(-0.6, 1.4))
def test_after_a_log_the_pool_is_the_logs(move):
    model = read_spec(MODEL)
    request = make_request(MODEL, gpus=["rtx-4090"], limits={"engines": ("vllm",)}, pins={"precision.weights": "bf16"})
    plain = answer(request, model).plans[0].estimate.candidate
    engine = find_engine("vllm")
    before = engine.accounting.memory(serving_load(plain, engine.accounting)).cache_bytes
    from tonnage.engines.taught import taught

    teaching = teaching_of([lesson(observation(move * GIB))], "vllm", model.name)
    after = taught(engine, teaching)
    memory = after.accounting.memory(serving_load(plain, after.accounting))
    assert memory.cache_bytes == pytest.approx(before - move * GIB, abs=0.01 * GIB)
    assert all(pool.bytes >= 0 for pool in memory.pools)


def teach(*lessons, engine="vllm", profile="here", **where):
    request = make_request(
        MODEL, gpus=["rtx-4090"], profile=profile, limits={"engines": (engine,)},
        pins={"precision.weights": "bf16", "precision.kv": "fp16"}, **where,
    )  # fmt: skip
    return answer(request, read_spec(MODEL), profile=Profile(lessons=lessons)).plans[0].estimate


def test_plans_name_what_taught_them():
    said = teach(lesson()).provenance.assumptions
    assert any("machine 'here'" in text and "2026-11-30" in text for text in said)
    assert not any("machine" in text for text in teach(lesson(), profile="").provenance.assumptions)


def test_engines_cards_and_machines_are_apart():
    plain = teach(engine="sglang")
    for one in (lesson(), lesson(gpu="rtx-5090", engine="sglang"), lesson(machine="other", engine="sglang"),
                lesson(num_gpus=2, engine="sglang")):  # fmt: skip
        assert teach(one, engine="sglang") == plain
    assert teach(lesson(engine="sglang"), engine="sglang") != plain


def test_no_profile_leaves_it_out():
    assert teach(lesson(), profile="none") == teach()


def test_the_same_host_is_the_same_machine():
    host = "64 GiB ddr5-5600 x2"
    here = lesson(host=host)
    assert teach(here, profile="", host="64GiB DDR5-5600 x2") != teach(profile="", host=host)
    assert teach(here, profile="", host="128 GiB ddr5-5600 x2") == teach(profile="", host="128 GiB ddr5-5600 x2")


def test_a_model_teaches_others_only_its_machines_share():
    def rate(model):
        one = observation(-0.1, model=model, noise=0.06, expected=0.8)
        return teach(lesson(one, name="bandwidth_ratio")).performance.tpot_seconds.best

    none, other, same = teach().performance.tpot_seconds.best, rate("another"), rate(MODEL)
    assert none < other < same
    pools = [teach(lesson(observation(GIB / 2, model=m))).footprint.pools for m in ("another", MODEL)]
    assert pools[0] == teach().footprint.pools != pools[1]


def test_intervals_narrow_with_evidence():
    def width(number):
        many = (observation(0.0, noise=0.06, expected=0.8, file=f"{n}.log") for n in range(number))
        tpot = teach(*([lesson(*many, name="bandwidth_ratio")] if number else ())).performance.tpot_seconds
        return (tpot.high - tpot.low) / tpot.best

    assert width(0) > width(1) > width(3)
    assert width(20) > quantity("bandwidth_ratio").narrowed * width(0) * 0.99


def test_a_file_read_again_counts_once():
    once = learn(Profile(), [lesson()])
    assert learn(once, [lesson()]) == once
    assert len(learn(once, [lesson(observation(file="b.log"))]).lessons[0].observations) == 2


def test_forgetting():
    profile = learn(Profile(), [lesson(), lesson(engine="sglang"), lesson(machine="box")])
    assert len(forget(profile, [2]).lessons) == 2
    assert forget(profile) == Profile()
    assert [one.machine for one in forget(profile, machine="here").lessons] == ["box"]
    for wrong in ({"numbers": [9]}, {"machine": "nobody"}):
        with pytest.raises(UnknownNameError):
            forget(profile, **wrong)


def test_the_file_reads_back():
    profile = learn(Profile(), [lesson(), lesson(name="weights_bytes", weights="bf16", tp=2, num_gpus=2)])
    text = write_profile(profile)
    assert read_profile(text, "x") == profile
    assert "[[lessons]]" in text
    assert read_profile(write_profile(Profile()), "x") == Profile()


@pytest.mark.parametrize(
    "text",
    [
        "x =", "x = 1", "format = 99\nwritten_by = 'x'", "format = 'a'\nwritten_by = 'x'",
        "format = 1\nwritten_by = 'x'\nlessons = 3", "format = 1\nwritten_by = 'x'\n[[lessons]]\nmachine = 3",
        write_profile(Profile(lessons=(lesson(),))).replace("pool_bytes", "nonsense"),
        write_profile(Profile(lessons=(lesson(),))).replace("noise = ", "noise = -"),
        write_profile(Profile(lessons=(lesson(),))).replace("achieved = ", "achieved = nan #"),
        write_profile(Profile(lessons=(lesson(),))).replace("achieved = ", "achieved = 1e300 #"),
        write_profile(Profile(lessons=(lesson(),))).replace("achieved = ", f"achieved = {'9' * 400} #"),
        write_profile(Profile(lessons=(lesson(),))).replace("noise = ", "noise = 1e-300 #"),
        write_profile(Profile(lessons=(lesson(),)))[:-40],
    ],
)  # fmt: skip
def test_damage_is_one_line(text):
    with pytest.raises(BadFileError) as caught:
        read_profile(text, "profile.toml")
    assert "profile.toml" in str(caught.value)
    assert "--no-profile" in str(caught.value)


def test_every_quantity_is_told():
    from tonnage.engines.taught import ENGINE_QUANTITIES

    for name in ENGINE_QUANTITIES:
        about = quantity(name)
        assert about.kind in ("bytes", "ratio")
        assert about.noise > 0 < about.spread
        assert 0 <= about.share <= 1 >= about.narrowed > 0


def test_this_machine_takes_what_was_measured_on_it():
    from tonnage.hardware.sample import DeviceSample, HostSample, MachineSample

    def here(name, *lessons):
        card = DeviceSample(index=0, name=name, memory_bytes=24 * GIB, free_bytes=23 * GIB)
        machine = MachineSample(host=HostSample(available_bytes=64 * GIB), devices=(card,))
        request = make_request(MODEL, is_here=True, limits={"engines": ("vllm",)}, pins={"precision.weights": "bf16"})
        return answer(request, read_spec(MODEL), machine, profile=Profile(lessons=lessons)).plans[0].estimate

    card = "NVIDIA GeForce RTX 4090"
    assert here(card, lesson()) != here(card)
    assert here(card, lesson(machine="box")) == here(card)
    assert here("NVIDIA GeForce RTX 3090", lesson()) == here("NVIDIA GeForce RTX 3090")
