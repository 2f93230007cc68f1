"""Every place writes every service down so that its own reader understands it, whatever the names hold."""

import re
import shlex
import subprocess
from dataclasses import replace

import pytest
import yaml

from tonnage import api
from tonnage.errors import RequestError
from tonnage.plan.request import make_request
from tonnage.render.services import service_of
from tonnage.render.targets import PLACES, find_place

BF16 = {"precision.weights": "bf16"}
HOSTILE = "x/$(touch never) `id` \"q\" 's' a: b # %n ${HOME} \n- y"


@pytest.fixture(scope="module")
def plans():
    serve = api.plan(make_request("Qwen/Qwen3-8B", gpus=["h100-sxm5-80gb:2"], limits={"engines": ["vllm"]}, pins=BF16))
    train = api.plan(
        make_request(
            "Qwen/Qwen3-8B", goal="finetune", finetune="full", gpus=["h100-sxm5-80gb:8"], nodes=2,
            load={"global_batch": 32}, limits={"engines": ["deepspeed"]},
        )
    )  # fmt: skip
    return {"serve": serve.plans[0], "train": train.plans[0]}


def hostile(plan):
    estimate = plan.estimate
    candidate = replace(estimate.candidate, model=replace(estimate.candidate.model, name=HOSTILE))
    return replace(plan, estimate=replace(estimate, candidate=candidate))


def files_of(plan, place, num_replicas=1):
    found = find_place(place)
    bundle = found.bundle(service_of(plan, host=found.host, num_replicas=num_replicas))
    return {file.path: file.text for file in bundle.files}


@pytest.mark.parametrize("goal", ["serve", "train"])
@pytest.mark.parametrize("place", PLACES)
def test_shell_and_yaml_are_read_back(plans, place, goal, tmp_path):
    if (place, goal) == ("compose", "train"):
        with pytest.raises(RequestError, match="one machine"):
            files_of(plans[goal], place)
        return
    for path, text in files_of(hostile(plans[goal]), place).items():
        if path.endswith((".sh", ".sbatch")):
            subprocess.run(["bash", "-n"], input=text.encode(), check=True)
        elif path.endswith(".yaml"):
            assert list(yaml.safe_load_all(text))


def servers_of(files):
    services = yaml.safe_load(files["compose.yaml"])["services"]
    return {
        name: one
        for name, one in services.items()
        if name not in ("volume-owner", "router", "nccl-test", "gpu-exporter")
    }


def words_of(place, files):
    """Return the words that the engine is given in the end, as the place's reader understands them."""
    if place == "compose":
        (server,) = servers_of(files).values()
        return [word.replace("$$", "$") for word in server["command"]]
    if place == "kubernetes":
        objects = {one["kind"]: one for one in yaml.safe_load_all(files["kubernetes.yaml"])}
        container = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]
        return [word.replace("$$", "$") for word in container["args"]]
    command = files["start.sh"].partition("\nexec ")[2].replace(" \\\n", " ")
    return shlex.split(command)[1:]


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_name_stays_one_word(plans, place):
    words = words_of(place, files_of(hostile(plans["serve"]), place))
    assert words[:2] == ["serve", HOSTILE]


@pytest.mark.parametrize("place", PLACES)
def test_the_flags_of_the_prediction_are_there(plans, place):
    words = words_of(place, files_of(plans["serve"], place))
    assert words[words.index("--tensor-parallel-size") + 1] == str(plans["serve"].estimate.candidate.layout.tp)
    listens = words[words.index("--host") + 1]
    assert listens == ("127.0.0.1" if place in ("local", "systemd") else "0.0.0.0")


def test_replicas_have_devices_of_their_own_and_a_router(plans):
    files = files_of(plans["serve"], "compose", num_replicas=2)
    services = yaml.safe_load(files["compose.yaml"])["services"]
    held = [
        tuple(one["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"])
        for one in servers_of(files).values()
    ]
    assert held == [("0", "1"), ("2", "3")]
    assert all(f"server {name}:8000" in files["router.conf"] for name in servers_of(files))
    assert services["router"]["ports"] == ["127.0.0.1:8080:8080"]


def test_nothing_holds_a_secret(plans):
    for place in PLACES:
        for text in files_of(plans["serve"], place).values():
            assert not re.search(r"hf_[A-Za-z0-9]{8}|token: *[A-Za-z0-9]", text)


def test_rendering_is_deterministic(plans):
    for place in PLACES:
        assert files_of(plans["serve"], place) == files_of(plans["serve"], place)


def test_a_job_over_nodes_meets_at_its_first_pod(plans):
    text = files_of(plans["train"], "kubernetes")["kubernetes.yaml"]
    objects = {one["kind"]: one for one in yaml.safe_load_all(text)}
    assert objects["Job"]["spec"]["parallelism"] == 2
    env = {one["name"]: one for one in objects["Job"]["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"]["value"] == "qwen3-8b-deepspeed-0.qwen3-8b-deepspeed"
    assert {"install.sh", "start.sh", "job.json", "train.py"} <= set(objects["ConfigMap"]["data"])
