"""Slurm: a batch script; a job that is stopped with a checkpoint goes back into the queue, replicas are an array.

Options as in sbatch(1) and srun(1) of Slurm 22.05 and later; SRUN_CPUS_PER_TASK as in srun(1), "INPUT ENVIRONMENT".
"""

from __future__ import annotations

import math

from tonnage.messages import say
from tonnage.render.parts import LINK_TEST, before_start, common_files, num_cores
from tonnage.render.scripts import comment
from tonnage.render.targets.local import start_script
from tonnage.render.types import Bundle, BundleFile, Role, Service


def bundle(service: Service) -> Bundle:
    """Return the files that run a service under Slurm."""
    folder = service.model_folder
    notes = (*service.notes, *((say("places.shared_folder", folder=folder),) if folder else ()))
    made = [_file("job.sbatch", batch(service), say("deploy.purpose_slurm"))]
    if service.has_collectives:
        made.append(_file("nccl-test.sbatch", link_test_batch(service), say("places.purpose_test")))
    return Bundle(
        name=service.name,
        place="slurm",
        files=(
            *common_files(service, "sbatch job.sbatch", "slurm", "sbatch nccl-test.sbatch", notes),
            start_script(service),
            *made,
        ),
        start="sbatch job.sbatch",
        stop=f"scancel --name {service.name}",
        notes=notes,
        before=before_start(service, "slurm"),
    )


def _file(path: str, text: str, purpose: str) -> BundleFile:
    return BundleFile(path=path, text=text, purpose=purpose, is_executable=True)


def _options(service: Service, name: str) -> dict[str, str]:
    """Return what each machine of the job gives."""
    mebibytes = -(-(service.host_memory_bytes + service.shared_memory_bytes) // 2**20)
    options = {
        "job-name": name,
        "nodes": str(service.num_nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(num_cores(service)),
        "mem": f"{mebibytes}M",
        "output": "%x-%j.log",
        "open-mode": "append",
    }
    if service.num_devices:
        options["gres"] = f"gpu:{service.num_devices}"
    return options


def _head(options: dict[str, str], purpose: str, flags: tuple[str, ...] = ()) -> list[str]:
    return [
        "#!/usr/bin/env bash",
        *(f"#SBATCH --{name}={value}" for name, value in options.items()),
        *(f"#SBATCH --{flag}" for flag in flags),
        comment(purpose),
        "set -euo pipefail",
        'cd "${SLURM_SUBMIT_DIR:?}"',
        'MASTER_ADDR=$(scontrol show hostnames "${SLURM_JOB_NODELIST:?}" | head -n 1)',
        "export MASTER_ADDR JOB_ID=$SLURM_JOB_ID",
        "# Since Slurm 22.05 a step does not take over the cores of its job by itself.",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
    ]


def link_test_batch(service: Service) -> str:
    """Return the batch script that tests the links between the devices."""
    options = _options(service, f"{service.name}-links") | {"time": "20"}
    lines = _head(options, say("places.purpose_test"))
    lines.append(f"srun --kill-on-bad-exit=1 bash -c 'export NODE_RANK=$SLURM_NODEID; exec bash {LINK_TEST}'")
    return "\n".join(lines) + "\n"


def batch(service: Service) -> str:
    """Return the batch script."""
    is_job = service.role is Role.JOB
    options = _options(service, service.name) | {"signal": f"TERM@{min(round(service.stop_seconds), 65535)}"}
    if service.num_replicas > 1:
        options |= {"output": "%x-%A_%a.log", "array": f"0-{service.num_replicas - 1}"}
    minutes = _minutes(service)
    if minutes is not None:
        options["time"] = str(minutes)
    lines = _head(
        options, say("deploy.head", name=service.name, command="sbatch job.sbatch"), ("requeue",) if is_job else ()
    )
    if service.num_replicas > 1 and service.probe is not None:
        lines.append(f"export TONNAGE_PORT=$(({service.probe.port} + SLURM_ARRAY_TASK_ID))")
    lines += [
        "# torch's launcher ends with 1 whatever its processes end with: they write their code down.",
        'export TONNAGE_EXIT_FILE="$PWD/.exit-code"; rm -f "$TONNAGE_EXIT_FILE"',
        "# A machine that has saved ends first: the others are given the time to save too.",
        (
            f"srun --kill-on-bad-exit=0 --wait={round(service.stop_seconds)} "
            "bash -c 'export NODE_RANK=$SLURM_NODEID; exec bash start.sh' &"
        ),
        "step=$!",
        "# Slurm signals the programs itself; srun would end its step at once where it were sent TERM.",
        "trap 'again=1; scancel --signal=TERM \"$SLURM_JOB_ID\"' TERM",
        "# A trapped signal ends a wait; the next one has the step's own code, even if it is gone by then.",
        'again=1; while [ "$again" = 1 ]; do again=0; code=0; wait "$step" || code=$?; done',
        'if [ "$code" != 0 ] && [ -s "$TONNAGE_EXIT_FILE" ]; then code=$(cat "$TONNAGE_EXIT_FILE"); fi',
    ]
    if is_job:
        lines += [
            "# 75: stopped with a checkpoint. The job goes back into the queue and resumes.",
            'if [ "$code" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
        ]
    return "\n".join([*lines, 'exit "$code"']) + "\n"


def _minutes(service: Service) -> int | None:
    """Return the time that a job is given: the upper end of its prediction, and time to start and to stop."""
    work = service.plan.estimate.performance.job_seconds
    if service.role is not Role.JOB or work is None:
        return None
    return math.ceil((work.high + service.start_seconds + service.stop_seconds) / 60)
