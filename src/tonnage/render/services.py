"""A plan becomes a `Service`: what runs on each node, with the flags that the prediction assumed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tonnage.datafiles import program, programs
from tonnage.engines import TRAINERS, find_engine, find_trainer
from tonnage.engines.servers import server_of
from tonnage.engines.trainers import Trainer
from tonnage.engines.transformers.training import JOB
from tonnage.engines.types import Late
from tonnage.errors import RequestError
from tonnage.estimate.types import Candidate, Estimate
from tonnage.messages import say
from tonnage.model.types import Quantization
from tonnage.plan.types import Plan
from tonnage.render import network
from tonnage.render.build import build_of, is_built
from tonnage.render.quote import shell_words
from tonnage.render.types import Probe, Role, Scaling, Service, Setting
from tonnage.render.weights import Weights, weights_of
from tonnage.units import GIB, MIB
from tonnage.workload.types import Serving

__all__ = ["service_of", "slug_of", "with_weights"]

# Read rate of weights that a start is given time for: a slow disk, or a network of 1 Gbit/s.
_SLOW_READ_BYTES_PER_S: Final = 100e6
_SLOW_WRITE_BYTES_PER_S: Final = 100e6  # of a checkpoint, for the time it is given when the job is stopped
_START_SECONDS: Final = 300.0  # to compile, capture graphs and warm up
_DRAIN_SECONDS: Final = 60.0
_SHARED_BYTES_PER_DEVICE: Final = 4 * GIB  # workers of tensor parallelism exchange tensors through /dev/shm
_RUNTIME_BYTES: Final = 6 * GIB  # Python, CUDA's host side and pinned buffers, a process
_HEADROOM: Final = 1.2
_USER: Final = "1000:1000"


def slug_of(text: str, longest: int = 40) -> str:
    """Return a name of small letters, digits and dashes, as Kubernetes, systemd and Slurm take it (RFC 1123 label).

    >>> slug_of("Qwen/Qwen3.5-35B-A3B")
    'qwen3-5-35b-a3b'
    """
    tail = text.rstrip("/").rsplit("/", 1)[-1].lower()
    name = re.sub(r"[^a-z0-9]+", "-", tail).strip("-")[:longest].strip("-")
    return name or "model"


def service_of(
    plan: Plan, *, host: str = "127.0.0.1", port: int | None = None, num_replicas: int = 1, engine: str | None = None
) -> Service:
    """Return what runs a plan.

    Parameters
    ----------
    plan : Plan
        A plan of an answer or of a plan file.
    host : str
        Address that a server listens on.
    port : int
        Port of the first replica; the engine's own by default. [1]
    num_replicas : int
        Copies of a server, each with devices of its own. [1]
    engine : str
        Program that runs the plan, where it is another than the one it was counted for.

    Returns
    -------
    Service
        Place-independent: a target of `render.targets` writes it down.

    Raises
    ------
    RequestError
        The plan trains and replicas are asked for, the engine refuses the candidate, or what was predicted does not
        hold for the program that is named.
    """
    if isinstance(plan.estimate.candidate.workload, Serving):
        _check_server(plan.estimate.candidate, engine)
        return _server(plan, host, port, num_replicas)
    if num_replicas > 1:
        raise RequestError(say("deploy.replicas_of_a_job"), where="--replicas", fix=say("deploy.leave_out"))
    return _job(plan, engine)


def _check_server(candidate: Candidate, engine: str | None) -> None:
    """Refuse another engine for a plan that serves: each reserves memory by rules of its own."""
    if engine is None:
        return
    asked = find_engine(engine).name
    if asked != find_engine(candidate.engine).name:
        _raise_foreign(candidate, asked, (candidate.engine,))


def _raise_foreign(candidate: Candidate, asked: str, plans_of: tuple[str, ...]) -> None:
    text = say("deploy.foreign_plan", planned=candidate.engine, asked=asked)
    raise RequestError(text, where=f"--engine {asked}", fix=say("deploy.plan_for", engines=", ".join(plans_of)))


def _trainer(candidate: Candidate, engine: str | None) -> Trainer:
    """Return the program that runs a plan: the one named, or the one it was counted for."""
    name = (engine or candidate.engine).strip().lower().replace("_", "-")
    trainer = find_trainer(name)
    if trainer is None:
        known = ", ".join(one.name for one in TRAINERS)
        raise RequestError(say("deploy.no_trainer"), where=name[:40], fix=say("deploy.pick_engine", known=known))
    if candidate.engine not in trainer.plans_of:
        _raise_foreign(candidate, trainer.name, trainer.plans_of)
    return trainer


def _setup(trainer: Trainer, candidate: Candidate) -> Weights | None:
    """Return what a program needs that pip does not bring, as lines of a script."""
    if not trainer.setup:
        return None
    name = shell_words([candidate.model.name])
    return Weights(name=candidate.model.name, lines=tuple(line.replace("{model}", name) for line in trainer.setup))


def _job(plan: Plan, engine: str | None) -> Service:
    candidate, storage = plan.estimate.candidate, plan.estimate.storage
    trainer = _trainer(candidate, engine)
    refusal = trainer.refuses(candidate)
    if refusal is not None:
        raise RequestError(refusal.reason, where=trainer.name, fix=say("deploy.replan"))
    launch = trainer.launch(candidate)
    devices = candidate.cluster.node.devices
    sources = programs("train") if "train.py" in launch.argv else {}
    sources |= _programs_of_nodes(candidate)
    on_host = max(plan.estimate.footprint.host_total.high, 0.0)
    stop = _DRAIN_SECONDS + (storage.checkpoints_bytes or 0.0) / _SLOW_WRITE_BYTES_PER_S
    return Service(
        plan=plan,
        name=f"{slug_of(candidate.model.name)}-{slug_of(trainer.name)}",
        role=Role.JOB,
        argv=launch.argv,
        env=launch.env,
        files={**_with_rates(launch.files, plan.estimate), **sources},
        packages=(*trainer.packages, *(("torchao",) if _needs_torchao(trainer, candidate) else ())),
        image=trainer.image,
        secrets=("HF_TOKEN",),
        num_devices=len(devices),
        num_nodes=candidate.cluster.num_nodes,
        vendor=devices[0].vendor.lower() if devices else "cpu",
        host_memory_bytes=round(on_host * _HEADROOM) + _RUNTIME_BYTES * max(1, len(devices)),
        shared_memory_bytes=_SHARED_BYTES_PER_DEVICE * max(1, len(devices)),
        stop_seconds=stop,
        weights=_setup(trainer, candidate),
        notes=(
            *((trainer.note,) if trainer.note else ()),
            *((say("places.fp8_recipe"),) if _needs_torchao(trainer, candidate) else ()),
            *_link_notes(candidate),
        ),
        settings=(*network.settings_of(candidate, is_job=True), *_patience(launch.argv, stop)),
        has_launcher=_has_launcher(launch.argv),
        engine=trainer.name,
        is_torch_job=launch.argv[0] in ("torchrun", "accelerate", "python"),
        has_collectives=network.has_collectives(candidate),
        model_folder=_folder_of(candidate),
    )


def _has_launcher(argv: tuple[str, ...]) -> bool:
    return argv[0] == "torchrun" or argv[:2] == ("accelerate", "launch")


def _patience(argv: tuple[str, ...], stop_seconds: float) -> tuple[Setting, ...]:
    """Let a launcher wait until its processes have saved; torch/distributed/launcher/api.py: 30 seconds by default."""
    if not _has_launcher(argv):
        return ()
    seconds = str(round(stop_seconds))
    return (Setting(name="TORCH_ELASTIC_SHUTDOWN_TIMEOUT", value=seconds, reason=say("places.patience")),)


def _needs_torchao(trainer: Trainer, candidate: Candidate) -> bool:
    return candidate.precision.compute == "fp8" and trainer.name in ("transformers", "accelerate")


def _with_host_experts(argv: tuple[str, ...], weights: Weights) -> tuple[str, ...]:
    """Name the folder of the experts on the host, where it is another than the model's."""
    if not weights.host_name or "--kt-weight-path" not in argv:
        return argv
    at = argv.index("--kt-weight-path") + 1
    return (*argv[:at], weights.host_name, *argv[at + 1 :])


