"""The proof to run as a person reads it."""

from __future__ import annotations

from tonnage.cli.tables import style, wrap
from tonnage.estimate.types import Interval
from tonnage.messages import say
from tonnage.plan.proof import Proof, Trial, amount
from tonnage.units import format_bytes, format_seconds
from tonnage.workload.types import Serving

_COLUMNS = 100


def proof_lines(proof: Proof) -> list[str]:
    """Return what is least certain, the run that settles it, and what it takes."""
    lines = [style(say("proof.title", rank=proof.plan.rank), "bold"), f"  {say('proof.least_certain')}"]
    for doubt in proof.doubts:
        lines += wrap(doubt.text, columns=_COLUMNS, indent="    ")
    texts = [_run(proof), _takes(proof.trial), _expected(proof.trial), *proof.trial.notes]
    for text in texts:
        lines += wrap(text, columns=_COLUMNS, indent="  ")
    lines += [f"  {line}" for line in proof.trial.commands]
    return lines


def _run(proof: Proof) -> str:
    trial, load = proof.trial, proof.plan.estimate.candidate.workload
    if isinstance(load, Serving):
        return say("proof.run_serve", requests=trial.num_requests, input=load.input_tokens, output=load.output_tokens)
    name = "proof.run_train" if trial.num_steps != trial.num_warm_up else "proof.run_memory"
    devices = say("proof.device" if trial.num_devices == 1 else "proof.devices", num=trial.num_devices)
    return say(name, steps=trial.num_steps, devices=devices, layers=trial.num_layers)


def _takes(trial: Trial) -> str:
    best, low, high = (format_seconds(v) for v in (trial.seconds.best, trial.seconds.low, trial.seconds.high))
    return say("proof.takes", seconds=best, low=low, high=high, cost=_costs(trial.usd))


def _costs(usd: Interval | None) -> str:
    if usd is None:
        return say("proof.costs_unknown")
    best, low, high = (f"{v:.2f}" for v in (usd.best, usd.low, usd.high))
    return say("proof.costs", usd=best, low=low, high=high)


def _expected(trial: Trial) -> str:
    estimate = trial.expected
    memory, performance = format_bytes(estimate.footprint.total.best), estimate.performance
    if trial.num_steps is None:
        rate = performance.tokens_per_s
        return say("proof.expect_serve", memory=memory, rate="?" if rate is None else amount(rate.best, "token/s"))
    step = performance.step_seconds
    return say("proof.expect_train", memory=memory, seconds="?" if step is None else format_seconds(step.best))
