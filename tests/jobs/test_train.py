"""The training job on this machine: one process and two gloo ranks, every engine, a dense and a sparse model."""

import json
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.jobs.trainings import HERE, LLAMA, MOE, STEPS, TEXT, events, final_bytes, job, losses, metrics, run_ranks

from tonnage import api
from tonnage.estimate.compose_training import estimate_training
from tonnage.estimate.types import Candidate, Layout
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.workload.precision import Precision
from tonnage.workload.types import Training, TrainingKind

pytest.importorskip("torch", reason="platform: optional check, the extra test-train is not installed")
pytest.importorskip("accelerate", reason="platform: optional check, the extra test-train is not installed")
pytestmark = [pytest.mark.train, pytest.mark.slow]

FAMILIES = {"dense": LLAMA, "sparse": MOE}
CUT_AT = 2


def fsdp(*, offload):
    return {"fsdp": "full_shard auto_wrap", "fsdp_config": {"fsdp_version": 2, "cpu_offload": offload}}


def zero(stage):
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu", "pin_memory": False}},
        # torch's optimizer: DeepSpeed's own is compiled when it is first used
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
    }
    return {"deepspeed": config}


ENGINES = {
    "ddp": {},
    "fsdp2": fsdp(offload=False),
    "fsdp2-offload": fsdp(offload=True),
    "zero2": zero(2),
    "zero3": zero(3),
}


def are_parts_saved(root):
    """Whether the second rank wrote ranges of tensors, not whole ones."""
    file = root / "checkpoints" / "step-00000006" / "tensors-00001.safetensors"
    head = file.read_bytes()[8:]
    return b'\\"start\\"' in head[:4000]


@dataclass
class Runs:
    folder: Path
    codes: dict[str, object]

    def at(self, name):
        return self.folder / name


def run_named(folder, label, tasks, world_size):
    """Run named tasks; return the first rank's exit code of each, after holding that all ranks agree."""
    told = run_ranks([task for _, task in tasks], folder / f"ranks-{label}", world_size)
    assert all(codes == told[0] for codes in told)
    return dict(zip([name for name, task in tasks if "job" in task], told[0], strict=True))


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Runs:
    """One process: the models to start from, whole runs, a run cut in two, a damaged checkpoint, a full disk."""
    folder = tmp_path_factory.mktemp("trainings")
    tasks = [("tokenizer", {"make": None, "root": folder / "tokenizer"})]
    for family, config in FAMILIES.items():
        tasks.append((family, {"make": config, "root": folder / family}))
    for family in FAMILIES:
        whole = job(folder / family, folder / "tokenizer")
        tasks.append((f"whole-{family}", {"job": whole, "root": folder / f"single-{family}-whole"}))
        cut = folder / f"single-{family}-cut"
        tasks.append((f"stopped-{family}", {"job": whole, "root": cut, "stop_at": CUT_AT}))
        tasks.append((f"resumed-{family}", {"job": whole, "root": cut, "attempt": 1}))
    dense = job(folder / "dense", folder / "tokenizer", checkpoints={"every_steps": 2, "keep": 3})
    damaged = folder / "damaged"
    rated = {**dense, "flop_per_token": 2e6, "peak_flop_per_s": 1e12}
    tasks.append(("to damage", {"job": dense, "root": damaged, "ask_stacks_at": 2, "ask_snapshot_at": 3}))
    poisoned = folder / "poisoned"
    tasks.append(("poisoned", {"job": dense, "root": poisoned, "poison_at": 4}))
    tasks.append(("poison gone", {"job": rated, "root": poisoned, "attempt": 1}))
    tasks.append(
        ("damaged", {"job": dense, "root": damaged, "attempt": 1, "before": [_FLIP_A_BIT, _LEAVE_HALF_A_SAVE]})
    )
    tasks.append(("full disk", {"job": dense, "root": folder / "full", "fill_disk_at": 4}))
    stops = {**dense, "checkpoints": {**dense["checkpoints"], "on_failed_save": "stop"}}
    tasks.append(("full disk, stop", {"job": stops, "root": folder / "full-stop", "fill_disk_at": 4}))
    return Runs(folder, run_named(folder, "alone", tasks, 1))


