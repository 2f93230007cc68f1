"""Every check passes on a healthy run, and fails on the one cause that it is for; nothing unmeasured passes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tonnage import api, messages
from tonnage.errors import BadFileError, UnknownNameError
from tonnage.plan.request import make_request
from tonnage.verify.checks import serving_report, training_report
from tonnage.verify.limits import DEFAULTS, OPEN, read_limits
from tonnage.verify.report import bench_of, report_object, report_page
from tonnage.verify.series import fluctuation, spikes, straggling, windows
from tonnage.verify.types import HardwareSeen, Part, ServingSeen, TrainingSeen, Verdict

DRAW = np.random.default_rng(3)
NUM = 500
CARD = HardwareSeen(
    name="0",
    evidence="hardware.jsonl 0",
    memory_ratios=(0.8,) * 20,
    temperatures_celsius=(70.0,) * 20,
    slowdown_celsius=90.0,
    utilization_ratios=(0.95,) * 20,
    throttled_ratio=0.0,
    num_ecc_uncorrected=0,
    num_remapped_rows=0,
    num_xids=0,
    num_nvlinks_down=0,
    pcie_width=16,
    pcie_width_max=16,
    pcie_generation=4,
    pcie_generation_max=4,
)
HEALTHY = TrainingSeen(
    evidence="metrics/rank-00000.jsonl",
    steps=tuple(range(1, NUM + 1)),
    losses=tuple(4.0 * math.exp(-at / 400) + 0.05 * DRAW.standard_normal() for at in range(NUM)),
    grad_norms=tuple(float(1.5 * math.exp(-at / 2000) * DRAW.lognormal(0, 0.25)) for at in range(NUM)),
    step_seconds=(1.0,) * NUM,
    tokens=(8192.0,) * NUM,
    rank_seconds={0: 1.0, 1: 1.02},
    reserved_bytes=20e9,
    host_bytes=4e9,
    num_alloc_retries=0,
    num_ooms=0,
    mfu_ratio=0.4,
    num_checksums=10,
    num_unequal=0,
    worst_again_ratio=0.0,
    checkpoint_bytes=48e9,
    is_finished=True,
    num_findings=0,
    baseline_losses=(1.2,),
    hardware=(CARD,),
)


def card(**words):
    return replace(HEALTHY, hardware=(replace(CARD, **words),))


def with_at(values, at, value):
    return (*values[:at], value, *values[at + 1 :])


WRONG = {
    "gpu_memory_ratio": card(memory_ratios=(0.95,) * 20),
    "utilization_ratio": card(utilization_ratios=(0.2,) * 20),
    "temperature_celsius": card(temperatures_celsius=(70.0,) * 19 + (86.0,)),
    "slowdown_margin_celsius": card(temperatures_celsius=(84.0,) * 20, slowdown_celsius=85.0),
    "throttled_ratio": card(throttled_ratio=0.2),
    "ecc_uncorrected": card(num_ecc_uncorrected=1),
    "remapped_rows": card(num_remapped_rows=1),
    "xids": card(num_xids=1),
    "nvlinks_down": card(num_nvlinks_down=1),
    "pcie_width": card(pcie_width=8),
    "pcie_generation": card(pcie_generation=3),
    "finished": replace(HEALTHY, is_finished=False),
    "nonfinite_steps": replace(HEALTHY, losses=with_at(HEALTHY.losses, 300, math.nan)),
    "loss_change_ratio": replace(HEALTHY, losses=tuple(reversed(HEALTHY.losses))),
    "grad_norm_fluctuation_ratio": replace(
        HEALTHY, grad_norms=tuple(1.0 + 0.6 * math.sin(at / 60) for at in range(NUM))
    ),
    "grad_norm_spikes": replace(HEALTHY, grad_norms=with_at(HEALTHY.grad_norms, 300, 40.0)),
    "unequal_replicas": replace(HEALTHY, num_unequal=1),
    "repeated_loss_ratio": replace(HEALTHY, worst_again_ratio=1e-3),
    "step_time_p95_ratio": replace(HEALTHY, step_seconds=(1.0,) * 400 + (3.0,) * 100),
    "alloc_retries": replace(HEALTHY, num_alloc_retries=2),
    "ooms": replace(HEALTHY, num_ooms=1),
    "hangs": replace(HEALTHY, num_hangs=1),
    "failed_attempts": replace(HEALTHY, num_failures=1),
    "failed_saves": replace(HEALTHY, num_failed_saves=1),
    "straggler_score": replace(HEALTHY, rank_seconds={0: 1.0, 1: 1.0, 2: 2.0}),
    "log_findings": replace(HEALTHY, num_findings=1),
    "convergence_ratio": replace(HEALTHY, baseline_losses=(0.9,)),
    "tokens_per_s": replace(HEALTHY, step_seconds=(2.0,) * NUM),
    "peak_memory_bytes": replace(HEALTHY, reserved_bytes=90e9),
    "usd_per_million_tokens": replace(HEALTHY, step_seconds=(2.0,) * NUM),
}
OWN = {"tokens_per_s": 8000.0, "peak_memory_bytes": 80e9}
SERVED = ServingSeen(
    evidence="bench.json", num_requests=1000, num_ok=1000, ttft_p99_seconds=0.8, tpot_p99_seconds=0.03,
    e2e_p99_seconds=9.0, ttft_mean_seconds=0.2, tpot_mean_seconds=0.02, has_enough_for_p99=True, kept_ratio=1.0,
    requests_per_s=4.0, output_tokens_per_s=800.0, num_findings=0,
)  # fmt: skip
SERVING_LIMITS = {
    "ttft_p99_seconds": 1.0, "tpot_p99_seconds": 0.05, "e2e_p99_seconds": 10.0, "tokens_per_s": 500.0,
    "requests_per_s": 3.0,
}  # fmt: skip
WRONG_SERVER = {
    "request_error_ratio": replace(SERVED, num_ok=999),
    "ttft_p99_seconds": replace(SERVED, ttft_p99_seconds=1.5),
    "tpot_p99_seconds": replace(SERVED, tpot_p99_seconds=0.06),
    "e2e_p99_seconds": replace(SERVED, e2e_p99_seconds=11.0),
    "kept_ratio": replace(SERVED, kept_ratio=0.9),
    "tokens_per_s": replace(SERVED, output_tokens_per_s=400.0),
    "requests_per_s": replace(SERVED, requests_per_s=2.0),
    "log_findings": replace(SERVED, num_findings=1),
}


@pytest.fixture(scope="module")
def plan():
    request = make_request(
        "meta-llama/Llama-3.1-8B", goal="finetune", finetune="lora", gpus=["a100-80gb-sxm"], load={"tokens": "1000000"}
    )
    return api.plan(request).plans[0]


@pytest.fixture(scope="module")
def server():
    return api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ("vllm",)})).plans[0]


def verdicts(report):
    return {one.name: one.verdict for one in report.checks if one.part is not Part.PREDICTION}


def given(plan):
    """Own limits, with a price that the healthy run keeps and one at half its speed does not."""
    hourly = plan.estimate.cost.usd_per_hour.best
    return {**OWN, "usd_per_million_tokens": 1.5 * hourly / 3600 / 8192 * 1e6}


def test_a_healthy_run_passes_every_check(plan):
    report = training_report(HEALTHY, plan, given(plan))
    assert {name: verdict for name, verdict in verdicts(report).items() if verdict is not Verdict.PASS} == {}
    assert report.is_passed


@pytest.mark.parametrize("name", WRONG)
def test_each_check_fails_on_its_cause_and_refuses_the_run(plan, name):
    report = training_report(WRONG[name], plan, given(plan))
    assert verdicts(report)[name] is Verdict.FAIL
    assert not report.is_passed


def test_every_training_check_has_its_failing_case(plan):
    assert set(verdicts(training_report(HEALTHY, plan, given(plan)))) == set(WRONG)


def test_a_healthy_server_passes_and_each_cause_fails():
    report = serving_report(replace(SERVED, hardware=(CARD,)), None, SERVING_LIMITS)
    wrong = {name: verdict for name, verdict in verdicts(report).items() if verdict is not Verdict.PASS}
    assert set(wrong) == {"usd_per_million_tokens"}  # nobody said what it costs
    assert report.is_passed
    for name, seen in WRONG_SERVER.items():
        refused = serving_report(seen, None, SERVING_LIMITS)
        assert verdicts(refused)[name] is Verdict.FAIL, name
        assert not refused.is_passed
    hardware = {name for name in verdicts(report) if name in WRONG} - {"tokens_per_s", "log_findings"}
    assert set(verdicts(report)) == set(WRONG_SERVER) | hardware


def test_nothing_measured_is_nothing_passed(plan):
    report = training_report(TrainingSeen(evidence="run.json", is_finished=True), plan, {})
    told = verdicts(report)
    counted = {"finished", "hangs", "failed_attempts", "failed_saves"}  # the run folder knows these by itself
    assert {name for name, verdict in told.items() if verdict is Verdict.PASS} == counted
    assert told["nonfinite_steps"] is Verdict.NOT_MEASURED
    assert not report.is_passed  # a required check was not measured


def test_a_required_limit_of_a_server_that_was_not_measured_refuses_it():
    few = replace(SERVED, has_enough_for_p99=False)
    report = serving_report(few, None, {"ttft_p99_seconds": 1.0})
    assert verdicts(report)["ttft_p99_seconds"] is Verdict.NOT_MEASURED
    assert not report.is_passed
    assert serving_report(few, None, {}).is_passed  # nobody set a limit


def test_a_client_that_was_the_limit_measures_no_speed():
    told = verdicts(serving_report(replace(SERVED, is_client_limited=True), None, SERVING_LIMITS))
    assert told["tokens_per_s"] is told["ttft_p99_seconds"] is Verdict.NOT_MEASURED


def test_predictions_tell_their_error_and_refuse_nothing(plan, server):
    report = training_report(replace(HEALTHY, mfu_ratio=0.99), plan, given(plan))
    mfu = next(one for one in report.checks if one.name == "mfu_ratio")
    assert (mfu.part, mfu.verdict) == (Part.PREDICTION, Verdict.FAIL)
    assert report.is_passed
    best = server.estimate.performance.tpot_seconds.best
    told = serving_report(replace(SERVED, tpot_mean_seconds=best), server, {})
    tpot = next(one for one in told.checks if one.name == "tpot_seconds")
    assert tpot.verdict is Verdict.PASS


def test_the_raw_series_would_refuse_a_healthy_run():
    """The articles' words taken literally: raw gradient norms of the healthy run vary by far more than a tenth."""
    raw = np.array(HEALTHY.grad_norms[100:])
    assert np.max(np.abs(raw / raw.mean() - 1)) > 0.5
    assert fluctuation(HEALTHY.grad_norms) < 0.10


