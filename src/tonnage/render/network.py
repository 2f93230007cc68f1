"""What joins devices: settings that follow from the plan, what only the machine itself can tell, and a test of the links.

Sources: NCCL 2.30.7 docs/userguide/source/env.rst (each NCCL_ variable); torch 2.13.0 torch/distributed/run.py,
torch/numa/binding.py, docs 2.9 elastic/numa (--numa-binding); pytorch/pytorch issue 183387 and karpathy/autoresearch
pull request 588 (PYTORCH_ALLOC_CONF is ignored for CUDA in 2.9.1 and read in 2.11.0); accelerate 1.15.0
utils/environment.py `check_cuda_p2p_ib_support`; vllm 0.33.0 docs/configuration/optimization.md (--numa-bind).

What is left to NCCL, which finds it out better: transports (P2P, SHM, NVLS), algorithms, protocols, GID index.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tonnage.engines import find_engine
from tonnage.engines.servers import server_of
from tonnage.errors import RequestError
from tonnage.estimate.collectives import group_bandwidth
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate
from tonnage.estimate.weights import weights_bytes
from tonnage.hardware.types import Link
from tonnage.messages import say
from tonnage.render.quote import shell_words
from tonnage.render.scripts import comment
from tonnage.render.types import Service, Setting
from tonnage.units import GB, BytesPerS, format_bytes
from tonnage.workload.types import Serving

__all__ = ["bus_bandwidth", "has_collectives", "message_bytes", "node_words", "settings_of", "start_lines"]

_WITHOUT_NCCL: Final = frozenset(("llama.cpp", "ik_llama.cpp", "ollama"))
_FAST_SOCKETS_BYTES_PER_S: Final = 12.5e9  # "generic 100G networks", env.rst
_BUCKET_BYTES: Final = 25 * 2**20  # of gradients: torch.nn.parallel.DistributedDataParallel, bucket_cap_mb
_SMALLEST, _LARGEST = 2**10, 2**32


def has_collectives(candidate: Candidate) -> bool:
    """Return whether devices talk to each other through NCCL."""
    return candidate.cluster.num_devices > 1 and candidate.engine not in _WITHOUT_NCCL


def is_rdma(link: Link | None) -> bool:
    """Return whether a network is InfiniBand or RoCE, which NCCL reaches through verbs."""
    return link is not None and (link.kind == "infiniband" or "RoCE" in link.name)


def settings_of(candidate: Candidate, *, is_job: bool) -> tuple[Setting, ...]:
    """Return the variables that follow from the plan, each with its reason."""
    if not has_collectives(candidate):
        return ()
    network = candidate.cluster.inter_link if candidate.cluster.num_nodes > 1 else None
    made = [Setting(name="NCCL_DEBUG", value="WARN", reason=say("places.nccl_debug"))]
    if is_rdma(network):
        made.append(Setting(name="NCCL_NET", value="IB", reason=say("places.nccl_net")))
    elif network is not None and network.kind == "ethernet" and network.bytes_per_s >= _FAST_SOCKETS_BYTES_PER_S:
        why = say("places.nccl_sockets", rate=_rate(network.bytes_per_s))
        made += [
            Setting(name=name, value="4", reason=why) for name in ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
        ]
    if is_job:
        why = say("places.flight_recorder")
        made += [
            Setting(name="TORCH_FR_BUFFER_SIZE", value="2000", reason=why),
            Setting(name="TORCH_NCCL_DUMP_ON_TIMEOUT", value="1", reason=why),
        ]
    return tuple(made)


def setting_lines(settings: tuple[Setting, ...]) -> list[str]:
    """Return shell lines that set variables unless the person has set them."""
    lines: list[str] = []
    for n, one in enumerate(settings):
        if n == 0 or settings[n - 1].reason != one.reason:
            lines.append(comment(one.reason))
        lines.append(f'export {one.name}="${{{one.name}-{one.value}}}"')
    return lines


def node_words(engine: str, candidate: Candidate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags that join a server's machines, and those of all machines but the first.

    Raises
    ------
    RequestError
        The engine has no such flags, or the layout spreads experts over copies.
    """
    if candidate.cluster.num_nodes == 1:
        return (), ()
    facts = server_of(engine.replace("-", "_").replace(".", "_"))
    if not facts.node_flags:
        raise RequestError(say("places.no_rendezvous", name=engine), where="--nodes", fix=say("places.one_node"))
    if candidate.layout.dp > 1:
        raise RequestError(say("places.experts_over_nodes"), where="--ep", fix=say("places.no_experts_over_nodes"))
    return facts.flags_of_nodes(candidate.cluster.num_nodes), facts.follower_flags