_FLIP_A_BIT = """
path = root / "checkpoints" / "step-00000006" / "tensors-00000.safetensors"
data = bytearray(path.read_bytes()); data[-100] ^= 4; path.write_bytes(data)
"""
_LEAVE_HALF_A_SAVE = """
(root / "checkpoints" / ".writing-step-00000008").mkdir()
"""


def _take(root, step=3):
    """Begin with another run's checkpoint."""
    source = root / "checkpoints" / f"step-{step:08d}"
    return f"""
import shutil
shutil.copytree("{source}", root / "checkpoints" / "step-{step:08d}")
"""


LORA = {"kind": "lora", "lora": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}}


@pytest.fixture(scope="module")
def pair(alone) -> Runs:
    """Two ranks: for every engine and family a whole run and one cut in two."""
    folder = alone.folder
    tasks = []
    for engine, arguments in ENGINES.items():
        for family in FAMILIES:
            one = job(folder / family, folder / "tokenizer", micro_batch=1, arguments=arguments)
            tasks.append((f"{engine} {family} whole", {"job": one, "root": folder / f"{engine}-{family}-whole"}))
            cut = folder / f"{engine}-{family}-cut"
            tasks.append((f"{engine} {family} stopped", {"job": one, "root": cut, "stop_at": CUT_AT}))
            tasks.append((f"{engine} {family} resumed", {"job": one, "root": cut, "attempt": 1}))
    checked = job(folder / "dense", folder / "tokenizer", micro_batch=1, checksum_every_steps=2, final=False)
    tasks.append(("replicas", {"job": checked, "root": folder / "replicas"}))
    tasks.append(("spoiled", {"job": checked, "root": folder / "spoiled", "spoil_second_rank_at": 4}))
    beside = {"every_steps": 2, "keep": 3, "async": True, "compression": "zstd"}
    one = job(folder / "sparse", folder / "tokenizer", micro_batch=1, arguments=ENGINES["fsdp2"], checkpoints=beside)
    tasks.append(("beside", {"job": one, "root": folder / "beside", "stop_at": CUT_AT}))
    tasks.append(("beside resumed", {"job": one, "root": folder / "beside", "attempt": 1}))
    for engine in ("ddp", "fsdp2", "zero3"):
        arguments = {**ENGINES[engine], "bf16": True, "max_steps": 1}
        if engine == "zero3":
            arguments["deepspeed"] = {**arguments["deepspeed"], "bf16": {"enabled": True}}
        one = job(folder / "sparse", folder / "tokenizer", micro_batch=1, arguments=arguments, final=False)
        watched = {"job": one, "root": folder / f"{engine}-bf16", "watch_routers": folder / f"{engine}-bf16.json"}
        tasks.append((f"{engine} bf16", watched))
    for engine in ("fsdp2", "zero2", "zero3"):
        one = job(folder / "sparse", folder / "tokenizer", micro_batch=1, arguments=ENGINES[engine])
        copy = [_take(folder / "single-sparse-whole")]
        tasks.append((f"one to {engine}", {"job": one, "root": folder / f"one-to-{engine}", "before": copy}))
        lora = job(folder / "dense", folder / "tokenizer", micro_batch=1, arguments=ENGINES[engine], **LORA)
        tasks.append((f"{engine} lora", {"job": lora, "root": folder / f"{engine}-lora"}))
    return Runs(folder, run_named(folder, "pair", tasks, 2))


