"""An answer as the object that `tonnage plan --json` prints. Its keys are a promise; new ones may be added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tonnage.engines import ENGINES, find_engine
from tonnage.estimate.cost.assumptions import with_given
from tonnage.estimate.serving_limits import ServingLimits, serving_limits
from tonnage.estimate.types import Cost, Estimate, Footprint, Interval, Pool
from tonnage.hardware.names import resolve
from tonnage.plan.caps import OBJECTIVES, caps_of
from tonnage.plan.coin import coin_of
from tonnage.plan.request import arguments, command
from tonnage.plan.routes import million_usd
from tonnage.plan.types import Answer, Change, Plan, Rejection, Request, Room, Route
from tonnage.workload.types import Serving

if TYPE_CHECKING:  # it needs numpy, which an answer without it does not
    from tonnage.plan.proof import Proof


def answer_object(answer: Answer) -> dict[str, Any]:
    """Return the whole answer."""
    return {
        "request": request_object(answer.request),
        "plans": [plan_object(plan) for plan in answer.plans],
        "rejections": [_rejection(one, answer.request) for one in answer.rejections],
        "num_candidates": answer.num_candidates,
        "why_not": [
            {"engine": one.engine, "reason": one.reason, "num_candidates": one.num_candidates} for one in answer.why_not
        ],
        "assumptions": list(answer.assumptions),
        "prices": list(answer.prices),
        "currency": _currency(answer.request),
        "routes": [_route(route) for route in answer.routes],
        "stages": list(answer.stages),
        "front": [estimate_object(one) for one in answer.front],
        "unpriced": [
            {"gpu": one.gpu, "num_gpus": one.num_gpus, "fits_below_usd": one.fits_below_usd} for one in answer.unpriced
        ],
        "warnings": list(answer.warnings),
    }


def _currency(request: Request) -> dict[str, Any]:
    """Return the currency that was asked for, and how many of it a dollar is; all amounts stay in dollars."""
    coin = coin_of(request.limits)
    return {"code": coin.code, "per_usd": coin.per_usd}


def proof_object(proof: Proof) -> dict[str, Any]:
    """Return the proof to run: what is least certain, and the shortest run that settles it."""
    trial, expected = proof.trial, proof.trial.expected
    return {
        "rank": proof.plan.rank,
        "uncertain": [
            {
                "name": doubt.name,
                **(_interval(doubt.value) or {}),
                "unit": doubt.unit,
                "chance": doubt.chance,
                "text": doubt.text,
                "settled_by": "run" if doubt.is_settled else "offer",
            }
            for doubt in proof.doubts
        ],
        "run": {
            "num_gpus": trial.num_devices,
            "num_nodes": trial.num_nodes,
            "num_layers": trial.num_layers,
            "num_steps": trial.num_steps,
            "num_requests": trial.num_requests,
            "seconds": _interval(trial.seconds),
            "usd": _interval(trial.usd),
            "commands": list(trial.commands),
            "notes": list(trial.notes),
            "expected": {
                "device_bytes": _interval(expected.footprint.total),
                **_values(expected.performance, ("tokens_per_s", "step_seconds", "ttft_seconds", "tpot_seconds")),
            },
        },
    }


def request_object(request: Request) -> dict[str, Any]:
    """Return the request: as a command, and in parts."""
    load, where = request.workload, request.where
    if isinstance(load, Serving):
        goal: dict[str, Any] = {
            "goal": "serve",
            "context_tokens": load.context_tokens,
            "concurrency": load.concurrency,
            "input_tokens": load.input_tokens,
            "output_tokens": load.output_tokens,
            "ttft_limit_seconds": load.ttft_limit_seconds,
            "tpot_limit_seconds": load.tpot_limit_seconds,
        }
    else:
        goal = {
            "goal": load.kind.value,
            "seq_len": load.seq_len,
            "global_batch_size": load.global_batch_size,
            "num_tokens": load.num_tokens,
            "lora_rank": load.lora_rank if load.kind.value in ("lora", "qlora") else None,
            "lora_targets": list(load.lora_targets) if load.kind.value in ("lora", "qlora") else None,
        }
    return {
        "model": request.model,
        **goal,
        "gpus": [{"gpu": name, "num_gpus": number} for name, number in where.gpus],
        "num_nodes": where.num_nodes,
        "host": where.host,
        "network": where.network,
        "driver": where.driver or None,
        "here": where.is_here,
        "pins": dict(request.pins),
        "engines": list(request.limits.engines),
        "assumed": list(request.assumed),
        "from": request.measured_run,
        "command": command(request),
        "arguments": list(arguments(request)),
    }


def _interval(interval: Interval | None) -> dict[str, float] | None:
    if interval is None:
        return None
    return {"best": interval.best, "low": interval.low, "high": interval.high}


def _values(noun: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _interval(getattr(noun, name)) for name in names}


def plan_object(plan: Plan) -> dict[str, Any]:
    """Return one plan."""
    return {"rank": plan.rank, **estimate_object(plan.estimate), "kind": plan.kind, "reasons": list(plan.reasons)} | {
        "warnings": list(plan.warnings),
        "binding": plan.binding,
        "rival": plan.rival,
        "risks": list(plan.risks),
        "power": _power(plan),
        "job": _job(plan.estimate.cost),
        "limits": _limits(plan) or _room(plan.room),
    }


def _limits(plan: Plan) -> dict[str, Any] | None:
    """Return how far a serving plan goes with all else as it is, and the least that holds it."""
    found = limits_of(plan)
    if found is None:
        return None
    return {
        "max_context_tokens": found.max_context_tokens,
        "trained_context_tokens": plan.estimate.candidate.model.max_position_tokens,
        "max_concurrency": found.max_concurrency,
        "max_num_seqs": found.max_num_seqs,
        "least_utilization_ratio": found.least_utilization_ratio,
        "least_memory_bytes": found.least_memory_bytes,
    }


def limits_of(plan: Plan) -> ServingLimits | None:
    """Return a serving plan's limits on its own engine, as its machine taught it; None for training."""
    estimate = plan.estimate
    if plan.limits is not None:
        return plan.limits
    if not isinstance(estimate.candidate.workload, Serving):
        return None
    return serving_limits(estimate.candidate, find_engine(estimate.candidate.engine).accounting)


