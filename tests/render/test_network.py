"""Settings of NCCL follow from the plan and the machine, machines find each other, and the links are tested."""

import importlib.util
import os
import shlex
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import tonnage
from tonnage import api
from tonnage.errors import RequestError
from tonnage.hardware.topology import link
from tonnage.plan.request import make_request
from tonnage.render import network
from tonnage.render.parts import LINK_TEST, link_test
from tonnage.render.services import service_of
from tonnage.render.targets.local import start_script

JOBS = Path(tonnage.__file__).parent / "jobs"


def a_service(**words):
    return service_of(api.plan(make_request(words.pop("model", "Qwen/Qwen3-8B"), **words)).plans[0])


@pytest.fixture(scope="module")
def over_nodes():
    return a_service(
        goal="finetune", finetune="full", gpus=["h100-sxm5-80gb:8"], nodes=2, network="ib-ndr",
        load={"global_batch": 32}, limits={"engines": ["deepspeed"]},
    )  # fmt: skip


@pytest.fixture(scope="module")
def on_4090s():
    return a_service(goal="finetune", finetune="lora", gpus=["rtx-4090:4"], limits={"engines": ["deepspeed"]})


@pytest.fixture(scope="module")
def served_over_nodes():
    return a_service(
        model="deepseek-ai/DeepSeek-V3", gpus=["h100-sxm5-80gb:8"], nodes=2, network="ib-ndr",
        limits={"engines": ["vllm"]}, pins={"layout.dp": 1, "layout.pp": 2},
    )  # fmt: skip


def networked(service, slug):
    cluster = replace(service.candidate.cluster, inter_link=link(slug))
    return replace(service.candidate, cluster=cluster)


@pytest.mark.parametrize(
    ("slug", "expected"),
    [
        ("ib-ndr", {"NCCL_NET": "IB"}),
        ("roce-400", {"NCCL_NET": "IB"}),
        ("eth-25", {}),
        ("eth-100", {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}),
        ("efa-p5", {}),  # a plugin of its own
    ],
)
def test_settings_follow_the_network(over_nodes, slug, expected):
    made = {one.name: one.value for one in network.settings_of(networked(over_nodes, slug), is_job=False)}
    assert made == {"NCCL_DEBUG": "WARN", **expected}
    assert not {"NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_ALGO", "NCCL_PROTO"} & set(made)


def test_every_setting_has_its_reason_in_the_script(over_nodes):
    text = start_script(over_nodes).text
    for one in over_nodes.settings:
        assert f"# {one.reason}" in text
        assert f'{one.name}="${{{one.name}-{one.value}}}"' in text


def test_one_card_needs_nothing_of_nccl():
    alone = a_service(gpus=["rtx-4090"], limits={"engines": ["vllm"]})
    assert not alone.settings
    assert "NCCL" not in start_script(alone).text
    assert not alone.has_collectives
    assert not a_service(gpus=["rtx-4090:2"], limits={"engines": ["llama.cpp"]}).has_collectives


