"""Slurm: a batch script; a job that is stopped with a checkpoint goes back into the queue, replicas are an array.

Options as in sbatch(1) and srun(1) of Slurm 22.05 and later.
"""

from __future__ import annotations

from tonnage.messages import say
from tonnage.render.parts import common_files
from tonnage.render.scripts import comment
from tonnage.render.targets.local import start_script
from tonnage.render.types import Bundle, BundleFile, Role, Service

_TASKS_CORES = 8


def bundle(service: Service) -> Bundle:
    """Return the files that run a service under Slurm."""
    made = BundleFile(path="job.sbatch", text=batch(service), purpose=say("deploy.purpose_slurm"), is_executable=True)
    return Bundle(
        name=service.name,
        place="slurm",
        files=(*common_files(service, "sbatch job.sbatch", "slurm"), start_script(service), made),
        start="sbatch job.sbatch",
        stop=f"scancel --name {service.name}",
        notes=service.notes,
    )


def batch(service: Service) -> str:
    """Return the batch script."""
    is_job = service.role is Role.JOB
    grace = round(service.stop_seconds)
    mebibytes = -(-(service.host_memory_bytes + service.shared_memory_bytes) // 2**20)
    options = {
        "job-name": service.name,
        "nodes": str(service.num_nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(_TASKS_CORES * max(1, service.num_devices)),
        "mem": f"{mebibytes}M",
        "output": "%x-%A_%a.log" if service.num_replicas > 1 else "%x-%j.log",
        "open-mode": "append",
        "signal": f"B:TERM@{grace}",
    }
    if service.num_devices:
        options["gres"] = f"gpu:{service.num_devices}"
    if service.num_replicas > 1:
        options["array"] = f"0-{service.num_replicas - 1}"
    lines = ["#!/usr/bin/env bash"]
    lines += [f"#SBATCH --{name}={value}" for name, value in options.items()]
    lines += ["#SBATCH --requeue"] if is_job else []
    lines += [
        comment(say("deploy.head", name=service.name, command="sbatch job.sbatch")),
        "set -euo pipefail",
        'cd "${SLURM_SUBMIT_DIR:?}"',
        'MASTER_ADDR=$(scontrol show hostnames "${SLURM_JOB_NODELIST:?}" | head -n 1)',
        "export MASTER_ADDR JOB_ID=$SLURM_JOB_ID",
    ]
    if service.num_replicas > 1 and service.probe is not None:
        lines.append(f"export TONNAGE_PORT=$(({service.probe.port} + SLURM_ARRAY_TASK_ID))")
    lines += [
        "srun --kill-on-bad-exit=1 bash -c 'export NODE_RANK=$SLURM_NODEID; exec bash start.sh' &",
        "step=$!",
        "trap 'kill -TERM \"$step\"' TERM",
        'code=0; wait "$step" || code=$?',
        "# A trapped signal ends the first wait; the second one waits for the step itself.",
        'if kill -0 "$step" 2>/dev/null; then code=0; wait "$step" || code=$?; fi',
    ]
    if is_job:
        lines += [
            "# 75: stopped with a checkpoint. The job goes back into the queue and resumes.",
            'if [ "$code" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
        ]
    return "\n".join([*lines, 'exit "$code"']) + "\n"