def _room(room: Room | None) -> dict[str, Any] | None:
    """Return how far a training plan reaches."""
    if room is None:
        return None
    reaches = {name: getattr(room, name) for name in ("micro_batch_size", "seq_len", "device_bytes")}
    return {name: {"best": reach.best, "surely": reach.surely} for name, reach in reaches.items()}


def _route(route: Route) -> dict[str, Any]:
    """Return one way to have the model."""
    estimate = route.estimate
    own = None if estimate is None else estimate.cost.own
    return {
        "way": route.way,
        "gpu": None if estimate is None else estimate.candidate.cluster.node.devices[0].slug,
        "num_gpus": None if estimate is None else estimate.candidate.cluster.num_devices,
        "engine": None if estimate is None else estimate.candidate.engine,
        "tokens_per_s": None if estimate is None else _interval(estimate.performance.tokens_per_s),
        "purchase_usd": None if estimate is None else _interval(estimate.cost.purchase_usd),
        "usd_per_hour": None if estimate is None else _interval(estimate.cost.usd_per_hour),
        "usd_per_million_tokens": None if estimate is None else _interval(million_usd(estimate, route.way)),
        "break_even_hours": None if own is None else _interval(own.break_even_hours),
        "flags": list(route.flags),
    }


def _job(cost: Cost) -> dict[str, Any] | None:
    """Return what a training job to a number of tokens takes; None where no number is asked for."""
    job = cost.job
    if job is None:
        return None
    return {
        "num_tokens": job.num_tokens,
        **_values(job, ("work_seconds", "held_seconds", "joules", "electricity_usd", "own_usd")),
        "rent_usd": _interval(cost.usd_total),
    }


