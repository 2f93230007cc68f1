"""The answers of `tonnage simulate` as objects that scripts read."""

from __future__ import annotations

import math
from typing import Any

from tonnage.simulate.ask import JobAnswer, JobTry, LoadAnswer
from tonnage.simulate.autoscale import Policy
from tonnage.simulate.replay import Replayed, Tail
from tonnage.simulate.spot import JobReplayed

__all__ = ["job_object", "load_object", "mean_of"]


def load_object(answer: LoadAnswer) -> dict[str, Any]:
    """Return what a plan does under a load."""
    return {
        **_run(answer.run),
        "replicas": answer.num_copies,
        "usd_per_million_tokens": answer.usd_per_million_tokens,
        "largest_rate": None
        if answer.best_rate is None
        else {
            "requests_per_s": answer.best_rate.requests_per_s,
            "ratio": answer.best_rate.rate_ratio,
            **_run(answer.best_rate.run),
        },
        "rates": [
            {
                "requests_per_s": one.requests_per_s,
                "ratio": one.rate_ratio,
                "kept": one.is_kept,
                "ttft_seconds": _tail(one.run.ttft),
                "tpot_seconds": _tail(one.run.tpot),
            }
            for one in answer.rates
        ],
        "policies": [
            {
                "policy": _policy(one.policy),
                "chosen": at == answer.winner,
                "usd_per_million_tokens": one.usd_per_million_tokens,
                **_run(one.run),
                "series": [list(moment) for moment in one.run.series],
            }
            for at, one in enumerate(answer.scaled)
        ],
        "start_seconds": answer.start_seconds,
    }


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "least": policy.least,
        "most": policy.most,
        "metric": None if policy.metric is None else str(policy.metric),
        "target": None if policy.metric is None else policy.target,
        "stabilization_seconds": policy.stabilization_seconds,
        "cooldown_seconds": policy.cooldown_seconds,
    }


def _run(run: Replayed) -> dict[str, Any]:
    return {
        "requests": run.num_requests,
        "finished": run.num_finished,
        "refused": run.num_refused,
        "turned_away": run.num_turned_away,
        "ttft_seconds": _tail(run.ttft),
        "tpot_seconds": _tail(run.tpot),
        "e2e_seconds": _tail(run.e2e),
        "goodput": run.goodput_requests_per_s,
        "kept_ratio": run.kept_ratio,
        "requests_per_s": run.requests_per_s,
        "output_tokens_per_s": run.output_tokens_per_s,
        "preemptions": run.num_preemptions,
        "busy_ratio": run.busy_ratio,
        "cache_used_ratio": {"mean": run.mean_used_ratio, "most": run.most_used_ratio},
        "mean_running": run.mean_running,
        "replica_seconds": run.replica_seconds,
        "span_seconds": run.span_seconds,
    }


def _tail(tail: Tail) -> dict[str, Any]:
    return {name: getattr(tail, name) for name in ("mean", "p50", "p90", "p95", "p99", "worst")}


def job_object(answer: JobAnswer) -> dict[str, Any]:
    """Return what a job does on machines that come and go."""
    asked = answer.question
    return {
        "num_nodes": answer.num_nodes,
        "work_seconds": asked.work_seconds,
        "checkpoint_seconds": asked.checkpoint_seconds,
        "restart_seconds": asked.restart_seconds,
        "interval_seconds": answer.interval_seconds,
        "daly_interval_seconds": answer.daly_seconds,
        "best_interval_seconds": answer.best_interval_seconds,
        "mean_seconds_until_a_stop": answer.mean_seconds,
        "ways": [_way(one, asked.work_seconds) for one in answer.tries],
        "intervals": [
            {
                "interval_seconds": interval,
                "held_seconds": held if math.isfinite(held) else None,
                "finished_ratio": share,
            }
            for interval, held, share in answer.intervals
        ],
    }


def _way(one: JobTry, work: float) -> dict[str, Any]:
    ended = [run for run in one.runs if run.is_finished]
    walls = sorted(run.wall_seconds for run in ended)
    return {
        "fallback": str(one.fallback),
        "least_nodes": one.least_nodes,
        "runs": len(one.runs),
        "finished_ratio": one.finished_ratio,
        "wall_seconds": {
            "mean": mean_of(walls),
            "best": walls[0] if walls else None,
            "worst": walls[-1] if walls else None,
        },
        "goodput_ratio": _goodput(ended, work),
        "lost_seconds": mean_of([run.lost_seconds for run in ended]),
        "waited_seconds": mean_of([run.waited_seconds for run in ended]),
        "interruptions": mean_of([float(run.num_interruptions) for run in ended]),
        "on_demand_node_seconds": mean_of([run.on_demand_node_seconds for run in ended]),
        "usd": {"mean": mean_of(one.usd), "worst": max(one.usd, default=None)},
    }


def _goodput(ended: list[JobReplayed], work: float) -> float | None:
    """Return the share of the held time that became work that stayed."""
    held = math.fsum(run.wall_seconds - run.waited_seconds for run in ended)
    return work * len(ended) / held if held else None


def mean_of(values: list[float] | tuple[float, ...]) -> float | None:
    """Return the mean; None of nothing."""
    return math.fsum(values) / len(values) if values else None
