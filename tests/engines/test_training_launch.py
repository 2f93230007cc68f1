"""What a launch of training says, of the Trainer and of the programs beside it."""

from __future__ import annotations

import json

import pytest
from tests.engines.grid import RECIPES, cluster, own_words, tables, training, trainings

from tonnage.datafiles import programs, table
from tonnage.engines import TRAINERS, find_trainer
from tonnage.engines.torchtitan.launch import flavour_of
from tonnage.estimate.types import EngineSettings, Layout, Offload, Recompute
from tonnage.model import catalogue
from tonnage.workload.precision import Precision


def launched(name, one):
    return find_trainer(name).launch(one)


def value(argv, flag):
    return argv[argv.index(flag) + 1]


def test_fp8_is_a_recipe_of_accelerate_and_no_argument_of_the_trainer():
    one = training(layout=Layout(dp=8, zero_stage=3), precision=RECIPES["fp8_wide"])
    found = tables(launched("transformers", one))
    assert found["accelerate.json"]["mixed_precision"] == "fp8"
    assert found["accelerate.json"]["fp8_config"] == {"backend": "AO"}
    said = found["job.json"]["training_arguments"]
    assert (said["bf16"], said["fp16"]) == (False, False)
    assert not any("fp8" in name for name in said)


def test_fp8_of_megatron_and_torchtitan_is_their_own():
    one = training(engine="megatron", layout=Layout(dp=8, zero_stage=1), precision=RECIPES["fp8"])
    assert value(launched("megatron", one).argv, "--fp8-format") == "hybrid"
    recipe = launched("torchtitan", training(engine="torchtitan", precision=RECIPES["fp8_wide"])).files[
        "plan_recipe.py"
    ]
    assert "Float8LinearConverter" in recipe


@pytest.mark.parametrize("name", ["transformers", "torchrun", "deepspeed", "accelerate"])
def test_batches_multiply_to_the_global_batch(name):
    trainer, number = find_trainer(name), 0
    for one in trainings(trainer.plans_of[0]):
        if trainer.refuses(one) is None and one.layout.num_devices == one.layout.dp:
            said = tables(trainer.launch(one))["job.json"]["training_arguments"]
            batch = said["per_device_train_batch_size"] * said["gradient_accumulation_steps"] * one.layout.dp
            assert batch == one.workload.global_batch_size
            number += 1
    assert number > 20


def test_recomputation_does_not_reenter():
    for mode in Recompute.NONE, Recompute.FULL:
        said = tables(launched("transformers", training(recompute=mode)))["job.json"]["training_arguments"]
        assert said["gradient_checkpointing"] is (mode is Recompute.FULL)
        assert said["gradient_checkpointing_kwargs"] == {"use_reentrant": False}


def test_no_launch_reads_or_writes_a_pickle():
    texts = list(programs("train").values())
    for trainer in TRAINERS:
        for engine in trainer.plans_of:
            one = next(one for one in trainings(engine) if trainer.refuses(one) is None)
            launch = trainer.launch(one)
            texts += [*launch.files.values(), " ".join(launch.argv)]
    assert len(texts) > 20
    assert not [text for text in texts for mark in (".pt'", '.pt"', "torch.load(", "pickle.load") if mark in text]