def _power(plan: Plan) -> dict[str, Any] | None:
    """Return the power limits of a device, and the best for speed, energy and cost."""
    found = caps_of(plan.estimate, with_given(plan.request.limits.assume))
    if found is None:
        return None
    return {
        "caps": [
            {
                "cap_watts": cap.cap_watts,
                "speed_ratio": _interval(cap.speed_ratio),
                "joules_per_token": _interval(cap.joules_per_token),
                "own_usd_per_million_tokens": cap.usd_per_million_tokens,
            }
            for cap in found.caps
        ],
        "best_cap_watts": {name: found.best(name).cap_watts for name in OBJECTIVES},
        "curve": {
            "gpu": found.curve.device,
            "is_borrowed": found.curve.is_borrowed,
            "sources": list(found.curve.sources),
        },
    }


def _money(cost: Cost) -> dict[str, Any]:
    """Return what stands behind the cost: owning, spot, and whose prices they are."""
    return {
        "is_spot": cost.is_spot,
        "spot": None if cost.spot is None else _values(cost.spot, _SPOT),
        "own": None
        if cost.own is None
        else {
            "parts": {part.name: _interval(part.usd) for part in cost.own.parts},
            **_values(cost.own, _OWN),
            "horizon_seconds": cost.own.horizon_seconds,
            "used_seconds": cost.own.used_seconds,
        },
        "notes": list(cost.notes),
    }


_SPOT: Final = (
    "usd_per_hour", "stops_per_hour", "save_every_seconds", "held_seconds", "wall_seconds", "usd_per_million_tokens",
    "usd_total", "saved_ratio",
)  # fmt: skip
_OWN: Final = (
    "lost_usd", "draw_watts", "electricity_usd_per_hour", "usd_per_hour", "usd_per_million_tokens", "break_even_hours",
)  # fmt: skip


