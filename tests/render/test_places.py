"""What each place owes beside the launch: supervision, limits, owners, scaling, and a test of the links."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import yaml

from tonnage import api
from tonnage.engines.servers import is_image_seen
from tonnage.plan.request import make_request
from tonnage.render.parts import container_words, job_script, supervise_script
from tonnage.render.services import service_of
from tonnage.render.targets import find_place

BF16 = {"precision.weights": "bf16"}


def a_plan(**words):
    return api.plan(make_request("Qwen/Qwen3-8B", **words)).plans[0]


@pytest.fixture(scope="module")
def server():
    return a_plan(gpus=["h100-sxm5-80gb:2"], limits={"engines": ["vllm"]}, pins=BF16, load={"concurrency": 64})


@pytest.fixture(scope="module")
def job():
    return a_plan(
        goal="finetune", finetune="full", gpus=["h100-sxm5-80gb:8"], limits={"engines": ["deepspeed"], "spot": True},
        load={"tokens": 10**9},
    )  # fmt: skip


@pytest.fixture(scope="module")
def over_nodes():
    return a_plan(
        goal="finetune", finetune="full", gpus=["h100-sxm5-80gb:8"], nodes=2, network="ib-ndr",
        limits={"engines": ["deepspeed"]}, load={"global_batch": 32},
    )  # fmt: skip


def files_of(plan, place, **words):
    found = find_place(place)
    bundle = found.bundle(service_of(plan, host=found.host, **words))
    return {file.path: file.text for file in bundle.files}


def supervised(folder, start, pauses="exit 0"):
    (folder / "start.sh").write_text(f"#!/bin/bash\necho x >> {folder}/starts\n{start}\n")
    (folder / "supervise.sh").write_text(supervise_script().text)
    (folder / "sleep").write_text(f"#!/bin/bash\necho $1 >> {folder}/pauses\n{pauses}\n")
    (folder / "sleep").chmod(0o755)
    return subprocess.Popen(
        ["bash", "supervise.sh"], cwd=folder, env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin"},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize(("start", "code", "starts"), [
    ("exit 0", 0, 1), ("exit 2", 2, 1), ("exit 3", 3, 1), ("exit 1", 1, 6), ("exit 75", 75, 6),
    ("[ $(wc -l < starts) -ge 3 ] && exit 0; exit 9", 0, 3),
])  # fmt: skip
def test_a_failure_is_tried_again_and_a_wrong_request_is_not(tmp_path, start, code, starts):
    assert supervised(tmp_path, start).wait(20) == code
    assert len((tmp_path / "starts").read_text().split()) == starts
    if starts == 6:
        assert (tmp_path / "pauses").read_text().split() == ["30", "60", "120", "240", "480"]


def test_a_stop_reaches_the_service_and_ends_the_supervision(tmp_path):
    process = supervised(
        tmp_path, "trap 'echo saved > saved; exit 75' TERM; touch ready; while :; do /bin/sleep 0.05; done"
    )
    until = time.monotonic() + 10
    while not (tmp_path / "ready").exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 75
    assert (tmp_path / "saved").exists()
    assert len((tmp_path / "starts").read_text().split()) == 1


def test_a_container_of_a_job_works_in_a_folder_of_its_own(job, tmp_path):
    script = container_words(service_of(job), "/cache/work")[2]
    for name in ("bundle", "cache"):
        script = script.replace(f"/{name}", str(tmp_path / name))
    (tmp_path / "bundle" / "data").mkdir(parents=True)
    for name in ("install.sh", "supervise.sh"):
        (tmp_path / "bundle" / name).write_text(f"echo {name} in $PWD; ls run data >/dev/null && echo there\n")
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    work = tmp_path / "cache" / "work"
    assert said.stdout.split("\n")[:4] == [f"install.sh in {work}", "there", f"supervise.sh in {work}", "there"]
    assert (work / "data").resolve() == tmp_path / "bundle" / "data"
    again = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert again.stdout == said.stdout


@pytest.mark.parametrize("goal", ["serve", "train"])
def test_compose_containers_are_bounded_and_nobody_is_root(server, job, goal):
    plan = server if goal == "serve" else job
    service = service_of(plan, host="0.0.0.0")
    services = yaml.safe_load(files_of(plan, "compose", num_replicas=2 if goal == "serve" else 1)["compose.yaml"])[
        "services"
    ]
    for name, one in services.items():
        assert re.fullmatch(r"[^@]+:[\w.-]*\d[\w.-]*", one["image"]), one["image"]
        assert one["cap_drop"] == ["ALL"], name
        assert "privileged" not in one
        assert (one["user"] == "0:0") is (name in ("volume-owner", "gpu-exporter"))
    limit = service.host_memory_bytes + service.shared_memory_bytes
    mains = [one for name, one in services.items() if name.startswith(service.name)]
    assert len(mains) == (2 if goal == "serve" else 1)
    for one in mains:
        assert one["mem_limit"] == one["memswap_limit"] == limit
        assert one["shm_size"] == service.shared_memory_bytes
        assert one["ulimits"]["memlock"] == -1
        assert one["depends_on"]["volume-owner"]["condition"] == "service_completed_successfully"
        assert ("healthcheck" in one) is (goal == "serve")
    assert services["volume-owner"]["entrypoint"] == ["chown", service.image_user, "/cache"]
    assert services["nccl-test"]["profiles"] == ["test"]


def test_an_image_that_nobody_was_seen_to_use_is_told(server):
    page = files_of(server, "compose")["README.md"]
    assert not is_image_seen("vllm/vllm-openai:v0.33.0")
    assert "docker manifest inspect vllm/vllm-openai:v0.33.0" in page
    assert is_image_seen("nginx:1.28.0-alpine")


def test_replicas_are_scaled_by_the_engines_own_queue(server):
    files = files_of(server, "kubernetes", num_replicas=2)
    hpa, keda = yaml.safe_load(files["hpa.yaml"]), yaml.safe_load(files["keda.yaml"])
    (rule,) = yaml.safe_load(files["adapter-rule.yaml"])["rules"]["custom"]
    assert hpa["spec"]["scaleTargetRef"]["name"] == keda["spec"]["scaleTargetRef"]["name"] == "qwen3-8b-vllm"
    pods = hpa["spec"]["metrics"][0]["pods"]
    assert pods["metric"]["name"] == rule["name"]["as"] == "vllm_num_requests_waiting"
    assert "vllm:num_requests_waiting" in rule["seriesQuery"]
    assert "vllm:num_requests_waiting" in keda["spec"]["triggers"][0]["metadata"]["query"]
    assert pods["target"]["averageValue"] == keda["spec"]["triggers"][0]["metadata"]["threshold"] == "6"  # of 64
    assert hpa["spec"]["minReplicas"] == keda["spec"]["minReplicaCount"] == 2


def test_a_server_that_shows_no_queue_is_not_scaled():
    plan = a_plan(gpus=["rtx-4090"], limits={"engines": ["ollama"]})
    files = files_of(plan, "kubernetes")
    assert "hpa.yaml" not in files
    assert "nothing scales its replicas" in files["README.md"]


def test_pods_ask_for_whole_cores_and_their_metrics_are_found(server):
    objects = {one["kind"]: one for one in yaml.safe_load_all(files_of(server, "kubernetes")["kubernetes.yaml"])}
    template = objects["Deployment"]["spec"]["template"]
    resources = template["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {key: resources["limits"][key] for key in ("cpu", "memory")}
    assert resources["limits"]["cpu"].isdigit()
    assert template["metadata"]["annotations"]["prometheus.io/port"] == "8000"
    assert template["spec"]["securityContext"]["runAsNonRoot"]
    assert template["spec"]["securityContext"]["runAsUser"] == 2000  # the user that vLLM's image is prepared for


def test_only_rdma_locks_memory_in_a_pod(over_nodes, job):
    def capabilities(plan):
        objects = {one["kind"]: one for one in yaml.safe_load_all(files_of(plan, "kubernetes")["kubernetes.yaml"])}
        return objects["Job"]["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]

    assert capabilities(over_nodes) == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert capabilities(job) == {"drop": ["ALL"]}


@pytest.mark.parametrize(("place", "path"), [
    ("local", "nccl-test.sh"), ("systemd", "nccl-test.sh"), ("slurm", "nccl-test.sbatch"),
    ("skypilot", "nccl-test.yaml"), ("kubernetes", "nccl-test.yaml"),
])  # fmt: skip
def test_every_place_tests_the_links_over_all_machines(over_nodes, place, path):
    files = files_of(over_nodes, place)
    assert "all_reduce.py" in files
    assert path in files["README.md"]
    assert "nccl-test.sh" in files[path] or path == "nccl-test.sh"
    if place == "kubernetes":
        job = next(one for one in yaml.safe_load_all(files[path]) if one["kind"] == "Job")
        assert job["spec"]["completions"] == 2
        (container,) = job["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one.get("value") for one in container["env"]}
        assert env["MASTER_ADDR"] == "qwen3-8b-deepspeed-links-0.qwen3-8b-deepspeed-links"
        assert {one["name"] for one in container["volumeMounts"]} == {"shm", "scratch", "bundle"}


def test_slurm_ends_a_job_in_time_and_gives_its_steps_their_cores(job):
    text = files_of(job, "slurm")["job.sbatch"]
    options = dict(re.findall(r"#SBATCH --([a-z-]+)=(.*)", text))
    minutes = int(options["time"])
    assert minutes * 60 > job.estimate.performance.job_seconds.high
    assert int(options["signal"].removeprefix("TERM@")) == round(service_of(job).stop_seconds)
    assert text.index("SRUN_CPUS_PER_TASK") < text.index("\nsrun ")
    assert "#SBATCH --requeue" in text


def test_spot_jobs_are_managed_and_keep_checkpoints_in_a_bucket(job):
    files = files_of(job, "skypilot")
    task = yaml.safe_load(files["task.yaml"])
    assert "sky jobs launch -n qwen3-8b-deepspeed task.yaml" in files["README.md"]
    assert task["resources"]["use_spot"] is True
    assert task["resources"]["job_recovery"]["strategy"] == "EAGER_NEXT_REGION"
    assert task["file_mounts"]["/checkpoints"]["mode"] == "MOUNT"
    assert task["run"].startswith("ln -sfn /checkpoints run\n")


FOLDERS = ["plain", "a b", "it's", 'say "x"', "100%n", "$(id)", "a&b|c", "模型"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_unit_is_filled_in_whatever_its_folder_is_called(server, tmp_path, folder):
    place = tmp_path / folder
    place.mkdir()
    for path, text in files_of(server, "systemd").items():
        (place / path).write_text(text)
    said = subprocess.run(["bash", "install-unit.sh"], cwd=place, capture_output=True, text=True, check=True)
    lines = said.stdout.splitlines()
    assert f"WorkingDirectory={str(place).replace('%', '%%')}" in lines
    assert f"EnvironmentFile=-{str(place).replace('%', '%%')}/secrets.env" in lines


def test_a_folder_that_no_unit_can_name_is_refused(server, tmp_path):
    place = tmp_path / "line\nbreak"
    place.mkdir()
    for path, text in files_of(server, "systemd").items():
        (place / path).write_text(text)
    said = subprocess.run(["bash", "install-unit.sh"], cwd=place, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "cannot name this folder" in said.stderr


def test_a_unit_restarts_when_that_can_help_and_cannot_take_the_host_down(server, job):
    def unit(plan):
        (text,) = [text for path, text in files_of(plan, "systemd").items() if path.endswith(".service")]
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    serves, trains = unit(server), unit(job)
    assert (serves["Restart"], trains["Restart"]) == ("always", "on-failure")
    for one, plan in ((serves, server), (trains, job)):
        service = service_of(plan)
        assert one["RestartSec"] == "30"
        assert one["RestartPreventExitStatus"] == "2 3"
        assert one["StartLimitBurst"] == "5"
        assert one["KillSignal"] == "SIGTERM"
        assert int(one["TimeoutStopSec"]) == round(service.stop_seconds)
        assert int(one["MemoryMax"]) == service.host_memory_bytes + service.shared_memory_bytes
        assert (one["MemorySwapMax"], one["OOMPolicy"]) == ("0", "stop")
        assert "MemoryHigh" not in one
    assert int(trains["TimeoutStopSec"]) > 60 + job.estimate.storage.checkpoints_bytes / 1e9


def test_a_start_inside_a_control_group(server):
    service = service_of(server)
    words = shlex.split(files_of(server, "local")["limited.sh"].partition("\nexec ")[2])
    assert f"MemoryMax={service.host_memory_bytes + service.shared_memory_bytes}" in words
    assert words[-2:] == ["bash", "start.sh"]


def test_weights_that_are_made_lie_where_the_place_looks(server):
    plan = a_plan(gpus=["rtx-4090"], limits={"engines": ["vllm"]}, pins={"precision.weights": "awq"})
    objects = {one["kind"]: one for one in yaml.safe_load_all(files_of(plan, "kubernetes")["kubernetes.yaml"])}
    assert "/cache/weights/Qwen3-8B-awq" in objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]
    task = yaml.safe_load(files_of(plan, "skypilot")["task.yaml"])
    assert "bash weights.sh" in task["setup"]
    weights = service_of(plan).weights
    assert int(task["resources"]["memory"].removesuffix("+")) >= weights.host_bytes / 2**30 > 8
    assert task["resources"]["disk_size"] > weights.disk_bytes / 2**30


def test_a_longest_name_is_a_label_with_its_suffixes(server):
    candidate = server.estimate.candidate
    named = replace(candidate, model=replace(candidate.model, name="x/" + "a" * 200))
    plan = replace(server, estimate=replace(server.estimate, candidate=named))
    for one in yaml.safe_load_all(files_of(plan, "kubernetes")["nccl-test.yaml"]):
        assert len(one["metadata"]["name"]) <= 63


@pytest.mark.parametrize(("engine", "ref"), [
    ("llama.cpp", "b11549"), ("ik_llama.cpp", "8337e4cd3861406fc04e0854b1409cd1b027fbc9"),
])  # fmt: skip
def test_what_no_package_carries_is_built_from_one_state_of_its_source(engine, ref):
    plan = a_plan(gpus=["rtx-4090"], limits={"engines": [engine]}, pins={"precision.weights": "q4_k_m"})
    files = files_of(plan, "local")
    assert re.search(rf"git -C {re.escape(engine)} fetch -q --depth 1 https://\S+ {ref}\n", files["install.sh"])
    assert "-DGGML_CUDA=ON" in files["install.sh"]
    assert f'export PATH="$PWD/{engine}/build/bin:$PATH"' in files["start.sh"]
    assert "bash install.sh" in files["README.md"]
    (check,) = [line for line in files["install.sh"].splitlines() if "for one in" in line]
    said = subprocess.run(
        ["/bin/bash", "-c", check, "install.sh"], env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (4, "install.sh: cmake is not here: bash prepare.sh\n")


def test_pytorchs_own_architectures_are_held_to_the_device(server, tmp_path):
    text = files_of(server, "local")["install.sh"]
    (code,) = [line for line in text.splitlines() if "get_arch_list" in line]
    words = shlex.split(code)
    stand_in = """