def one_server(candidate: Candidate) -> Candidate:
    """Return what one machine serves, where the copies of a plan need nothing of each other."""
    cluster, layout = candidate.cluster, candidate.layout
    if layout.num_devices <= len(cluster.node.devices):
        return replace(candidate, cluster=replace(cluster, num_nodes=1, inter_link=None))
    num_nodes = cluster.num_nodes
    if num_nodes == 1 or layout.dp % num_nodes or layout.ep > 1:
        return candidate
    return replace(
        candidate,
        cluster=replace(candidate.cluster, num_nodes=1, inter_link=None),
        layout=replace(layout, dp=layout.dp // num_nodes),
    )


def start_lines(service: Service) -> list[str]:
    """Return shell lines that find out what the plan cannot know; optional words of the command go into `more`."""
    lines = _meeting_lines(service)
    if service.is_torch_job:
        lines += _torch_lines(service)
    if service.follower_words:
        lines += [
            comment(say("places.followers")),
            f'if [ "$NODE_RANK" != 0 ]; then more+=({shell_words(service.follower_words)}); fi',
        ]
    lines += _binding_lines(service)
    return ["more=()", *lines] if any("more+=" in line for line in lines) else lines


def _meeting_lines(service: Service) -> list[str]:
    """Return lines by which several machines find each other."""
    if service.num_nodes == 1:
        return []
    lines = [
        comment(say("places.interface")),
        f': "${{MASTER_ADDR:?{say("places.master")}}}" "${{NODE_RANK:?{say("places.rank")}}}"',
        f'export JOB_ID="${{JOB_ID-{service.name}}}" MASTER_ADDR NODE_RANK',
        'interface=$(python3 interface.py "$MASTER_ADDR")',
        'export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME-=$interface}"',
        'export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME-$interface}"',
    ]
    if is_rdma(service.candidate.cluster.inter_link):
        lines += [
            comment(say("places.rdma")),
            'if [ "${NCCL_NET-}" != Socket ] && ! ls /sys/class/infiniband/* >/dev/null 2>&1; then',
            f"  echo {shell_words([say('places.no_rdma')])} >&2",
            "  exit 4",
            "fi",
        ]
    return lines


def _torch_lines(service: Service) -> list[str]:
    devices = service.num_devices
    lines = [
        comment(say("places.allocator")),
        "torch=$(python -c 'from importlib.metadata import version; print(version(\"torch\"))' 2>/dev/null || true)",
        'newer() { [ -n "$torch" ] && [ "$(printf \'%s\\n\' "$1" "$torch" | sort -V | head -n 1)" = "$1" ]; }',
        "if newer 2.11; then",
        '  export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF-expandable_segments:True}"',
        "else",
        '  export PYTORCH_CUDA_ALLOC_CONF="${PYTORCH_CUDA_ALLOC_CONF-expandable_segments:True}"',
        "fi",
    ]
    if devices:
        lines += [
            comment(say("places.omp")),
            f"threads=$(( $(nproc) / {devices} ))",
            'export OMP_NUM_THREADS="${OMP_NUM_THREADS-$(( threads > 0 ? threads : 1 ))}"',
        ]
    if has_collectives(service.candidate):
        lines += ["mkdir -p traces", 'export TORCH_FR_DUMP_TEMP_FILE="${TORCH_FR_DUMP_TEMP_FILE-$PWD/traces/rank_}"']
    names = [one.name for one in service.candidate.cluster.node.devices]
    if devices > 1 and any("RTX 40" in name for name in names):
        lines += [
            comment(say("places.old_driver")),
            "driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)",
            (
                'if [ -n "$driver" ] && [ "$(printf \'%s\\n\' 550.40.07 "$driver" | sort -V | head -n 1)" = "$driver" ]'
                ' && [ "$driver" != 550.40.07 ]; then export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1; fi'
            ),
        ]
    return lines


def _binding_lines(service: Service) -> list[str]:
    """Return lines that bind processes to the memory node of their device, for launchers that know how."""
    if service.num_devices < 2:
        return []
    test = "[ -d /sys/devices/system/node/node1 ] && command -v numactl >/dev/null"
    if service.argv[0] == "torchrun":
        return [comment(say("places.numa")), f"if {test} && newer 2.9; then more+=(--numa-binding node); fi"]
    if service.argv[:2] == ("vllm", "serve"):
        return [comment(say("places.numa")), f"if {test}; then more+=(--numa-bind); fi"]
    return []


def message_bytes(candidate: Candidate) -> tuple[int, int]:
    """Return the sizes that the plan's collectives lie between, as powers of two.

    Serving reduces the hidden vectors of one step (decode) and of one chunk of a prompt. Training reduces those of a
    micro-batch where matrices are split, and gradients in buckets or layer by layer where they are not.

    Parameters
    ----------
    candidate : Candidate
        Model, load and layout.

    Returns
    -------
    tuple of int
        Smallest and largest. [B]
    """
    model, layout = candidate.model, candidate.layout
    width = 2 * model.hidden_size
    if isinstance(candidate.workload, Serving):
        load = serving_load(candidate, find_engine(candidate.engine).accounting)
        sizes = [width * int(load.max_num_seqs), width * int(load.max_batched_tokens)]
    else:
        layer = sum(weights_bytes(model, "bf16").values()) / max(model.num_layers, 1) / layout.tp
        sizes = [min(_BUCKET_BYTES, layer), layer]
        if layout.tp > 1:
            sizes.append(width * candidate.micro_batch_size * candidate.workload.seq_len)
    smallest = 2 ** math.floor(math.log2(max(min(sizes), _SMALLEST)))
    largest = 2 ** math.ceil(math.log2(min(max(sizes), _LARGEST)))
    return int(smallest), int(max(largest, 2 * smallest))


def bus_bandwidth(candidate: Candidate) -> BytesPerS:
    """Return the bus bandwidth of an all-reduce over all devices that the plan counts on.

    Parameters
    ----------
    candidate : Candidate
        The plan's devices and links.

    Returns
    -------
    numeric
        Achieved rate of one rank in one direction, which nccl-tests call bus bandwidth. [B/s]

    References
    ----------
    .. [1] NVIDIA/nccl-tests, doc/PERFORMANCE.md: B = S/t x 2 (n - 1) / n.
    """
    cluster = candidate.cluster
    per_node = len(cluster.node.devices)
    intra, inter = _achieved(cluster.node.intra_link), _achieved(cluster.inter_link)
    if cluster.num_nodes == 1:
        return intra
    return float(group_bandwidth(cluster.num_devices, per_node, intra if per_node > 1 else inter, inter))


def _achieved(link: Link | None) -> float:
    return link.bytes_per_s * link.achieved_ratio if link else 0.0


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / GB:.1f} GB/s"