def estimate_object(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate with the candidate it is of."""
    candidate, layout, storage = estimate.candidate, estimate.candidate.layout, estimate.storage
    devices = candidate.cluster.node.devices
    precision, offload, settings, used = candidate.precision, candidate.offload, candidate.settings, estimate.provenance
    return {
        "engine": candidate.engine,
        "hardware": {
            "gpu": devices[0].slug,
            "gpus": [device.slug for device in devices],
            "num_gpus": candidate.cluster.num_devices,
            "num_nodes": candidate.cluster.num_nodes,
        },
        "layout": {
            **{name: getattr(layout, name) for name in ("dp", "tp", "pp", "cp", "ep", "zero_stage")},
            "num_virtual_stages": layout.num_virtual_stages,
            "has_sequence_parallel": layout.has_sequence_parallel,
        },
        "precision": {
            "weights": precision.weights,
            "compute": precision.compute,
            "experts": precision.experts or precision.weights if candidate.model.is_moe else None,
            "kv": precision.kv if isinstance(candidate.workload, Serving) else None,
            "gradients": None if isinstance(candidate.workload, Serving) else precision.gradients,
            "has_fp32_master": precision.has_fp32_master,
        },
        "recompute": candidate.recompute.value,
        "offload": {
            "optimizer": offload.optimizer,
            "parameters": offload.parameters,
            "activations": offload.activations,
            "num_cpu_expert_layers": offload.num_cpu_expert_layers,
            "num_cpu_layers": offload.num_cpu_layers,
            "optimizer_nvme": offload.optimizer_nvme,
            "parameters_nvme": offload.parameters_nvme,
            "experts_nvme": offload.experts_nvme,
        },
        "micro_batch_size": candidate.micro_batch_size,
        "optimizer": None if isinstance(candidate.workload, Serving) else candidate.optimizer,
        "settings": {
            "max_num_seqs": settings.max_num_seqs,
            "max_batched_tokens": settings.max_batched_tokens,
            "utilization_ratio": settings.utilization_ratio,
            **dict(settings.extra),
        },
        "fits": {"best": estimate.footprint.fits, "surely": estimate.footprint.fits_surely},
        "memory": _memory(estimate.footprint),
        "storage": {
            name: getattr(storage, name)
            for name in ("weights_bytes", "data_bytes", "checkpoints_bytes", "read_bytes_per_s", "feed_bytes_per_s")
        }
        | ({"offload_bytes": storage.offload_bytes} if storage.offload_bytes is not None else {}),
        "performance": _values(
            estimate.performance,
            (
                *("tokens_per_s", "tokens_per_s_per_gpu", "step_seconds", "mfu_ratio", "hfu_ratio"),
                *("prefill_tokens_per_s", "ttft_seconds", "tpot_seconds", "ttft_p99_seconds", "tpot_p99_seconds"),
                *("requests_per_s", "goodput_requests_per_s", "max_concurrency", "job_seconds"),
            ),
        ),
        "step": {part.name: part.seconds for part in estimate.step_time.parts},
        "cost": _values(estimate.cost, ("usd_per_hour", "usd_per_million_tokens", "purchase_usd", "usd_total")),
        "money": _money(estimate.cost),
        "launch": launch_words(estimate),
        "provenance": {
            "formulae": list(used.formulae),
            "sources": list(used.sources),
            "is_calibrated": used.is_calibrated,
            "assumptions": list(used.assumptions),
            "measured": list(used.measured),
            "warnings": list(used.warnings),
        },
    }


def launch_words(estimate: Estimate) -> list[str] | None:
    """Return the launch line that carries what was predicted; None for training, whose launch is a set of files."""
    if not isinstance(estimate.candidate.workload, Serving):
        return None
    engine = next(one for one in ENGINES if one.name == estimate.candidate.engine)
    return list(engine.launch(estimate.candidate).argv)


def _memory(held: Footprint) -> dict[str, Any]:
    sides = {
        "device": (False, held.capacity_bytes, held.total),
        "host": (True, held.host_capacity_bytes, held.host_total),
    }
    return {
        name: {
            "capacity_bytes": capacity,
            "total_bytes": _interval(total),
            "pools": _pools(held.pools, is_host),
        }
        for name, (is_host, capacity, total) in sides.items()
    }


def _pools(pools: tuple[Pool, ...], is_host: bool) -> Mapping[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for pool in pools:
        if pool.is_on_host == is_host:
            interval = _interval(Interval.around(pool.bytes, pool.relative_error)) or {}
            known = found.get(pool.name)
            found[pool.name] = {n: known[n] + v for n, v in interval.items()} if known else interval
    return found


def _rejection(one: Rejection, request: Request) -> dict[str, Any]:
    return {
        "what": one.what,
        "reason": one.reason,
        "short_by_bytes": one.short_by_bytes,
        "command": one.command,
        "memory": None if one.estimate is None else _memory(one.estimate.footprint),
        "limits": _hardware_limits(one.changes, request),
        "changes": [_change(change) for change in one.changes],
    }


def _hardware_limits(changes: tuple[Change, ...], request: Request) -> dict[str, Any] | None:
    """Return the fewest of the same card and the smallest card in the same number that do, of a training request."""
    if not changes or isinstance(request.workload, Serving) or len(request.where.gpus) != 1:
        return None
    number = request.where.gpus[0][1] * request.where.num_nodes
    asked = resolve(request.where.gpus[0][0]).slug
    found: dict[str, Any] = {"fewest_gpus": None, "smallest_gpu": None}
    for change in changes:
        cluster = change.estimate.candidate.cluster
        slug = cluster.node.devices[0].slug
        is_more = cluster.num_devices > number
        kind = "fewest_gpus" if slug == asked and is_more else "smallest_gpu" if slug != asked and not is_more else None
        if kind is None or found[kind] is not None:
            continue
        found[kind] = {
            "gpu": slug,
            "num_gpus": cluster.num_devices,
            "num_nodes": cluster.num_nodes,
            "command": change.command,
        }
    return found


def _change(change: Change) -> dict[str, Any]:
    estimate = change.estimate
    return {
        "what": change.what,
        "command": change.command,
        "engine": estimate.candidate.engine,
        "total_bytes": _interval(estimate.footprint.total),
        "host_bytes": _interval(estimate.footprint.host_total),
        "tokens_per_s": _interval(estimate.performance.tokens_per_s),
    }