class cuda:
    get_arch_list = staticmethod(lambda: {archs!r})
class version:
    cuda = "13.0"
class backends:
    class cudnn:
        version = staticmethod(lambda: 91300)
__version__ = "2.14.0"
"""
    for archs, expected in ((["sm_80", "sm_90a"], 0), (["sm_80", "sm_86"], 4), (["sm_100", "sm_120"], 4), ([], 0)):
        (tmp_path / "torch.py").write_text(stand_in.format(archs=archs))
        said = subprocess.run([sys.executable, *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert said.returncode == expected, (archs, said.stderr)
        assert "cuDNN 91300" in said.stdout


@pytest.mark.parametrize(
    ("told", "launcher", "code"), [("75", 1, 75), ("2", 1, 2), ("", 1, 1), ("", 0, 0), ("75", 0, 0)]
)
def test_a_job_ends_with_the_code_of_its_processes(tmp_path, told, launcher, code):
    write = f'printf {told} > "$TONNAGE_EXIT_FILE"\n' if told else ""
    (tmp_path / "start.sh").write_text(f"{write}exit {launcher}\n")
    (tmp_path / "job.sh").write_text(job_script().text)
    (tmp_path / ".exit-code.0").write_text("9")  # of an earlier start
    assert subprocess.run(["bash", "job.sh"], cwd=tmp_path, check=False).returncode == code


def test_a_stop_reaches_the_processes_of_a_job_and_their_code_is_told(tmp_path):
    (tmp_path / "start.sh").write_text(
        "trap 'printf 75 > \"$TONNAGE_EXIT_FILE\"; exit 1' TERM; touch ready; while :; do sleep 0.05; done\n"
    )
    (tmp_path / "job.sh").write_text(job_script().text)
    process = subprocess.Popen(["bash", "job.sh"], cwd=tmp_path)
    until = time.monotonic() + 10
    while not (tmp_path / "ready").exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 75


@pytest.mark.parametrize("place", ["systemd", "kubernetes", "skypilot", "compose"])
def test_every_place_starts_a_launcher_through_its_own_code(job, server, place):
    files = files_of(job, place)
    assert "job.sh" in files
    assert any("bash job.sh" in text for path, text in files.items() if path not in ("README.md", "job.sh"))
    assert "job.sh" not in files_of(server, place)
    assert "job.sh" not in files_of(job, "local")


def test_a_launcher_waits_until_a_checkpoint_is_written(job):
    service = service_of(job)
    waits = {one.name: one.value for one in service.settings}["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]
    assert int(waits) == round(service.stop_seconds) > 60 + job.estimate.storage.checkpoints_bytes / 1e9
