"""`tonnage deploy`: files that start a plan, and a folder in which a person's work is safe."""

import json
import resource
import shlex
import subprocess
from contextlib import contextmanager
from dataclasses import replace

import pytest
import yaml

from tonnage import api
from tonnage.plan.request import make_request
from tonnage.render.services import slug_of


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    answer = api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"]))
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(api.write_plan(answer.plans[0]), encoding="utf-8")
    return path


def test_a_bundle_is_written_and_left_as_it_is_the_second_time(tonnage, plan_file, tmp_path):
    first = tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"), "--json")
    assert first.code == 0
    assert {one["state"] for one in json.loads(first.out)["changes"]} == {"new"}
    again = tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"), "--json")
    assert {one["state"] for one in json.loads(again.out)["changes"]} == {"same"}
    assert tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"), "--diff").out == ""


@contextmanager
def no_file_above(num_bytes):
    """As a disk that fills up while files are written."""
    held = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, held[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, held)


def test_a_disk_that_fills_up_leaves_no_half_bundle(tonnage, plan_file, tmp_path):
    with no_file_above(2000):
        said = tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"))
    assert (said.code, "cannot be written" in said.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
    tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"))
    held = {path.name: path.read_text() for path in (tmp_path / "b").iterdir()}
    with no_file_above(1000):
        assert tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"), "--place", "slurm").code == 2
    assert {path.name: path.read_text() for path in (tmp_path / "b").iterdir()} == held


def test_a_disk_that_fills_up_leaves_the_earlier_plan(tonnage, tmp_path):
    kept = tmp_path / "plan.toml"
    kept.write_text("an earlier plan")
    with no_file_above(2000):
        said = tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "-o", str(kept))
    assert (said.code, "cannot be written" in said.err) == (2, True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan.toml", "an earlier plan")]


def test_what_a_person_changed_is_not_written_over(tonnage, plan_file, tmp_path):
    tonnage("deploy", str(plan_file), "--to", str(tmp_path))
    start = tmp_path / "start.sh"
    start.write_text("mine\n")
    assert tonnage("deploy", str(plan_file), "--to", str(tmp_path)).code == 0  # the same plan: the change still stands
    said = tonnage("deploy", str(plan_file), "--to", str(tmp_path), "--port", "9000")
    assert said.code == 3
    assert "start.sh was changed by hand and stays: it starts the earlier plan" in said.out
    assert "start with" not in said.out
    assert start.read_text() == "mine\n"
    assert "+  --port 9000" in tonnage("deploy", str(plan_file), "--to", str(tmp_path), "--port", "9000", "--diff").out


def test_a_manifest_that_points_outside_reaches_nothing(tonnage, plan_file, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("x")
    tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"))
    manifest = tmp_path / "b" / "manifest.json"
    table = json.loads(manifest.read_text())
    from tonnage.render.bundle import digest

    table["files"] += [{"path": "../victim", "sha256": digest("x")}, {"path": str(victim), "sha256": digest("x")}]
    manifest.write_text(json.dumps(table))
    assert tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b")).code == 0
    assert victim.read_text() == "x"


def test_the_start_script_is_shell(tonnage, plan_file, tmp_path):
    tonnage("deploy", str(plan_file), "--to", str(tmp_path))
    for script in tmp_path.glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)


def test_a_place_that_is_none(tonnage, plan_file):
    said = tonnage("deploy", str(plan_file), "--to", "-", "--place", "moon")
    assert said.code == 2
    assert "'moon' is no place" in said.err


@pytest.mark.parametrize("folder", ["", " ", "x" * 300, "/proc/none/here"])
def test_a_folder_that_cannot_be(tonnage, plan_file, folder):
    said = tonnage("deploy", str(plan_file), "--to", folder)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "fault of ours" not in said.err


def test_a_start_script_of_a_persons_own_is_not_offered(tonnage, plan_file, tmp_path):
    (tmp_path / "start.sh").write_text("mine\n")
    said = tonnage("deploy", str(plan_file), "--to", str(tmp_path))
    assert said.code == 3
    assert "start with" not in said.out
    assert "start.sh is there already" in said.out
    assert (tmp_path / "start.sh").read_text() == "mine\n"


def test_the_files_that_are_counted_are_those_written(tonnage, plan_file, tmp_path):
    tonnage("deploy", str(plan_file), "--to", str(tmp_path))
    (tmp_path / "start.sh").unlink()
    assert ": 1 files" in tonnage("deploy", str(plan_file), "--to", str(tmp_path)).out


CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024,
}  # fmt: skip


