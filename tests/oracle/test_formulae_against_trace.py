"""Training formulae against PyTorch itself: what a layer keeps, family by family, and the peak of a step.

The short form runs wherever torch and transformers are installed; all families run by `make test-trace`.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.estimate.test_compose_training import H100

pytest.importorskip("torch", reason="platform: optional check, torch is not installed")
pytest.importorskip("transformers", reason="platform: optional check, transformers is not installed")

from tonnage.errors import BadFileError, RequestError
from tonnage.estimate.compose_training import TrainingCase, software, training_constants
from tonnage.estimate.compose_training.case import filled
from tonnage.model import catalogue
from tonnage.model.hf import model_from_config
from tonnage.oracle.ask import cross_check
from tonnage.oracle.compare import layer_kept_bytes
from tonnage.oracle.timeline import phases
from tonnage.oracle.trace import trace
from tonnage.oracle.types import Job
from tonnage.workload.precision import Precision
from tonnage.workload.types import TrainingKind

pytestmark = pytest.mark.filterwarnings("ignore")

SEQ_LEN, SEQUENCES = 256, 2
# How far what a layer keeps may be from what eager PyTorch keeps: 1 %, and twice that where layers are so narrow that
# small tensors show (log-sums, positions, routers' choices).
GENERAL, NARROW = 0.01, 0.02
FUSED = {  # with FlashAttention's kernel
    **dict.fromkeys((
        "apertus", "cohere", "cohere2", "deepseek_v3", "ernie4_5_moe", "exaone4", "gemma", "gemma2", "gemma3_text", "glm4",
        "glm4_moe", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "granite", "llama", "ministral3", "mistral", "mixtral",
        "nemotron", "olmo2", "olmo3", "opt", "phi", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3", "stablelm",
        "starcoder2",
    ), GENERAL),
    **dict.fromkeys(("deepseek_v2", "gpt_oss", "lfm2", "olmoe", "qwen2_moe", "qwen3_moe"), NARROW),
}  # fmt: skip
EAGER = {  # with scores of every pair
    **dict.fromkeys((
        "bloom", "cohere2", "deepseek_v3", "falcon", "gemma2", "glm4", "gpt2", "gpt_neox", "llama", "mixtral", "olmo2",
        "phi3", "qwen2", "qwen3",
    ), GENERAL),
    **dict.fromkeys(("gpt_oss", "qwen3_moe"), NARROW),
}  # fmt: skip
SHORT = ("gpt2", "llama", "qwen3_moe", "gemma2")


@cache
def configs() -> dict[str, dict[str, Any]]:
    """Return one configuration a family: those that the counts of parameters are tested with."""
    found: dict[str, dict[str, Any]] = {}
    for line in (ROOT / "tests/model/configs.jsonl").read_text(encoding="utf-8").splitlines():
        config = json.loads(line)["config"]
        found.setdefault(config["model_type"], config)
    return found


def differences(family: str, attention: str, **changes: Any) -> list[float]:
    """Return, for each kind of layer, formula over trace."""
    config = configs()[family]
    job = Job(config=config, seq_len=SEQ_LEN, micro_batch_size=SEQUENCES, attention=attention, step="none", **changes)
    traced = trace(job, is_whole=False)
    model = model_from_config(config)
    case = TrainingCase(
        model=model,
        kind=job.kind,
        device=H100,
        software=software("transformers"),
        precision=Precision(gradients="fp32" if job.kind is TrainingKind.LORA else "bf16"),
        has_flash_attention=traced.attention == "flash",
    )
    x = filled({"seq_len": SEQ_LEN, "micro_batch_size": SEQUENCES})
    scores = traced.attention == "eager"
    assert traced.num_layers == model.num_layers
    assert traced.kept_by_kind
    return [
        layer_kept_bytes(case, training_constants(), model.layers[kind.first_layer], x, has_scores=scores)
        / kind.kept_bytes
        - 1
        for kind in traced.kept_by_kind
    ]


@pytest.mark.parametrize("family", SHORT)
def test_a_layer_keeps_what_pytorch_keeps_short(family):
    assert max(map(abs, differences(family, "flash"))) <= FUSED[family]


@pytest.mark.trace
@pytest.mark.parametrize("family", sorted(set(FUSED) - set(SHORT)))
def test_a_layer_keeps_what_pytorch_keeps(family):
    assert max(map(abs, differences(family, "flash"))) <= FUSED[family]


@pytest.mark.trace
@pytest.mark.parametrize("family", sorted(EAGER))
def test_a_layer_keeps_what_eager_attention_keeps(family):
    assert max(map(abs, differences(family, "eager"))) <= EAGER[family]


@pytest.mark.trace
@pytest.mark.parametrize("family", ["qwen3_next", "olmo_hybrid"])
def test_hybrids_keep_no_more_than_their_unfused_code(family):
    """Formulae tell fused kernels of linear attention; transformers' own code without them keeps more, never less."""
    found = sorted(differences(family, "flash"))
    assert all(difference <= 0.02 for difference in found)
    assert abs(found[-1]) <= 0.03  # the layers with softmax attention agree


@pytest.mark.trace
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_adapters_keep_their_inputs(family):
    assert max(map(abs, differences(family, "flash", kind=TrainingKind.LORA))) <= 0.08


