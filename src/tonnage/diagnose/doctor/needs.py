"""What a plan needs of one machine, taken from the plan and from what would start it."""

from __future__ import annotations

import re
from typing import Final

from tonnage.diagnose.doctor.types import Needs
from tonnage.errors import RequestError
from tonnage.plan.types import Plan
from tonnage.render.prepare import driver_branch, has_open_modules
from tonnage.render.services import service_of

__all__ = ["needs_of"]

# Matrix units of processors that each engine's kernels for experts in host memory use; any one will do.
_HYBRID: Final = {
    "ktransformers": ("amx_int8", "amx_tile", "avx512f", "avx2"),
    "llama.cpp": ("avx2",),
    "ik_llama.cpp": ("avx2",),
}
_WITHOUT_TORCH: Final = frozenset(("llama.cpp", "ik_llama.cpp", "ollama"))
_CHECKPOINTS_KEPT: Final = 2  # the last one, and the one that is being written
_RDMA: Final = re.compile(r"infiniband|roce", re.IGNORECASE)


def needs_of(plan: Plan, *, place: str = "local") -> Needs:
    """Return what a plan needs of one machine.

    Parameters
    ----------
    plan : Plan
        A plan of an answer or of a plan file.
    place : str
        Where it is to be started: containers need the toolkit.

    Returns
    -------
    Needs
        A need that the plan does not have is None or empty.
    """
    estimate = plan.estimate
    candidate, storage = estimate.candidate, estimate.storage
    cluster = candidate.cluster
    devices = cluster.node.devices
    device = devices[0] if devices else None
    link = cluster.inter_link if cluster.num_nodes > 1 else None
    try:
        service = service_of(plan)
    except RequestError:  # an engine whose launch is not known still has needs
        service = None
    offload = candidate.offload
    on_host = offload.num_cpu_expert_layers > 0 or offload.num_cpu_layers > 0
    disk = (
        storage.weights_bytes + _CHECKPOINTS_KEPT * (storage.checkpoints_bytes or 0.0) + (storage.offload_bytes or 0.0)
    )
    is_nvidia = device is not None and device.vendor == "NVIDIA"
    return Needs(
        plan=f"{candidate.model.name}, {candidate.engine}",
        num_gpus=len(devices),
        gpu_name=device.name if device else "",
        gpu_memory_bytes=device.memory_bytes if device else None,
        gpu_used_bytes=max(estimate.footprint.total.high, estimate.footprint.allocated_bytes or 0.0)
        if device
        else None,
        vendor=(device.vendor.lower() if device else ""),
        host_bytes=service.host_memory_bytes if service else max(0.0, estimate.footprint.host_total.high),
        host_bytes_per_s=cluster.node.host.bandwidth_bytes_per_s if on_host and cluster.node.host else None,
        cpu_features=_HYBRID.get(candidate.engine, ()) if on_host else (),
        num_cores=cluster.node.host.num_cores
        if on_host and cluster.node.host and not cluster.node.host.is_assumed
        else None,
        disk_bytes=disk,
        read_bytes_per_s=storage.read_bytes_per_s,
        shared_memory_bytes=(service.shared_memory_bytes or None) if service and len(devices) > 1 else None,
        ports=(service.probe.port,) if service and service.probe else (),
        num_nodes=cluster.num_nodes,
        network=link.name if link else "",
        network_bytes_per_s=link.bytes_per_s if link else None,
        is_rdma=bool(link and _RDMA.search(f"{link.kind} {link.name}")),
        has_nvlink=bool(device and device.has_nvlink and len(devices) > 1),
        needs_peer_access=bool(device and device.has_p2p and len(devices) > 1),
        packages=service.packages if service else (),
        place_has_containers=place in ("compose", "kubernetes"),
        min_driver_branch=driver_branch(device) if device and is_nvidia else None,
        has_torch=candidate.engine not in _WITHOUT_TORCH,
        needs_open_modules=bool(device and is_nvidia and device.needs_open_modules and has_open_modules(device)),
    )