def test_series_by_hand():
    assert windows([1.0] * 5) == []
    assert spikes([1.0] * 5 + [2000.0]) == 1
    assert spikes([1.0, 50.0]) == 0  # too few before it to judge by
    assert straggling([1.0]) is None
    assert fluctuation([1.0] * 20) is None


def test_limits_come_from_whoever_set_them(plan):
    report = training_report(HEALTHY, plan, {"temperature_celsius": 60.0})
    hot = next(one for one in report.checks if one.name == "temperature_celsius")
    assert (hot.limit, hot.origin, hot.verdict) == (60.0, "user", Verdict.FAIL)
    rate = next(one for one in report.checks if one.name == "tokens_per_s")
    assert rate.origin == "plan"
    assert read_limits({"temperature_celsius": "70"}, "here") == {"temperature_celsius": 70.0}
    for wrong in ({"temprature_celsius": 70}, {"temperature_celsius": "hot"}):
        with pytest.raises(UnknownNameError):
            read_limits(wrong, "here")


def test_every_check_has_its_words_in_both_languages(plan, server):
    names = {one.name for one in training_report(HEALTHY, plan, {}).checks}
    names |= {one.name for one in serving_report(SERVED, server, {}).checks} | set(DEFAULTS) | OPEN
    assert {name for name in names if not messages.knows(f"verify.{name}")} == set()


def test_a_report_is_an_object_and_a_page(plan):
    report = training_report(WRONG["nonfinite_steps"], plan, {}, name="<script>alert(1)</script>")
    value = report_object(report)
    assert value["passed"] is False
    assert {"name", "limit", "measured", "predicted", "verdict", "evidence"} <= set(value["checks"][0])
    page = report_page(report, WRONG["nonfinite_steps"])
    assert "<script>" not in page
    assert page.count("<svg") == 3


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"requests": 1}', '{"requests": "x", "errors": {}}'])
def test_what_is_no_load_test_is_refused(text):
    with pytest.raises(BadFileError):
        bench_of(text)