def plan_candidate(**pins: Any):
    from tonnage.api import plan
    from tonnage.plan.request import make_request

    request = make_request(
        "HuggingFaceTB/SmolLM2-135M",
        goal="finetune",
        finetune="full",
        gpus=["h100-sxm"],
        limits={"engines": ("transformers",)},
        pins={"micro_batch_size": "2", "optimizer": "adamw_bf16", "precision.weights": "bf16", **pins},
    )
    return plan(request).plans[0].estimate.candidate


@pytest.mark.trace
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_step_takes_what_the_formulae_say(recompute):
    found = cross_check(plan_candidate(recompute=recompute), catalogue.config("HuggingFaceTB/SmolLM2-135M"))
    apart = {row.name: row.difference_ratio for row in found.rows}
    assert abs(apart["weights"]) < 1e-3
    assert abs(apart["gradients"]) < 1e-3
    assert abs(apart["optimizer_states"]) < 1e-3
    assert abs(apart["kept_activations"]) < 0.02
    assert abs(apart["logits"]) < 0.15
    assert abs(apart["allocated_peak"]) < 0.2


LLAMA = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6, "vocab_size": 1000,
         "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"recomputes": True, "attention": "eager"}], ids=["plain", "recomputed"])
def test_a_few_layers_tell_what_all_do(changes):
    job = Job(config=LLAMA, seq_len=64, **changes)
    few, whole = trace(job, is_whole=False), trace(job, is_whole=True)
    assert few.num_parameters == whole.num_parameters
    assert few.kept.pools == whole.kept.pools
    for name, moment in few.phases.items():
        assert moment.total_bytes == whole.phases[name].total_bytes
    assert few.replay is None
    assert whole.replay is not None
    assert whole.replay.requested_peak_bytes == whole.peak.total_bytes
    assert whole.replay.requested_peak_bytes <= whole.replay.allocated_peak_bytes <= whole.replay.reserved_peak_bytes


@pytest.mark.parametrize("changes", [{}, {"recomputes": True}, {"attention": "eager"}, {"kind": TrainingKind.LORA}])
def test_tensors_without_data_take_what_real_ones_take(monkeypatch, changes):
    from contextlib import nullcontext

    from tonnage.oracle import step

    job = Job(config=LLAMA, seq_len=32, weights="fp32", compute="fp32", **changes)
    fake = step.run(job)
    monkeypatch.setattr(step, "FakeTensorMode", lambda **_: nullcontext())
    real = step.run(job)
    assert phases(real).keys() == phases(fake).keys()
    for name, moment in phases(fake).items():
        assert phases(real)[name].total_bytes == pytest.approx(moment.total_bytes, rel=2e-3), name


def test_parameters_and_states_are_counted_exactly():
    traced = trace(Job(config=LLAMA, seq_len=64))
    number = traced.num_parameters
    assert traced.peak.pools["weights"] == 2 * number
    step = traced.phases["optimizer step"].pools
    assert step["gradients"] == 2 * number
    assert step["optimizer_states"] == pytest.approx(4 * number, rel=1e-3)


def test_dropout_keeps_one_byte_an_element():
    config = configs()["gpt2"]
    plain, dropped = (trace(Job(config=config, seq_len=64, step="none", has_dropout=has)) for has in (False, True))
    masks = dropped.kept_by_kind[0].kept_bytes - plain.kept_by_kind[0].kept_bytes
    assert masks == 64 * 768 * 2  # behind attention and behind the feed-forward


def test_a_family_without_formulae_fits_or_not(monkeypatch, tonnage, tmp_path):
    """The whole way, with a family that is taken out of the formulae."""
    from tonnage.oracle import ask

    monkeypatch.setattr(ask, "BUILDERS", {})
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    words = ("plan", str(path), "--finetune", "full", "--gpu", "h100-sxm", "--seq-len", "64", "--oracle", "--json")
    answer = tonnage(*words, "--global-batch", "8")
    assert answer.code == 0, answer.err
    found = answer.json["oracle"]
    assert found["ways"][0]["micro_batch_size"] == 8
    assert found["parameters"]["total"] == found["parameters"]["trained"]
    short = tonnage(*words, "--micro-batch", "100000000")
    assert short.code == 3


@pytest.mark.parametrize(
    ("config", "error", "said"),
    [
        ({"model_type": "no_such"}, RequestError, "unknown to transformers"),
        ({}, RequestError, "unknown to transformers"),
        (LLAMA | {"hidden_size": "wide"}, BadFileError, "refuses"),
        (LLAMA | {"num_hidden_layers": 0}, BadFileError, "cannot be traced"),
        (LLAMA | {"num_hidden_layers": 10**9}, BadFileError, "cannot be traced"),
        ({"model_type": "clip_vision_model"}, RequestError, "makes no text"),
    ],
)
def test_bad_configs_are_refused_in_one_line(config, error, said):
    with pytest.raises(error, match=said):
        trace(Job(config=config))


def test_code_of_a_repository_is_never_run(tmp_path):
    hostile = LLAMA | {
        "auto_map": {"AutoModelForCausalLM": f"{tmp_path}--modeling.Evil"},
        "_attn_implementation": "x/y",
    }
    assert trace(Job(config=hostile, seq_len=32), is_whole=False).num_layers == 6