def test_four_bits_are_stored_so_that_they_can_be_sharded():
    one = training(kind="qlora", layout=Layout(dp=8, zero_stage=3), precision=Precision(weights="nf4_dq"))
    found = tables(launched("transformers", one))
    assert found["job.json"]["quantization"] == {
        "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "bfloat16",
    }  # fmt: skip
    assert found["accelerate.json"]["fsdp_config"]["fsdp_cpu_ram_efficient_loading"] is False
    eight = training(kind="qlora", precision=Precision(weights="int8"))
    assert tables(launched("transformers", eight))["job.json"]["quantization"] == {"load_in_8bit": True}
    stored = training(kind="qlora", precision=Precision(weights="awq"))
    assert "quantization" not in tables(launched("transformers", stored))["job.json"]


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("all-linear", {"target_modules": "all-linear"}),
        ("all", {"target_modules": "all-linear",
                 "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    ],
)  # fmt: skip
def test_adapters_sit_where_the_plan_counted_them(targets, said):
    one = training("Qwen/Qwen3-30B-A3B", "lora", precision=Precision(weights="bf16"), targets=(targets,))
    lora = tables(launched("transformers", one))["job.json"]["lora"]
    assert {name: lora[name] for name in lora if name.startswith("target")} == said
    attention = training("Qwen/Qwen3-30B-A3B", "lora", precision=Precision(weights="bf16"), targets=("attention",))
    assert "q_proj" in tables(launched("transformers", attention))["job.json"]["lora"]["target_modules"]


def test_one_card_keeps_parameters_on_the_host_by_fsdp2():
    one = training(
        kind="full", layout=Layout(), cluster=cluster(number=1), offload=Offload(optimizer=True, parameters=True)
    )
    launch = launched("transformers", one)
    assert launch.argv[:2] == ("accelerate", "launch")
    config = tables(launch)["accelerate.json"]
    assert (config["distributed_type"], config["fsdp_config"]["fsdp_offload_params"]) == ("FSDP", True)
    assert tables(launched("torchrun", one))["job.json"]["training_arguments"]["fsdp_config"]["cpu_offload"] is True


def test_torchrun_restarts_nothing_itself_and_meets_by_c10d():
    one = training(layout=Layout(dp=16, zero_stage=3), cluster=cluster(nodes=2))
    first, rest = own_words(launched("torchrun", one))
    assert rest == ("job.json",)
    assert (value(first, "--nnodes"), value(first, "--rdzv-backend"), value(first, "--max-restarts")) == (
        "2",
        "c10d",
        "0",
    )
    for name in ("deepspeed", "megatron", "torchtitan", "llamafactory", "axolotl"):
        engine = find_trainer(name).plans_of[0]
        assert value(launched(name, training(engine=engine, cluster=cluster(nodes=2))).argv, "--max-restarts") == "0"


def test_what_a_plan_fuses_and_compiles_is_asked_for():
    plain, fused = (EngineSettings(has_fused_loss=on, has_compile=on) for on in (False, True))
    for settings, on in ((plain, False), (fused, True)):
        said = tables(launched("transformers", training(settings=settings)))["job.json"]["training_arguments"]
        assert (said["use_liger_kernel"], said["torch_compile"]) == (on, on)
        titan = launched("torchtitan", training(engine="torchtitan", settings=settings))
        assert ("--compile.enable" in titan.argv) is on
        assert ("ChunkedLossWrapper.Config" in titan.files["plan_recipe.py"]) is on


def test_megatron_counts_the_layers_of_the_ends_and_the_experts():
    layout = Layout(dp=1, pp=4, tp=2, ep=2, first_stage_layers=11, last_stage_layers=11, has_sequence_parallel=True)
    one = training("Qwen/Qwen3-30B-A3B", engine="megatron", layout=layout, precision=RECIPES["master"])
    argv = launched("megatron", one).argv
    assert value(argv, "--decoder-first-pipeline-num-layers") == "11"
    assert (value(argv, "--num-experts"), value(argv, "--moe-router-topk")) == ("128", "8")
    assert value(argv, "--expert-tensor-parallel-size") == "1"
    assert "--sequence-parallel" in argv
    latent = launched("megatron", training("deepseek-ai/DeepSeek-V3", engine="megatron")).argv
    assert value(latent, "--kv-lora-rank") == "512"
    assert value(latent, "--moe-layer-freq").startswith("[0,0,0,1")


def test_torchtitan_s_pipeline_holds_the_planned_layers():
    """Stages, microbatches and what the ends hold less, in its own words."""
    layout = Layout(dp=2, pp=4, zero_stage=3, first_stage_layers=8, last_stage_layers=8)
    one = training("Qwen/Qwen3-8B", engine="torchtitan", layout=layout, micro_batch_size=2)
    argv = launched("torchtitan", one).argv
    assert value(argv, "--training.local_batch_size") == "32"  # all of a step, in one pass of the pipeline
    assert value(argv, "--parallelism.pipeline_parallel_microbatch_size") == "2"
    less = value(argv, "--parallelism.pipeline_parallel_first_stage_less_layers")
    assert (less, value(argv, "--parallelism.pipeline_parallel_layers_per_stage")) == ("2", "10")


def test_the_dormant_programs_say_so():
    for name, words in (("horovod", "June 2023"), ("tensorflow", "no training"), ("llamafactory", "Untested")):
        trainer = find_trainer(name)
        assert trainer.tier == "template"
        assert words in trainer.note
    assert "torchrun" in find_trainer("horovod").note


def test_every_note_is_there_in_both_languages():
    for trainer in TRAINERS:
        said = trainer.table["trainer"]
        assert ("note" in said) == ("note_zh" in said), trainer.name


def test_a_job_is_plain_json():
    for trainer in TRAINERS:
        for engine in trainer.plans_of:
            one = next(one for one in trainings(engine) if trainer.refuses(one) is None)
            for name, text in trainer.launch(one).files.items():
                if name.endswith(".json"):
                    assert json.loads(text)


def test_torchtitan_knows_its_models_by_the_catalogues_names_too():
    rows = [(name, row) for row in table("engines/torchtitan.toml")["flavour"] for name in row["models"]]
    held = [(catalogue.find(name).name, row) for name, row in rows if catalogue.has(name)]
    assert ("meta-llama/Meta-Llama-3.1-70B", "70B") in [(name, row["name"]) for name, row in held]
    for name, row in held:
        assert flavour_of(name) == (row["module"], row["recipe"], row["name"]), name