def begin(service, folder, env, **programs):
    """Run a start script with stand-ins; the engine prints its words and the variables that it sees."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    shown = "\n".join(f"echo {name}=${name}" for name in SHOWN)
    programs = {service.argv[0]: f'echo "words: $*"\n{shown}', **programs}
    for name, body in programs.items():
        (place / name).write_text(f"#!/bin/bash\n{body}\n")
        (place / name).chmod(0o755)
    (folder / "start.sh").write_text(start_script(service).text)
    (folder / "interface.py").write_text((JOBS / "interface.py").read_text())
    base = {"PATH": f"{place}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)}
    return subprocess.run(
        ["bash", "start.sh"], cwd=folder, env={**base, **env}, capture_output=True, text=True, check=False
    )


SHOWN = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_NET", "OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF",
         "PYTORCH_CUDA_ALLOC_CONF", "NCCL_P2P_DISABLE", "TORCH_FR_DUMP_TEMP_FILE")  # fmt: skip


def test_the_interface_is_found_and_threads_are_shared(over_nodes, tmp_path):
    env = {"MASTER_ADDR": "127.0.0.1", "NODE_RANK": "0", "NCCL_NET": "Socket"}
    said = begin(over_nodes, tmp_path, env, python="echo 2.13.0+cu130", nproc="echo 64")
    assert said.returncode == 0, said.stderr
    seen = dict(line.split("=", 1) for line in said.stdout.splitlines() if "=" in line)
    assert seen["NCCL_SOCKET_IFNAME"] == "=lo"
    assert seen["GLOO_SOCKET_IFNAME"] == "lo"
    assert seen["OMP_NUM_THREADS"] == "8"
    assert seen["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert seen["PYTORCH_CUDA_ALLOC_CONF"] == ""
    assert seen["TORCH_FR_DUMP_TEMP_FILE"] == f"{tmp_path}/traces/rank_"


def test_a_persons_own_variables_win(over_nodes, tmp_path):
    env = {"MASTER_ADDR": "127.0.0.1", "NODE_RANK": "0", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "bond0"}
    assert "NCCL_SOCKET_IFNAME=bond0" in begin(over_nodes, tmp_path, env, python="echo 2.13.0").stdout


@pytest.mark.parametrize(
    ("version", "name"), [("2.9.1", "PYTORCH_CUDA_ALLOC_CONF"), ("2.11.0+cu128", "PYTORCH_ALLOC_CONF")]
)
def test_the_allocators_variable_follows_the_release(on_4090s, tmp_path, version, name):
    said = begin(on_4090s, tmp_path, {}, python=f"echo {version}")
    assert f"\n{name}=expandable_segments:True" in said.stdout, said.stderr


@pytest.mark.parametrize(("driver", "is_off"), [("535.154.05", "1"), ("550.40.07", ""), ("580.95.05", "")])
def test_peer_access_is_turned_off_only_where_accelerate_asks_for_it(on_4090s, tmp_path, driver, is_off):
    said = begin(on_4090s, tmp_path, {}, **{"python": "echo 2.13.0", "nvidia-smi": f"echo {driver}"})
    assert f"NCCL_P2P_DISABLE={is_off}\n" in said.stdout, said.stderr


def test_without_rdma_a_plan_that_counts_on_it_does_not_start(over_nodes, tmp_path):
    if Path("/sys/class/infiniband").exists():
        pytest.skip("this machine has RDMA")
    said = begin(over_nodes, tmp_path, {"MASTER_ADDR": "127.0.0.1", "NODE_RANK": "0"}, python="echo 2.13.0")
    assert said.returncode == 4
    assert "/sys/class/infiniband" in said.stderr


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "NODE_RANK"])
def test_several_machines_have_to_be_told_who_is_first(over_nodes, tmp_path, missing):
    env = {"MASTER_ADDR": "127.0.0.1", "NODE_RANK": "0"}
    del env[missing]
    said = begin(over_nodes, tmp_path, env)
    assert said.returncode != 0
    assert missing in said.stderr
    assert "first machine" in said.stderr


def test_a_server_over_machines_answers_on_the_first(served_over_nodes, tmp_path):
    words = served_over_nodes.argv
    assert words[words.index("--nnodes") + 1] == "2"
    env = {"MASTER_ADDR": "127.0.0.1", "NCCL_NET": "Socket"}
    assert "--headless" not in begin(served_over_nodes, tmp_path, {**env, "NODE_RANK": "0"}).stdout
    second = begin(served_over_nodes, tmp_path, {**env, "NODE_RANK": "1"}).stdout
    assert "--headless" in second
    assert "--node-rank 1 --master-addr 127.0.0.1" in second


def test_copies_on_machines_of_their_own_are_servers_of_their_own():
    service = a_service(
        model="Qwen/Qwen3-235B-A22B", gpus=["h100-sxm5-80gb:8"], nodes=2, network="ib-ndr",
        limits={"engines": ["vllm"]}, pins={"layout.dp": 2, "layout.tp": 8, "layout.ep": 1},
    )  # fmt: skip
    assert (service.num_nodes, service.num_replicas) == (1, 2)
    assert "--nnodes" not in service.argv
    assert "--data-parallel-size" not in service.argv
    assert service.plan.estimate.candidate.cluster.num_nodes == 2


def test_an_engine_without_a_rendezvous_is_refused(served_over_nodes):
    with pytest.raises(RequestError, match="no way is known to start tensorrt-llm on several machines"):
        network.node_words("tensorrt-llm", served_over_nodes.candidate)


def interface():
    spec = importlib.util.spec_from_file_location("interface", JOBS / "interface.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_route_tells_the_interface():
    found = interface()
    assert found.interface_to("127.0.0.1") == "lo"
    assert "127.0.0.1" in found.addresses_of("lo")
    with pytest.raises(SystemExit, match="cannot be reached"):
        found.interface_to("no-such-host.invalid", wait_seconds=0)


def test_an_address_of_this_machine_is_on_an_interface():
    found = interface()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        try:
            out.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no route out")
        own = out.getsockname()[0]
    assert found.interface_to(own) in [name for _, name in socket.if_nameindex()]


def test_messages_of_the_plan(over_nodes):
    smallest, largest = network.message_bytes(over_nodes.candidate)
    assert smallest & (smallest - 1) == largest & (largest - 1) == 0
    bucket, layer = 25 * 2**20, 2 * 8.2e9 / over_nodes.candidate.model.num_layers
    assert bucket / 2 < smallest <= bucket
    assert layer <= largest < 2 * layer


@pytest.mark.parametrize(
    ("rates", "code"),
    [((100.0, 320.0), 0), ((100.0, 200.0), 3), ((), 4)],
    ids=["as planned", "slow", "nothing measured"],
)
def test_the_link_test_holds_the_largest_message_to_the_plan(tmp_path, rates, code):
    service = a_service(gpus=["h100-sxm5-80gb:2"], limits={"engines": ["vllm"]}, pins={"precision.weights": "bf16"})
    assert network.bus_bandwidth(service.candidate) == pytest.approx(364.5e9)
    rows = "\n".join(f"{2 ** (20 + n)} 1 float sum -1 10.0 {rate} {rate} 0 10.0 1 1 0" for n, rate in enumerate(rates))
    stand_in = tmp_path / "all_reduce_perf"
    stand_in.write_text(f'#!/bin/sh\necho "# $*"\necho "{rows}"\necho "# Avg bus bandwidth    : 1"\n')
    stand_in.chmod(0o755)
    (tmp_path / LINK_TEST).write_text(link_test(service).text)
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = subprocess.run(["bash", LINK_TEST], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert said.returncode == code, said
    words = shlex.split(said.stdout.splitlines()[0])
    assert words[words.index("-g") + 1] == "2"
    assert [int(words[words.index(flag) + 1]) for flag in ("-b", "-e")] == list(
        network.message_bytes(service.candidate)
    )


@pytest.mark.trace
def test_the_own_measurement_prints_the_columns_of_nccl_tests(tmp_path):
    """Two processes on this machine's processor, over Gloo."""
    said = subprocess.run(
        ["torchrun", "--standalone", "--nproc-per-node", "2", str(JOBS / "all_reduce.py"), "1024", "4096"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    rows = [line.split() for line in said.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [int(row[0]) for row in rows] == [1024, 2048, 4096]
    for row in rows:
        # of two ranks the bus carries 2 (2 - 1) / 2 = 1 times the message
        assert float(row[7]) == pytest.approx(float(row[6]), abs=0.02)
