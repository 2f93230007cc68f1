"""The training job on this machine: one process and two gloo ranks, every engine, a dense and a sparse model."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.jobs.trainings import HERE, LLAMA, MOE, STEPS, TEXT, events, final_bytes, job, losses, metrics, run_ranks

pytest.importorskip("torch", reason="the training job needs the extra test-train")
pytest.importorskip("accelerate", reason="the training job needs the extra test-train")
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
    tasks.append(("to damage", {"job": dense, "root": damaged}))
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