def _with_rates(files: Mapping[str, str], estimate: Estimate) -> dict[str, str]:
    """Tell our own job what a token costs and what a device can do, so that it reports the MFU that was predicted."""
    performance, candidate = estimate.performance, estimate.candidate
    rate, ratio = performance.tokens_per_s_per_gpu, performance.mfu_ratio
    devices = candidate.cluster.node.devices
    if JOB not in files or rate is None or ratio is None or not devices:
        return dict(files)
    rates = devices[0].flop_per_s
    peak = next((rates[one] for one in (candidate.precision.compute, "bf16", "fp16", "fp32") if rates.get(one)), None)
    if not peak:
        return dict(files)
    job = json.loads(files[JOB])
    rated = {"flop_per_token": ratio.best * peak / rate.best, "peak_flop_per_s": peak}
    return {**files, JOB: json.dumps({**job, **rated}, indent=2) + "\n"}


def _folder_of(candidate: Candidate) -> str:
    """Return the folder of a model that lies on this machine, or nothing."""
    name = candidate.model.name
    if not name.startswith("/"):
        return ""
    return name.rpartition("/")[0] if name.endswith(".gguf") else name


def _programs_of_nodes(candidate: Candidate) -> dict[str, str]:
    """Return the programs that several devices or machines need beside the engine's own."""
    made = {"all_reduce.py": program("all_reduce")} if network.has_collectives(candidate) else {}
    return made | ({"interface.py": program("interface")} if candidate.cluster.num_nodes > 1 else {})