def link_test_lines(service: Service) -> tuple[str, list[str]]:
    """Return the purpose and the lines of the script that tests the links."""
    candidate = service.candidate
    smallest, largest = message_bytes(candidate)
    rate = bus_bandwidth(candidate)
    cluster = candidate.cluster
    link = (cluster.inter_link if cluster.num_nodes > 1 else cluster.node.intra_link) or Link(
        name="?", kind="", bytes_per_s=0.0
    )
    purpose = say(
        "places.test_purpose",
        smallest=format_bytes(smallest),
        largest=format_bytes(largest),
        rate=_rate(rate),
        link=link.name,
    )
    meet = (
        f'--nnodes {service.num_nodes} --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port 29510'
        if service.num_nodes > 1
        else "--standalone"
    )
    torch = f"torchrun {meet} --nproc-per-node {service.num_devices} all_reduce.py {smallest} {largest}"
    own = f"all_reduce_perf -b {smallest} -e {largest} -f 2 -g {service.num_devices} -w 5 -n 20"
    lines = [
        'export PATH="$PWD/.venv/bin:$PATH"',
        *setting_lines(
            tuple(one for one in service.settings if one.name.startswith("NCCL_") and one.name != "NCCL_DEBUG")
        ),
        *_meeting_lines(service),
        'export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_DEBUG_FILE="$PWD/nccl.%h.%p.log"',
    ]
    if service.num_nodes == 1:
        lines += [f"if command -v all_reduce_perf >/dev/null; then {own}; else {torch}; fi | tee nccl-test.out"]
    else:
        lines += [f"{torch} | tee nccl-test.out", '[ "$NODE_RANK" = 0 ] || exit 0']
    lines += [
        f"echo {shell_words([say('places.test_network')])}",
        "cat nccl.*.log 2>/dev/null | grep -Eo 'NET/[A-Za-z]+ : Using .*|Using network .*|via (P2P|SHM|NET)[^ ]*' | sort | uniq -c || true",
        f"awk -v expected={rate / GB:.1f} '$1 ~ /^[0-9]+$/ {{ rate = $8 }}",
        f'  END {{ if (rate == "") exit 4; printf "{say("places.test_verdict")}\\n", rate, expected',
        "    exit rate < 0.8 * expected ? 3 : 0 }' nccl-test.out",
    ]
    return purpose, lines