def test_loss_falls_and_every_step_is_written(alone):
    root = alone.at("single-dense-whole")
    found = losses(root)
    assert list(found) == list(range(1, STEPS + 1))
    assert found[STEPS] < found[1] - 0.5
    line = metrics(root)[-1]
    assert line["tokens"] == 2 * 2 * 64
    parts = [line[f"{part}_seconds"] for part in ("data", "forward", "backward", "optimizer")]
    assert all(part > 0 for part in parts)
    assert sum(parts) <= line["step_seconds"]
    assert line["mfu_ratio"] is None  # nobody said what the device can do
    heart = json.loads((root / "heartbeat" / "rank-00000.json").read_text())
    assert (heart["step"], heart["phase"]) == (STEPS, "done")


def test_a_run_ends_with_a_model_that_transformers_reads(alone):
    names = {path.name for path in (alone.at("single-sparse-whole") / "final").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


@pytest.mark.parametrize("family", FAMILIES)
def test_one_process_resumes_bit_for_bit(alone, family):
    assert [alone.codes[f"{name}-{family}"] for name in ("whole", "stopped", "resumed")] == [0, 75, 0]
    whole, cut = alone.at(f"single-{family}-whole"), alone.at(f"single-{family}-cut")
    assert losses(cut) == losses(whole)
    assert final_bytes(cut) == final_bytes(whole)
    # The signal comes while a step ends; the next one is finished, saved and named.
    assert [line["step"] for line in events(cut, "stopping")] == [CUT_AT + 1]
    assert [line["step"] for line in events(cut, "resumed")] == [CUT_AT + 1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_engine_agrees_with_one_process_and_resumes_bit_for_bit(pair, engine, family):
    assert [pair.codes[f"{engine} {family} {name}"] for name in ("whole", "stopped", "resumed")] == [0, 75, 0]
    whole, cut = pair.at(f"{engine}-{family}-whole"), pair.at(f"{engine}-{family}-cut")
    single = losses(pair.at(f"single-{family}-whole"))
    found = losses(whole)
    assert found == pytest.approx(single, rel=1e-5)
    assert found[STEPS] < found[1] - 0.5
    assert losses(cut) == found
    assert final_bytes(cut) == final_bytes(whole)
    # Accelerate leaves an engine out without a word where it does not know the device: what was saved tells.
    manifest = json.loads((whole / "checkpoints" / "step-00000006" / "manifest.json").read_text())
    assert manifest["engine"] == {"zero2": "deepspeed-zero2", "zero3": "deepspeed-zero3"}.get(
        engine, engine.split("-")[0]
    )
    if engine != "zero2":  # whose ranges may happen to end where tensors do
        assert are_parts_saved(whole) == (engine != "ddp")


def test_stacks_and_a_snapshot_are_written_on_a_signal(alone):
    assert alone.codes["to damage"] == 0
    stacks = (alone.at("damaged") / "dumps" / "attempt-000-rank-00000.stacks").read_text()
    assert "Current thread" in stacks
    assert "_maybe_log_save_evaluate" in stacks
    assert [line["step"] for line in events(alone.at("damaged"), "snapshot_skipped")] == [3]  # no device here


def test_a_loss_that_is_no_number_is_never_saved(alone):
    root = alone.at("poisoned")
    assert str(alone.codes["poisoned"]).startswith("NotFiniteError: step 4")
    told = json.loads((root / "errors" / "attempt-000-rank-00000.json").read_text())
    assert (told["type"], told["step"]) == ("NotFiniteError", 4)
    assert [line["loss"] for line in events(root, "nonfinite")] == ["NaN"]
    assert alone.codes["poison gone"] == 0
    assert [line["step"] for line in events(root, "resumed")] == [2]
    last = metrics(root)[-1]
    assert last["mfu_ratio"] == pytest.approx(last["tokens_per_s"] * 2e-6)  # said by the plan, of this rank
    assert losses(root) == losses(alone.at("single-dense-whole"))


def test_watching_a_step_costs_less_than_a_millisecond(alone, pair):
    for root in (alone.at("single-dense-whole"), *(pair.at(f"{engine}-sparse-whole") for engine in ENGINES)):
        costs = [line["instrument_seconds"] for line in metrics(root)]
        assert statistics.median(costs) < 1e-3, root


def test_replicas_that_differ_are_named(pair):
    assert [pair.codes[name] for name in ("replicas", "spoiled")] == [0, 0]
    assert not events(pair.at("replicas"), "replicas_differ")
    assert [line["step"] for line in events(pair.at("spoiled"), "replicas_differ")] == [4, 6]
    held = [line["parameter_checksum"] for line in metrics(pair.at("replicas"), 1)]
    assert [text is None for text in held] == [True, False] * 3


def test_two_ranks_save_beside_the_training(pair):
    assert [pair.codes[name] for name in ("beside", "beside resumed")] == [75, 0]
    assert losses(pair.at("beside")) == losses(pair.at("fsdp2-sparse-whole"))
    assert [line["step"] for line in events(pair.at("beside"), "checkpoint_saved")] == [2, 3, 4, 6]


@pytest.fixture(scope="module")
def later(pair) -> Runs:
    """One process again: what two ranks saved, adapters, and other kinds of text."""
    folder = pair.folder
    tokenizer = folder / "tokenizer"
    tasks = []
    for engine in ("ddp", "fsdp2", "zero2", "zero3"):
        one = job(folder / "sparse", tokenizer)
        copy = [_take(folder / f"{engine}-sparse-whole")]
        tasks.append((f"{engine} to one", {"job": one, "root": folder / f"{engine}-to-one", "before": copy}))
    one = job(folder / "dense", tokenizer, **LORA)
    tasks.append(("lora", {"job": one, "root": folder / "single-lora"}))
    for name in ("stopped", "resumed"):
        more = {"stop_at": CUT_AT} if name == "stopped" else {"attempt": 1}
        tasks.append((f"lora {name}", {"job": one, "root": folder / "single-lora-cut", **more}))
    quantized = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}
    one = job(folder / "dense", tokenizer, **{**LORA, "kind": "qlora", "quantization": quantized, "dtype": "bfloat16"})
    tasks.append(("qlora", {"job": one, "root": folder / "single-qlora"}))
    stream = {"path": str(TEXT), "streaming": True, "held_back_rows": 4}
    one = job(folder / "dense", tokenizer, data=stream, arguments={"eval_strategy": "steps", "eval_steps": 3})
    tasks.append(("stream", {"job": one, "root": folder / "stream"}))
    for name in ("stopped", "resumed"):
        more = {"stop_at": CUT_AT} if name == "stopped" else {"attempt": 1}
        tasks.append((f"stream {name}", {"job": one, "root": folder / "stream-cut", **more}))
    held = {"path": str(TEXT), "held_back_ratio": 0.01}
    recomputed = {
        "activation_checkpointing": True,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "dataloader_num_workers": 1,
    }
    one = job(folder / "dense", tokenizer, data=held, arguments=recomputed)
    tasks.append(("recomputed", {"job": one, "root": folder / "recomputed"}))
    for compression in ("zstd", "zstd-planes"):
        settings = {"every_steps": 3, "compression": compression, "async": True}
        one = job(folder / "sparse", tokenizer, checkpoints=settings)
        tasks.append((compression, {"job": one, "root": folder / compression}))
        copy = [_take(folder / compression)]
        tasks.append((f"{compression} resumed", {"job": one, "root": folder / f"{compression}-cut", "before": copy}))
    return Runs(folder, run_named(folder, "later", tasks, 1))


@pytest.mark.parametrize("engine", ["fsdp2", "zero2", "zero3"])
def test_one_process_save_goes_on_with_two_ranks_of_another_engine(pair, engine):
    assert pair.codes[f"one to {engine}"] == 0
    found = losses(pair.at(f"one-to-{engine}"))
    single = losses(pair.at("single-sparse-whole"))
    assert found == pytest.approx({step: single[step] for step in (4, 5, 6)}, rel=1e-5)
    assert events(pair.at(f"one-to-{engine}"), "random_state_new")


@pytest.mark.parametrize("engine", ["ddp", "fsdp2", "zero2", "zero3"])
def test_a_save_of_two_ranks_goes_on_with_one_process(later, engine):
    assert later.codes[f"{engine} to one"] == 0
    single = losses(later.at("single-sparse-whole"))
    assert losses(later.at(f"{engine}-to-one")) == pytest.approx({step: single[step] for step in (4, 5, 6)}, rel=1e-5)


def test_adapters_train_alone_resume_and_agree_on_every_engine(later, pair):
    assert [later.codes[name] for name in ("lora", "lora stopped", "lora resumed")] == [0, 75, 0]
    single = losses(later.at("single-lora"))
    assert losses(later.at("single-lora-cut")) == single
    assert (later.at("single-lora") / "final" / "adapter_model.safetensors").is_file()
    for engine in ("fsdp2", "zero2", "zero3"):
        assert pair.codes[f"{engine} lora"] == 0
        assert losses(pair.at(f"{engine}-lora")) == pytest.approx(single, rel=1e-4)
    saved = json.loads((later.at("single-lora") / "checkpoints" / "step-00000006" / "manifest.json").read_text())
    (tensors,) = [row["bytes"] for row in saved["files"] if row["name"].startswith("tensors-")]
    # Two layers, two matrices each of 64 columns, rank 4; three fp32 values a parameter and a header.
    assert tensors < 3 * 4 * 2 * 4 * (64 + 64 + 64 + 32) + 8000


def test_adapters_over_4_bit_weights_train(later):
    assert later.codes["qlora"] == 0
    found = losses(later.at("single-qlora"))
    assert found[1] == pytest.approx(losses(later.at("single-lora"))[1], rel=2e-2)
    assert found[STEPS] < found[1]


def test_a_stream_resumes_at_its_row_and_is_evaluated_on_what_was_held_back(later):
    assert [later.codes[name] for name in ("stream", "stream stopped", "stream resumed")] == [0, 75, 0]
    assert losses(later.at("stream-cut")) == losses(later.at("stream"))
    assert [line["step"] for line in events(later.at("stream"), "evaluated")] == [3, 6]


def test_recomputation_changes_no_loss(later):
    assert later.codes["recomputed"] == 0
    found = losses(later.at("recomputed"))
    assert found[STEPS] < found[1] - 0.5
    first, last = (line["loss"] for line in events(later.at("recomputed"), "evaluated"))
    assert last < first


@pytest.mark.parametrize("compression", ["zstd", "zstd-planes"])
def test_saves_beside_the_training_may_be_compressed_and_load_bit_for_bit(later, compression):
    assert [later.codes[name] for name in (compression, f"{compression} resumed")] == [0, 0]
    whole = later.at("single-sparse-whole")
    assert losses(later.at(compression)) == losses(whole)
    assert final_bytes(later.at(f"{compression}-cut")) == final_bytes(whole)
    for line in events(later.at(compression), "checkpoint_saved"):
        assert line["compression_ratio"] > 1.02


def planned(model, engine):
    """What the plan says of training this model with an engine, on cards as many as there were ranks."""
    count, stage, is_deepspeed = {
        "single": (1, 0, False), "ddp": (2, 0, False), "fsdp2": (2, 3, False), "fsdp2-offload": (2, 3, False),
        "zero2": (2, 2, True), "zero3": (2, 3, True),
    }[engine]  # fmt: skip
    precision = Precision(weights="fp32", gradients="fp32")
    if is_deepspeed:
        precision = Precision(weights="bf16", gradients="fp32", has_fp32_master=True)
    return estimate_training(
        Candidate(
            model=api.read_model(str(model)),
            workload=Training(kind=TrainingKind.FULL, seq_len=64, global_batch_size=4),
            cluster=place(Where(gpus=(("rtx-3090", count),))).cluster,
            engine="deepspeed" if is_deepspeed else "transformers",
            layout=Layout(dp=count, zero_stage=stage),
            precision=precision,
            micro_batch_size=1,
            optimizer="adamw",
        )
    )


@pytest.mark.parametrize("engine", ["single", *ENGINES])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_save_is_as_large_as_the_plan_says(pair, engine, family):
    folder = pair.at(f"{engine}-{family}-whole") / "checkpoints" / "step-00000006"
    content, around, num_ranks = 0, 0, 0
    for file in folder.iterdir():
        size = file.stat().st_size
        if file.name.startswith("tensors-"):
            header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
            content, around, num_ranks = content + size - header, around + header, num_ranks + 1
        else:
            around += size
    predicted = planned(pair.folder / family, engine).storage.checkpoints_bytes
    assert content == pytest.approx(predicted, rel=0.02)
    assert around < num_ranks * 60_000  # names, random states and the manifest: of no model's size


@pytest.mark.parametrize("engine", ["ddp", "fsdp2", "zero3"])
def test_routers_hold_and_score_in_fp32(pair, engine):
    assert pair.codes[f"{engine} bf16"] == 0
    seen = json.loads(pair.at(f"{engine}-bf16.json").read_text())
    # DeepSpeed computes with its 16-bit copy of all weights; its master of them is fp32.
    held = "torch.bfloat16" if engine == "zero3" else "torch.float32"
    assert {(weight, score) for weight, score, _ in seen} == {(held, "torch.float32")}
    assert max(error for _, _, error in seen) == 0.0
    assert losses(pair.at(f"{engine}-bf16"))[1] == pytest.approx(losses(pair.at("single-sparse-whole"))[1], rel=2e-3)


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(alone):
    root = alone.at("damaged")
    assert alone.codes["damaged"] == 0
    (skipped,) = events(root, "checkpoint_skipped")
    assert skipped["step"] == 6
    assert "is not what was written" in skipped["why"]
    assert [line["step"] for line in events(root, "resumed")] == [4]
    assert losses(root) == losses(alone.at("single-dense-whole"))
    assert not list((root / "checkpoints").glob(".*"))


def test_a_full_disk_leaves_the_former_checkpoint_and_training_goes_on(alone):
    root = alone.at("full")
    assert alone.codes["full disk"] == 0
    (failed,) = events(root, "checkpoint_failed")
    assert failed["step"] == 4
    assert "No space left" in failed["why"]
    assert [line["step"] for line in events(root, "checkpoint_saved")] == [2, 6]
    assert not list((root / "checkpoints").glob(".*"))
    assert losses(root) == losses(alone.at("single-dense-whole"))


def test_a_job_may_ask_to_stop_at_a_full_disk(alone):
    root = alone.at("full-stop")
    assert str(alone.codes["full disk, stop"]).startswith("SaveFailedError: step 4")
    told = json.loads((root / "errors" / "attempt-000-rank-00000.json").read_text())
    assert told["type"] == "SaveFailedError"
    assert [path.name for path in (root / "checkpoints").iterdir()] == ["step-00000002"]


def test_the_program_stands_alone_in_a_bundle(alone, tmp_path):
    """Copied elsewhere, started by name, told wrongly: one line and exit 2."""
    for file in (HERE.parents[1] / "src" / "tonnage" / "jobs").glob("train*.py"):
        shutil.copy(file, tmp_path)
    whole = job(alone.folder / "dense", alone.folder / "tokenizer", arguments={"max_steps": 1})
    (tmp_path / "job.json").write_text(json.dumps(whole))
    env = {**os.environ, "TONNAGE_RUN_DIR": "run", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    command = [sys.executable, "train.py", "job.json"]
    told = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    assert "step 1/1" in told.stdout
    (tmp_path / "job.json").write_text(json.dumps({**whole, "learning_rate": 1}))
    told = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 2
    assert "does not know learning_rate" in told.stderr
    assert TEXT.is_dir()