def _link_notes(candidate: Candidate) -> tuple[str, ...]:
    link = candidate.cluster.node.intra_link
    is_staged = network.has_collectives(candidate) and link is not None and link.kind == "pcie-host"
    return (say("places.no_p2p"),) if is_staged else ()


def _server(plan: Plan, host: str, port: int | None, num_replicas: int) -> Service:
    storage = plan.estimate.storage
    candidate = network.one_server(plan.estimate.candidate)
    num_machines = plan.estimate.candidate.layout.dp // candidate.layout.dp
    engine = find_engine(candidate.engine)
    refusal = engine.refuses(candidate)
    if refusal is not None:
        raise RequestError(refusal.reason, where=engine.name, fix=say("deploy.replan"))
    facts = server_of(engine.name.replace("-", "_").replace(".", "_"))
    weights = weights_of(candidate)
    launch = engine.launch(with_weights(candidate, weights))
    node_words, follower_words = network.node_words(engine.name, candidate)
    at = port or facts.port
    devices = candidate.cluster.node.devices
    vendor = devices[0].vendor.lower() if devices else "cpu"
    footprint = plan.estimate.footprint
    on_host = max(footprint.host_total.high, 0.0)
    return Service(
        plan=plan,
        name=f"{slug_of(candidate.model.name)}-{slug_of(engine.name)}",
        role=Role.SERVER,
        argv=(
            *_with_host_experts(launch.argv, weights),
            *_late_port(facts.flags_at(host, at), at, num_replicas * num_machines),
            *node_words,
        ),
        env={**launch.env, **facts.env_at(host, at)},
        files={
            **launch.files,
            **({"quantize.py": program("quantize")} if _quantises(weights) else {}),
            **_programs_of_nodes(candidate),
        },
        packages=facts.packages,
        build=build_of(engine.name) if is_built(engine.name) else None,
        image=facts.image.get(vendor),
        image_program=facts.image_program,
        probe=Probe(
            port=at, health_path=facts.health_path, metrics_path=facts.metrics_path, command=facts.health_command
        ),
        secrets=("HF_TOKEN",),
        num_devices=len(devices),
        num_nodes=candidate.cluster.num_nodes,
        vendor=vendor,
        num_replicas=num_replicas * num_machines,
        num_machines=num_machines,
        own=candidate,
        host_memory_bytes=round(on_host * _HEADROOM) + _RUNTIME_BYTES * max(1, len(devices)),
        shared_memory_bytes=max(64 * MIB, _SHARED_BYTES_PER_DEVICE * len(devices) if len(devices) > 1 else GIB),
        start_seconds=_START_SECONDS + storage.weights_bytes / _SLOW_READ_BYTES_PER_S,
        stop_seconds=_DRAIN_SECONDS,
        weights=weights,
        notes=(
            *((weights.note,) if weights.note else ()),
            *((say("places.servers_apart", num=num_machines),) if num_machines > 1 else ()),
            *(
                (say("places.ollama_create", name=slug_of(candidate.model.name)),)
                if "Modelfile" in launch.files
                else ()
            ),
            *_link_notes(candidate),
        ),
        settings=network.settings_of(candidate, is_job=False),
        has_collectives=network.has_collectives(candidate),
        follower_words=follower_words,
        image_user=facts.image_user or _USER,
        queue_metric=facts.queue_metric,
        running_metric=facts.running_metric,
        model_folder=_folder_of(candidate),
    )


def with_weights(candidate: Candidate, weights: Weights) -> Candidate:
    """Name the checkpoint that holds the planned format, so that the engine is not asked to make it again."""
    model = candidate.model
    if weights.name == model.name:
        return candidate
    stored = Quantization(scheme=candidate.precision.weights)
    return replace(candidate, model=replace(model, name=weights.name, quantization=stored))


def _quantises(weights: Weights) -> bool:
    return any("quantize.py" in line for line in weights.lines)


def _late_port(flags: tuple[str, ...], port: int, num_replicas: int) -> tuple[str, ...]:
    """Let replicas that share an address be told their ports when they start."""
    if num_replicas == 1:
        return flags
    return tuple(Late(f"${{TONNAGE_PORT:-{port}}}") if flag == str(port) else flag for flag in flags)


def scaled(service: Service, scaling: Scaling, place: str) -> Service:
    """Return a service whose replicas follow the load.

    Parameters
    ----------
    service : Service
        A server.
    scaling : Scaling
        How many, by what.
    place : str
        Where it runs.

    Returns
    -------
    Service
        The same, scaled.

    Raises
    ------
    RequestError
        The place does not add replicas by itself, the plan trains, or its engine does not say how many requests wait.
    """
    if place != "kubernetes":
        raise RequestError(say("deploy.place_scales_not", place=place), where="--scale", fix=say("deploy.scale_there"))
    if service.role is not Role.SERVER or service.queue_metric is None:
        raise RequestError(say("deploy.nothing_to_scale"), where="--scale", fix=say("deploy.leave_out"))
    return replace(service, scaling=scaling, num_replicas=max(scaling.least, 1))
