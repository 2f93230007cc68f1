"""SkyPilot: a task that rents the machine, installs the engine, runs it, and is recovered when a spot machine goes.

Fields as in SkyPilot 0.14 sky/utils/schemas.py; variables SKYPILOT_NODE_IPS, SKYPILOT_NODE_RANK, SKYPILOT_TASK_ID.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tonnage.errors import RequestError
from tonnage.messages import say
from tonnage.render.parts import before_start, common_files, has_install
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

_FIRST: Final = """MASTER_ADDR=$(printf '%s\\n' "$SKYPILOT_NODE_IPS" | head -n 1)
export MASTER_ADDR NODE_RANK=$SKYPILOT_NODE_RANK JOB_ID=$SKYPILOT_TASK_ID
"""
_BUCKET: Final = "/checkpoints"


def bundle(service: Service) -> Bundle:
    """Return the files that rent a machine and run a service on it."""
    start, stop = commands(service)
    head = comment(say("deploy.head", name=service.name, command=start)) + "\n"
    made = [BundleFile(path="task.yaml", text=head + to_yaml(task(service)), purpose=say("deploy.purpose_skypilot"))]
    test = f"sky exec {service.name} nccl-test.yaml"
    if service.has_collectives:
        asked = {"name": f"{service.name}-links", "num_nodes": service.num_nodes, "run": _run("nccl-test.sh")}
        accelerators = task(service)["resources"].get("accelerators")
        asked["resources"] = {"accelerators": accelerators}
        text = comment(say("deploy.head", name="nccl-test.sh", command=test)) + "\n" + to_yaml(asked)
        made.append(BundleFile(path="nccl-test.yaml", text=text, purpose=say("places.purpose_test")))
    notes = (*service.notes, *((say("places.bucket"),) if is_managed(service) else ()))
    return Bundle(
        name=service.name,
        place="skypilot",
        files=(*common_files(service, start, "skypilot", test, notes), start_script(service), *made),
        start=start,
        stop=stop,
        notes=notes,
        before=before_start(service, "skypilot"),
    )


def is_managed(service: Service) -> bool:
    """Return whether SkyPilot recovers the job on another machine when a spot machine goes."""
    return service.role is Role.JOB and service.plan.request.limits.is_spot


def commands(service: Service) -> tuple[str, str]:
    """Return what starts and what stops it."""
    name = service.name
    if is_managed(service):
        return f"sky jobs launch -n {name} task.yaml", f"sky jobs cancel -n {name}"
    if service.role is Role.SERVER and service.num_replicas > 1:
        return f"sky serve up -n {name} task.yaml", f"sky serve down {name}"
    return f"sky launch -c {name} task.yaml", f"sky down {name}"


def _run(program: str) -> str:
    return _FIRST + f"exec bash {program}\n"


def task(service: Service) -> dict[str, Any]:
    """Return the task."""
    devices = service.plan.estimate.candidate.cluster.node.devices
    is_job = service.role is Role.JOB
    storage = service.plan.estimate.storage
    weights = service.weights if service.weights is not None and service.weights.is_made else None
    # The rented machine makes the weights itself.
    made_disk, made_host = (weights.disk_bytes, weights.host_bytes) if weights is not None else (0.0, 0.0)
    disk = (
        storage.weights_bytes * 1.2 + 2 * (storage.checkpoints_bytes or 0.0) + (storage.data_bytes or 0.0) + made_disk
    )
    resources: dict[str, Any] = {
        "disk_size": max(100, math.ceil(disk / 2**30) + 50),
        "memory": f"{math.ceil(max(service.host_memory_bytes, made_host) / 2**30)}+",
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
    setup = [*(["bash install.sh"] if has_install(service) else [])]
    if service.weights is not None and service.weights.is_made:
        setup.append("bash weights.sh")
    if setup:
        made["setup"] = "\n".join(setup) + "\n"
    mounts: dict[str, Any] = {}
    if is_managed(service):
        mounts[_BUCKET] = {"name": f"{service.name}-checkpoints", "mode": "MOUNT"}
    if service.model_folder:
        mounts[service.model_folder] = service.model_folder
    if mounts:
        made["file_mounts"] = mounts
    made["run"] = (f"ln -sfn {_BUCKET} run\n" if is_managed(service) else "") + _run(service.program)
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
