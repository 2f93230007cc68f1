"""Measurements of one launch beside what was predicted of it, and what they teach of the machine.

A size that a log prints teaches a size; a rate teaches the one fraction that it hangs on most: decoding the memory's,
prompts the matrix units', work on the host the host memory's, a steady load what batching takes. Which fraction a rate
hangs on, and how strongly, is found by changing each a little and predicting anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tonnage.calibrate.inference_fit import NOISE
from tonnage.calibrate.measurements import Measurements, Speed
from tonnage.engines import find_engine
from tonnage.engines.taught import Teaching, taught
from tonnage.engines.types import Engine, LogFacts
from tonnage.errors import RequestError
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.serving import ServingMemory
from tonnage.estimate.serving_speed import serving_times
from tonnage.estimate.types import Candidate
from tonnage.nouns import noun
from tonnage.plan.pins import with_pins
from tonnage.plan.profile import Lesson, Observation, quantity
from tonnage.plan.types import Scalar
from tonnage.units import MIB
from tonnage.workload.types import Serving

__all__ = ["FORMS", "Finding", "findings", "lessons"]

# Engines whose logs have the form of another's.
FORMS: Final = {"ik_llama.cpp": "llama.cpp", "ollama": "llama.cpp", "ktransformers": "sglang"}
_KINDS: Final = {
    "decode_tps_single": "decode", "tpot_seconds": "decode", "prefill_tps": "prefill", "ttft_seconds": "prefill",
    "throughput_tps": "throughput",
}  # fmt: skip
_HANGS_ON: Final = {
    "decode": ("bandwidth_ratio", "host_bandwidth_ratio"),
    "prefill": ("compute_ratio", "host_bandwidth_ratio", "pcie_ratio"),
    "throughput": ("batch_ratio",),
}
_CACHES: Final = {"f16": "fp16", "f32": "fp32", "auto": "fp16"}
_STEP: Final = 1.05
_WEAKEST: Final = 0.25  # a rate that hangs on a fraction less than this tells nothing of it
_WIDEST: Final = 8.0  # factor in which a fraction is looked for
_HALVINGS: Final = 50
_PLAIN_MIB: Final = 16  # a difference below it is what logs round off


@noun
class Finding:
    """One quantity: what was predicted, what was measured, and what of the machine it teaches."""

    name: str  # weights_bytes, cache_bytes, cache_tokens, decode_tps_single, …
    predicted: float
    measured: float
    load: str = ""  # under which load a rate was taken
    teaches: str = ""  # a quantity of data/calibration/teaching.toml; "": nothing
    expected: float = 0.0
    achieved: float = 0.0
    noise: float = 0.0

    @property
    def relative(self) -> float | None:
        """Prediction over measurement, less one; None without a measurement to divide by."""
        return self.predicted / self.measured - 1 if self.measured > 0 else None


def findings(candidate: Candidate, measured: Measurements) -> tuple[Finding, ...]:
    """Return each measured quantity beside its prediction by the fitted constants alone.

    Raises
    ------
    RequestError
        The plan trains, or runs on another engine or split than was measured.
    """
    if not isinstance(candidate.workload, Serving):
        raise RequestError(
            "the plan trains, what was measured serves", where="--plan", fix="give the plan of this launch"
        )
    if measured.engine and FORMS.get(candidate.engine, candidate.engine) != measured.engine:
        raise RequestError(
            f"measured was {measured.engine}, the plan is of {candidate.engine}",
            where="--plan",
            fix="give the plan of this launch",
        )
    candidate = as_launched(candidate, measured)
    engine = find_engine(candidate.engine)
    found = list(_sizes(candidate, engine, measured.log)) if measured.log is not None else []
    return (*found, *(_rate(candidate, engine, speed) for speed in measured.speeds))


def as_launched(candidate: Candidate, measured: Measurements) -> Candidate:
    """Return a candidate with the settings that the measured launch had.

    Raises
    ------
    RequestError
        Another split over devices: that is another plan.
    """
    pins: dict[str, Scalar] = {}
    load: dict[str, int] = {}
    for name, text in measured.settings.items():
        if name in ("context", "concurrency"):
            load[f"{name}_tokens" if name == "context" else name] = int(text)
        elif name.startswith("layout."):
            here = getattr(candidate.layout, name.removeprefix("layout."))
            if int(text) != here:
                what = f"measured was {name.removeprefix('layout.')}={text}, the plan has {here}"
                raise RequestError(what, where="--plan", fix="give the plan of this launch")
        elif name == "settings.utilization_ratio":
            pins[name] = float(text)
        elif name == "precision.kv":
            pins[name] = "fp8" if text.startswith("fp8") else _CACHES.get(text, text)
        else:
            pins[name] = int(text)
    assert isinstance(candidate.workload, Serving)
    # llama.cpp prints the tokens of all slots together
    if (
        candidate.engine in ("llama.cpp", *(k for k, v in FORMS.items() if v == "llama.cpp"))
        and "context_tokens" in load
    ):
        slots = load.get("concurrency", candidate.workload.concurrency)
        load["context_tokens"] = max(1, load["context_tokens"] // max(slots, 1))
    elif "concurrency" in load:
        del load["concurrency"]
    return with_pins(replace(candidate, workload=replace(candidate.workload, **load)), pins)


def _memory(candidate: Candidate, engine: Engine) -> ServingMemory:
    return engine.accounting.memory(serving_load(candidate, engine.accounting))


def _pools(needs: ServingMemory) -> dict[str, float]:
    pools = {pool.name: float(pool.bytes) for pool in needs.pools}
    cache = needs.cache_bytes if needs.cache_bytes is not None else needs.total_cache_bytes
    told = {
        "weights_bytes": pools.get("weights"),
        "cache_bytes": None if cache is None else float(cache),
        "cache_tokens": None if needs.cache_tokens is None else float(needs.cache_tokens),
        "graph_bytes": pools.get("cuda_graphs"),
        "compute_bytes": pools.get("compute_buffer"),
        "activation_bytes": pools.get("activations"),
        "non_torch_bytes": pools.get("context"),
        "context_bytes": pools.get("context"),
    }
    return {name: value for name, value in told.items() if value is not None}


_TAUGHT_SIZES: Final = {
    "weights_bytes": "weights_bytes", "non_torch_bytes": "non_torch_bytes", "context_bytes": "context_bytes",
    "compute_bytes": "compute_buffer_bytes",
}  # fmt: skip


def _sizes(candidate: Candidate, engine: Engine, facts: LogFacts) -> Iterator[Finding]:
    """Yield each size that a log prints; what the cache pool lacks beyond them teaches what is taken beside."""
    told = _pools(_memory(candidate, engine))
    known = Teaching()
    for name, predicted in told.items():
        measured = getattr(facts, name)
        if measured is None or name == "cache_bytes":
            continue
        one = Finding(name=name, predicted=predicted, measured=measured)
        lesson = _TAUGHT_SIZES.get(name)
        if lesson is not None and (name != "weights_bytes" or abs(measured - predicted) > _PLAIN_MIB * MIB):
            one = replace(one, teaches=lesson, expected=predicted, achieved=measured, noise=quantity(lesson).noise)
            known = _with(known, candidate, lesson, measured - predicted)
        yield one
    pool = facts.cache_bytes
    if pool is None and facts.cache_tokens and told.get("cache_tokens"):
        pool = told.get("cache_bytes", 0.0) * facts.cache_tokens / told["cache_tokens"]
    if pool is None or "cache_bytes" not in told:
        return
    one = Finding(name="cache_bytes", predicted=told["cache_bytes"], measured=pool)
    slope = _pool_with(candidate, engine, known, 256.0 * MIB) - _pool_with(candidate, engine, known, 0.0)
    if slope >= 0:  # llama.cpp's cache is what was asked for, whatever else is taken
        yield one
        return
    beside = (_pool_with(candidate, engine, known, 0.0) - pool) / (-slope / (256.0 * MIB))
    expected = told.get("activation_bytes", 0.0) + told.get("non_torch_bytes", 0.0) + told.get("graph_bytes", 0.0)
    about = quantity("pool_bytes")
    yield replace(one, teaches=about.name, expected=expected, achieved=expected + beside, noise=about.noise)


def _with(teaching: Teaching, candidate: Candidate, lesson: str, more: float) -> Teaching:
    if lesson in ("weights_bytes", "compute_buffer_bytes"):
        key = (lesson, candidate.precision.weights, candidate.layout.tp, candidate.layout.pp)
        return replace(teaching, by_format={**teaching.by_format, key: more})
    return replace(teaching, amounts={**teaching.amounts, lesson: more})


def _pool_with(candidate: Candidate, engine: Engine, known: Teaching, beside: float) -> float:
    amounts = {**known.amounts, "pool_bytes": beside}
    return _pools(_memory(candidate, taught(engine, replace(known, amounts=amounts))))["cache_bytes"]


def _rate(candidate: Candidate, engine: Engine, speed: Speed) -> Finding:
    """Return a measured rate beside its prediction, with the fraction that it teaches."""
    candidate = _under(candidate, speed)
    load = candidate.workload
    assert isinstance(load, Serving)
    said = f"{load.input_tokens:,} + {load.output_tokens:,} tokens" + (
        f", {load.concurrency} at once" if load.concurrency > 1 else ""
    )

    @lru_cache(maxsize=64)
    def predict(name: str, factor: float) -> float:
        amounts = {} if factor == 1 else {name: factor}
        return _speed(candidate, taught(engine, Teaching(amounts=amounts)), speed.metric)

    predicted = predict("", 1.0)
    one = Finding(name=speed.metric, predicted=predicted, measured=speed.value, load=said)
    kind = _KINDS[speed.metric]
    slopes = {name: math.log(predict(name, _STEP) / predicted) / math.log(_STEP) for name in _HANGS_ON[kind]}
    name = max(slopes, key=lambda each: abs(slopes[each]))
    if abs(slopes[name]) < _WEAKEST:
        return one
    factor = _solved(lambda f: predict(name, f), speed.value, rises=slopes[name] > 0)
    if factor is None:
        return one
    expected = float(getattr(engine.accounting.rates(serving_load(candidate, engine.accounting)), name))
    noise = max(NOISE[kind], quantity(name).noise) / abs(slopes[name])
    return replace(one, teaches=name, expected=expected, achieved=expected * factor, noise=noise)


def _under(candidate: Candidate, speed: Speed) -> Candidate:
    """Return a candidate under the load that a rate was measured with; what the file does not say is the plan's."""
    load = candidate.workload
    assert isinstance(load, Serving)
    inputs, outputs = speed.input_tokens or load.input_tokens, speed.output_tokens or load.output_tokens
    return replace(
        candidate,
        workload=replace(
            load,
            context_tokens=max(load.context_tokens, inputs + outputs),
            concurrency=speed.concurrency or load.concurrency,
            input_tokens=inputs,
            output_tokens=outputs,
        ),
    )


