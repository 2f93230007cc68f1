"""SkyPilot: a task that rents the machine, installs the engine, runs it, and is recovered when a spot machine goes.

Fields as in SkyPilot 0.14 sky/utils/schemas.py; variables SKYPILOT_NODE_IPS, SKYPILOT_NODE_RANK, SKYPILOT_TASK_ID.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tonnage.errors import RequestError
from tonnage.messages import say
from tonnage.render.parts import common_files
from tonnage.render.quote import to_yaml
from tonnage.render.scripts import comment
from tonnage.render.targets.local import start_script
from tonnage.render.types import Bundle, BundleFile, Role, Service

# SkyPilot's names of devices, where they are not the slug in capitals without its form (sky/catalog).
_NAMES: Final = {
    "a100-sxm4-40gb": "A100", "a100-pcie-40gb": "A100", "a100-sxm4-80gb": "A100-80GB", "a100-pcie-80gb": "A100-80GB",
    "h100-sxm5": "H100", "h100-pcie": "H100", "h200": "H200", "b200": "B200", "l4": "L4", "l40s": "L40S", "l40": "L40",
    "a10": "A10", "a10g": "A10G", "t4": "T4", "v100-sxm2-16gb": "V100", "v100-sxm2-32gb": "V100-32GB",
    "rtx-3090": "RTX3090", "rtx-4090": "RTX4090", "rtx-5090": "RTX5090", "rtx-a6000": "RTXA6000", "mi300x": "MI300X",
}  # fmt: skip

_RUN: Final = """MASTER_ADDR=$(printf '%s\\n' "$SKYPILOT_NODE_IPS" | head -n 1)
export MASTER_ADDR NODE_RANK=$SKYPILOT_NODE_RANK JOB_ID=$SKYPILOT_TASK_ID
exec bash start.sh
"""


def bundle(service: Service) -> Bundle:
    """Return the files that rent a machine and run a service on it."""
    is_job = service.role is Role.JOB
    is_spot = service.plan.request.limits.is_spot
    start = f"sky {'jobs launch' if is_job and is_spot else 'launch'} -c {service.name} task.yaml"
    if is_job and is_spot:
        start = f"sky jobs launch -n {service.name} task.yaml"
    elif not is_job and service.num_replicas > 1:
        start = f"sky serve up -n {service.name} task.yaml"
    text = comment(say("deploy.head", name=service.name, command=start)) + "\n" + to_yaml(task(service))
    made = BundleFile(path="task.yaml", text=text, purpose=say("deploy.purpose_skypilot"))
    return Bundle(
        name=service.name,
        place="skypilot",
        files=(*common_files(service, start, "skypilot"), start_script(service), made),
        start=start,
        stop=f"sky down {service.name}",
        notes=service.notes,
    )


def task(service: Service) -> dict[str, Any]:
    """Return the task."""
    devices = service.plan.estimate.candidate.cluster.node.devices
    is_job = service.role is Role.JOB
    storage = service.plan.estimate.storage
    disk = storage.weights_bytes * 1.2 + 2 * (storage.checkpoints_bytes or 0.0) + (storage.data_bytes or 0.0)
    resources: dict[str, Any] = {
        "disk_size": max(100, math.ceil(disk / 2**30) + 50),
        "memory": f"{math.ceil(service.host_memory_bytes / 2**30)}+",
        "autostop": {"idle_minutes": 30, "down": is_job},
    }
    if devices:
        resources["accelerators"] = f"{accelerator(devices[0].slug)}:{len(devices)}"
    if service.plan.request.limits.is_spot:
        resources["use_spot"] = True
        if is_job:
            resources["job_recovery"] = {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": 3}
    if service.probe is not None:
        resources["ports"] = service.probe.port
    made: dict[str, Any] = {
        "name": service.name,
        "workdir": ".",
        "num_nodes": service.num_nodes,
        "resources": resources,
        "secrets": dict.fromkeys(service.secrets),
    }
    if service.packages:
        made["setup"] = "bash install.sh\n"
    made["run"] = _RUN
    if service.probe is not None and service.num_replicas > 1:
        made["service"] = {
            "readiness_probe": {
                "path": service.probe.health_path,
                "initial_delay_seconds": round(service.start_seconds),
            },
            "replicas": service.num_replicas,
        }
    return made


def accelerator(slug: str) -> str:
    """Return SkyPilot's name of a device.

    Raises
    ------
    RequestError
        No cloud that SkyPilot knows rents it.
    """
    if slug not in _NAMES:
        raise RequestError(say("deploy.no_cloud", name=slug), where="--place skypilot", fix=say("deploy.other_place"))
    return _NAMES[slug]