@pytest.mark.parametrize("folder", ["mine", 'it\'s $(id) & "x" 100%'])
@pytest.mark.parametrize("place", ["local", "compose", "systemd", "slurm", "skypilot", "kubernetes"])
def test_a_model_of_this_machine_is_named_by_where_it_lies(tonnage, tmp_path, monkeypatch, place, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    words = ("--gpu", "rtx-4090", "--engine", "vllm", "--quant", "bf16", "--context", "512", "--pick", "1")
    assert tonnage("plan", folder, *words, "-o", "plan.toml").code == 0
    assert tonnage("deploy", "plan.toml", "--to", "bundle", "--place", place).code == 0
    where = str(tmp_path / folder)
    files = {path.name: path.read_text() for path in (tmp_path / "bundle").iterdir()}
    if place in ("compose", "kubernetes"):
        command = json.dumps(list(yaml.safe_load_all(files[f"{place}.yaml"])))
        assert json.dumps(where)[1:-1].replace("$", "$$") in command
    else:
        assert where in shlex.split(files["start.sh"].partition("\nexec ")[2].replace(" \\\n", " "))
    if place == "compose":
        volumes = yaml.safe_load(files["compose.yaml"])["services"][f"{slug_of(folder)}-vllm"]["volumes"]
        assert {"type": "bind", "source": where.replace("$", "$$"), "target": where.replace("$", "$$"),
                "read_only": True} in volumes  # fmt: skip
    if place == "skypilot":
        assert yaml.safe_load(files["task.yaml"])["file_mounts"] == {where: where}


def test_a_model_that_is_not_here_is_told(tonnage, plan_file, tmp_path, monkeypatch):
    plan = api.read_plan(plan_file.read_text(encoding="utf-8"))
    gone = replace(plan, request=replace(plan.request, model="./gone/config.json"))
    (tmp_path / "plan.toml").write_text(api.write_plan(gone), encoding="utf-8")
    said = tonnage("deploy", str(tmp_path / "plan.toml"), "--to", str(tmp_path / "b"))
    assert said.code == 0
    assert "./gone/config.json is not here" in said.err


def test_a_name_of_two_lines_stays_in_its_place(plan_file):
    plan = api.read_plan(plan_file.read_text(encoding="utf-8"))
    plan = replace(plan, request=replace(plan.request, model="a\n\n# b"))
    assert api.read_plan(api.write_plan(plan)) == plan
    page = next(file.text for file in api.deploy(plan).files if file.path == "README.md")
    assert "\n# b" not in page


@pytest.fixture(scope="module")
def vllm_file(tmp_path_factory):
    answer = api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ("vllm",)}))
    path = tmp_path_factory.mktemp("vllm") / "plan.toml"
    path.write_text(api.write_plan(answer.plans[0]), encoding="utf-8")
    return path


def test_replicas_follow_the_load_as_simulate_found_it(tonnage, vllm_file):
    words = ("deploy", str(vllm_file), "--to", "-", "--place", "kubernetes", "--scale", "0..6")
    text = tonnage(*words, "--scale-target", "12", "--scale-on", "in-flight").out
    parts = {part.partition(" <==")[0]: part.partition("\n")[2] for part in text.split("==> ")[1:]}
    keda = yaml.safe_load(parts["keda.yaml"])["spec"]
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (0, 6)
    query = keda["triggers"][0]["metadata"]
    assert query["threshold"] == "12"
    assert "waiting" in query["query"]
    assert "running" in query["query"]
    hpa = yaml.safe_load(parts["hpa.yaml"])["spec"]
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (1, 6)


@pytest.mark.parametrize(
    "words,reason",
    [
        (("--place", "local", "--scale", "1..4", "--scale-target", "2"), "do not come and go by themselves"),
        (("--place", "kubernetes", "--scale", "1..4"), "by how many requests"),
        (("--place", "kubernetes", "--scale-target", "4"), "says nothing without a range"),
        (("--place", "kubernetes", "--scale", "4..1", "--scale-target", "4"), "no range of replicas"),
    ],
)
def test_scaling_that_makes_no_sense_is_refused(tonnage, vllm_file, words, reason):
    said = tonnage("deploy", str(vllm_file), "--to", "-", *words)
    assert said.code == 2
    assert reason in said.err