def _speed(candidate: Candidate, engine: Engine, metric: str) -> float:
    load = serving_load(candidate, engine.accounting)
    assert isinstance(candidate.workload, Serving)
    times = serving_times(load, engine.accounting.rates(load), engine.accounting.memory(load).cache_tokens)
    in_flight = candidate.workload.concurrency
    busy = in_flight / -(-in_flight // load.dp)
    return float(
        {
            "decode_tps_single": 1 / times.single_tpot_seconds,
            "prefill_tps": times.prefill_tokens_per_s,
            "throughput_tps": times.throughput_tokens_per_s * busy,
            "ttft_seconds": times.ttft_seconds,
            "tpot_seconds": times.tpot_seconds,
        }[metric]
    )


def taught_by_training(one: Finding) -> Finding:
    """Return a measured training rate with what it teaches: the speed itself, whatever binds it."""
    about = quantity("training_speed_ratio")
    if one.predicted <= 0 or one.measured <= 0:
        return one
    return replace(one, teaches=about.name, expected=one.predicted, achieved=one.measured, noise=about.noise)


def _solved(predict: Callable[[float], float], wanted: float, *, rises: bool) -> float | None:
    """Return the factor at which a monotone prediction is what was measured; None where none in reach does."""
    low, high = 1 / _WIDEST, _WIDEST
    at_low, at_high = (predict(low), predict(high)) if rises else (predict(high), predict(low))
    if not at_low <= wanted <= at_high:
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if (predict(middle) < wanted) == rises:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def lessons(
    candidate: Candidate,
    found: Iterable[Finding],
    *,
    machine: str,
    host: str,
    file: str,
    day: str,
    kind: str,
    digest: str,
) -> tuple[Lesson, ...]:
    """Return what findings of one file teach, a lesson a quantity.

    Parameters
    ----------
    candidate : Candidate
        What ran.
    found : iterable of Finding
        What was measured of it.
    machine, host : str
        The machine's label, and its host as it is written after --host.
    file, day, kind, digest : str
        The evidence: the file's name, the day, what it is, and a digest of its text.

    Returns
    -------
    tuple of Lesson
        With one observation for each finding that teaches.
    """
    by_name: dict[str, list[Observation]] = {}
    for one in found:
        if one.teaches:
            by_name.setdefault(one.teaches, []).append(
                Observation(
                    file=file,
                    day=day,
                    kind=kind,
                    model=candidate.model.name,
                    expected=one.expected,
                    achieved=one.achieved,
                    noise=float(one.noise),
                    digest=digest,
                )
            )
    is_of_format = {"weights_bytes", "compute_buffer_bytes"}
    devices, layout = candidate.cluster.node.devices, candidate.layout
    return tuple(
        Lesson(
            machine=machine,
            gpu=devices[0].slug,
            num_gpus=len(devices),
            host=host,
            engine=candidate.engine,
            quantity=name,
            weights=candidate.precision.weights if name in is_of_format else "",
            tp=layout.tp if name in is_of_format else 1,
            pp=layout.pp if name in is_of_format else 1,
            observations=tuple(observations),
        )
        for name, observations in by_name.items()
    )
