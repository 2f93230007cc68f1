"""Where every byte, second and coin of a plan goes: each with the formula that gave it, and that formula's source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from tonnage import datafiles
from tonnage.estimate.cost.assumptions import with_given
from tonnage.estimate.types import Cost, Estimate, Interval, Pool
from tonnage.messages import knows, say
from tonnage.plan.caps import caps_of
from tonnage.plan.scene import share_label, where_it_lives
from tonnage.plan.types import Plan
from tonnage.units import format_bytes, format_count, format_kwh, format_seconds
from tonnage.workload.types import Serving, Training

_PACKAGES: Final = ("tonnage.estimate", "tonnage.engines")
_SAFE: Final = re.compile(r"[A-Za-z][\w]*(\.[A-Za-z][\w]*)*", re.ASCII)
_NOT_WORD: Final = re.compile(r"\W", re.ASCII)
_REFERENCE: Final = re.compile(r"\.\. \[\d+\]\s+(.*?)(?=\n\s*\.\. \[|\n\s*\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One share of a whole: how much, by which formula, from which source."""

    name: str
    label: str
    value: float
    text: str
    share: float | None = None
    formula: str = ""
    meaning: str = ""
    source: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One whole, with its shares: the device's memory, a step's time, the cost."""

    id: str
    title: str
    unit: str
    total: Interval | None
    capacity: float | None = None
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All of a plan, taken apart."""

    plan: Plan
    title: str
    parts: tuple[Part, ...]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def explain(plan: Plan) -> Explanation:
    """Take a plan apart.

    Parameters
    ----------
    plan : Plan
        Any plan.

    Returns
    -------
    Explanation
        Memory of the device and of the host, time of a step, cost and storage; every item adds up to its part.
    """
    estimate = plan.estimate
    candidate, held = estimate.candidate, estimate.footprint
    devices = candidate.cluster.node.devices
    title = say("explain.title", model=candidate.model.name, engine=candidate.engine, place=where_it_lives(estimate))
    parts = (
        _memory("device", held.pools, held.total, held.capacity_bytes, is_on_host=False),
        _memory("host", held.pools, held.host_total, held.host_capacity_bytes, is_on_host=True),
        _time(estimate),
        _rates(estimate),
        _room(plan),
        _cost(estimate),
        _job(estimate),
        _power(plan),
        _storage(estimate),
        _constants(estimate),
    )
    sources = [
        candidate.model.source,
        *(device.source for device in devices),
        candidate.cluster.node.host.source,
    ]
    return Explanation(
        plan=plan,
        title=title,
        parts=tuple(part for part in parts if part.items),
        assumptions=(*estimate.provenance.measured, *estimate.provenance.assumptions),
        warnings=plan.warnings,
        sources=tuple(dict.fromkeys(t for s in (*sources, *estimate.provenance.sources) for t in _cited(s))),
    )


def _cited(keys: str) -> list[str]:
    """Return title and address of each source that a row names by its key; what is no key stands for itself."""
    known = {row["key"]: row for row in datafiles.rows("sources.csv")}
    words = keys.split()
    if not words or not all(word in known for word in words):
        return [keys] if keys else []
    return [f"{known[word]['title']}, {known[word]['address']}" for word in words]


@cache
def meaning_of(formula: str) -> tuple[str, str]:
    """Return what a formula computes and where it comes from, read from its own documentation.

    >>> meaning_of("weights.plain_bytes")[0]
    'Bytes of weights that each take the same number of bits, with nothing beside them.'
    """
    found = _find(formula)
    text = getattr(found, "__doc__", None) or ""
    meaning = " ".join(text.strip().partition("\n\n")[0].split())
    references = [" ".join(match.split()) for match in _REFERENCE.findall(text)]
    notes = re.search(r"Notes\s*\n\s*-+\s*\n(.*?)(?=\n\s*\n\s*\w+\s*\n\s*-{3,}|\Z)", text, re.DOTALL)
    if not references and notes:
        references = [" ".join(notes[1].split())]
    if not references and text:
        module = import_module(str(getattr(found, "__module__", None) or found.__name__)).__doc__ or ""
        references = [" ".join(module.split())]
    return meaning, "; ".join(references)


def _find(formula: str) -> Any:
    """Return the function that a dotted name under the formulae's packages means, or None; nothing else is touched."""
    name = next((formula.removeprefix(p + ".") for p in _PACKAGES if formula.startswith(p + ".")), formula)
    if len(formula) > 200 or not _SAFE.fullmatch(name):
        return None
    packages = [p for p in _PACKAGES if formula.startswith(p + ".")] or _PACKAGES
    words = name.split(".")
    for package in packages:
        for cut in range(len(words), 0, -1):
            try:
                found: Any = import_module(f"{package}.{'.'.join(words[:cut])}")
            except ImportError:
                continue
            for word in words[cut:]:
                found = getattr(found, word, None)
            if found is not None:
                return found
    return None


def _meaning(kind: str, name: str, formula: str) -> str:
    known = f"share.{kind}_{_NOT_WORD.sub('_', name)}_is"
    return say(known) if knows(known) else meaning_of(formula)[0]


def _memory(name: str, pools: tuple[Pool, ...], total: Interval, capacity: float, *, is_on_host: bool) -> Part:
    here = sorted((pool for pool in pools if pool.is_on_host == is_on_host), key=lambda pool: -pool.bytes)
    items = tuple(
        Item(
            name=pool.name,
            label=share_label("pool", pool.name),
            value=pool.bytes,
            text=format_bytes(pool.bytes, 2),
            share=pool.bytes / total.best if total.best else None,
            formula=pool.formula,
            meaning=_meaning("pool", pool.name, pool.formula),
            source=meaning_of(pool.formula)[1],
            detail=pool.detail,
        )
        for pool in here
    )
    return Part(id=name, title=say(f"explain.{name}"), unit="B", total=total, capacity=capacity, items=items)


def _time(estimate: Estimate) -> Part:
    total = estimate.step_time.total
    parts = sorted(estimate.step_time.parts, key=lambda part: -part.seconds)
    items = tuple(
        Item(
            name=part.name,
            label=share_label("time", part.name),
            value=part.seconds,
            text=format_seconds(part.seconds),
            share=part.seconds / total.best if total.best else None,
            formula=part.formula,
            meaning=_meaning("time", part.name, part.formula),
            source=meaning_of(part.formula)[1],
            detail=part.detail,
        )
        for part in parts
        if part.seconds
    )
    name = "explain.decode_step" if isinstance(estimate.candidate.workload, Serving) else "explain.optimizer_step"
    return Part(id="step", title=say(name), unit="s", total=total, items=items)


_RATES: Final = (
    ("tokens_per_s", "{:,.1f} tokens/s"),
    ("tokens_per_s_per_gpu", "{:,.1f} tokens/s"),
    ("prefill_tokens_per_s", "{:,.0f} tokens/s"),
    ("mfu_ratio", "{:.1%}"),
    ("hfu_ratio", "{:.1%}"),
    ("requests_per_s", "{:,.2f} /s"),
    ("goodput_requests_per_s", "{:,.2f} /s"),
    ("max_concurrency", "{:,.0f}"),
)


def _rates(estimate: Estimate) -> Part:
    performance, items = estimate.performance, []
    for name, form in _RATES:
        interval = getattr(performance, name)
        if interval is not None:
            low, high = form.format(interval.low), form.format(interval.high)
            text = form.format(interval.best) + ("" if low == high else f" ({low} – {high})")
            items.append(Item(name=name, label=share_label("rate", name), value=interval.best, text=text))
    times = ("ttft_seconds", "ttft_p99_seconds", "tpot_seconds", "tpot_p99_seconds", "step_seconds", "job_seconds")
    for name in times:
        interval = getattr(performance, name)
        if interval is not None:
            text = f"{format_seconds(interval.best)} ({format_seconds(interval.low)} – {format_seconds(interval.high)})"
            items.append(Item(name=name, label=share_label("rate", name), value=interval.best, text=text))
    return Part(id="performance", title=say("explain.performance"), unit="", total=None, items=tuple(items))


def _room(plan: Plan) -> Part:
    """Return how far a training plan reaches on its hardware."""
    items: list[Item] = []
    for name, formula in _ROOM if plan.room is not None else ():
        reach = getattr(plan.room, name)
        best, surely = (format_bytes(n) if name.endswith("_bytes") else f"{n:,}" for n in (reach.best, reach.surely))
        items.append(
            Item(
                name=name,
                label=share_label("room", name),
                value=reach.best,
                text=best if reach.best == reach.surely else say("explain.surely", best=best, surely=surely),
                formula=f"compose_training.solve.{formula}",
                meaning=_meaning("room", name, f"compose_training.solve.{formula}"),
            )
        )
    return Part(id="room", title=say("explain.room"), unit="", total=None, items=tuple(items))


_ROOM: Final = (
    ("micro_batch_size", "largest_micro_batch"),
    ("seq_len", "longest_sequence"),
    ("device_bytes", "needed_bytes"),
)

_MONEY_FORMULAE: Final = {
    "usd_per_million_tokens": "cost.usd_per_million_tokens",
    "usd_total": "cost.expected_seconds",
    "own_lost_usd": "cost.ownership_usd",
    "own_electricity_usd_per_hour": "cost.electricity_usd_per_hour",
    "own_usd_per_hour": "cost.owned_usd_per_hour",
    "own_usd_per_million_tokens": "cost.usd_per_million_tokens",
    "spot_usd_per_million_tokens": "cost.usd_per_million_tokens",
    "spot_usd_total": "cost.expected_seconds",
}


def _cost(estimate: Estimate) -> Part:
    """Return the money: rent, purchase with its parts, owning, spot; only the first carries whose prices they are."""
    cost: Cost = estimate.cost
    names = ("usd_per_hour", "usd_per_million_tokens", "usd_total", "purchase_usd")
    found: list[tuple[str, Interval | None]] = [(name, getattr(cost, name)) for name in names]
    if cost.own is not None:
        own = ("lost_usd", "electricity_usd_per_hour", "usd_per_hour", "usd_per_million_tokens")
        found += [(f"own_{part.name}", part.usd) for part in cost.own.parts]
        found += [(f"own_{name}", getattr(cost.own, name)) for name in own]
    if cost.spot is not None and not cost.is_spot:
        rented = ("usd_per_hour", "usd_per_million_tokens", "usd_total")
        found += [(f"spot_{name}", getattr(cost.spot, name)) for name in rented]
    known = [(name, interval) for name, interval in found if interval is not None]
    items = tuple(
        Item(
            name=name,
            label=share_label("cost", name),
            value=interval.best,
            text=_dollars(interval),
            formula=_MONEY_FORMULAE.get(name, ""),
            source="; ".join(cost.notes) if place == 0 else "",
        )
        for place, (name, interval) in enumerate(known)
    )
    return Part(id="cost", title=say("explain.cost"), unit="USD", total=None, items=items)


def _job(estimate: Estimate) -> Part:
    """Return time, energy and money to the tokens that were asked for."""
    job, items = estimate.cost.job, []
    for name, formula in _JOB if job is not None else ():
        interval = estimate.cost.usd_total if name == "rent_usd" else getattr(job, name)
        if interval is None:
            continue
        kind = next(unit for unit in ("seconds", "joules", "usd") if name.endswith(unit))
        best, low, high = (_amount(kind, value) for value in (interval.best, interval.low, interval.high))
        items.append(
            Item(
                name=name,
                label=share_label("job", name),
                value=interval.best,
                text=best if low == high else f"{best} ({low} – {high})",
                formula=formula,
                meaning=_meaning("job", name, formula),
                source=meaning_of(formula)[1] if formula else "",
            )
        )
    count = format_count(job.num_tokens) if job is not None else ""
    return Part(id="job", title=say("explain.job", num=count), unit="", total=None, items=tuple(items))


_JOB: Final = (
    ("work_seconds", ""),
    ("held_seconds", "cost.expected_seconds"),
    ("joules", "power.job_joules"),
    ("electricity_usd", "cost.electricity_usd"),
    ("rent_usd", "cost.rent_usd"),
    ("own_usd", "cost.owned_usd_per_hour"),
)


def _amount(kind: str, value: float) -> str:
    if kind == "seconds":
        return format_seconds(value)
    if kind == "joules":
        return f"{format_kwh(value)} kWh"
    return f"{value:,.0f} USD" if value >= 100 else f"{value:,.3g} USD"


def _dollars(interval: Interval) -> str:
    best, low, high = (f"{v:,.0f}" if v >= 100 else f"{v:,.3g}" for v in (interval.best, interval.low, interval.high))
    return f"{best} USD" if low == high else f"{best} USD ({low} – {high})"


def _power(plan: Plan) -> Part:
    """Return the best power limits, with what each does to speed and energy."""
    found = caps_of(plan.estimate, with_given(plan.request.limits.assume))
    items: list[Item] = []
    if found is None:
        return Part(id="power", title=say("explain.power"), unit="W", total=None, items=())
    for name in ("energy", "cost"):
        cap = found.best(name)
        text = say(
            "explain.cap",
            watts=f"{cap.cap_watts:.0f}",
            speed=f"{100 * cap.speed_ratio.best:.0f}",
            low=f"{100 * cap.speed_ratio.low:.0f}",
            joules=f"{cap.joules_per_token.best:.3g}",
        )
        source = say("explain.cap_borrowed" if found.curve.is_borrowed else "explain.cap_own", gpu=found.curve.device)
        items.append(
            Item(name=f"cap_{name}", label=share_label("power", name), value=cap.cap_watts, text=text, source=source)
        )
    return Part(id="power", title=say("explain.power"), unit="W", total=None, items=tuple(items))


def _storage(estimate: Estimate) -> Part:
    storage = estimate.storage
    items = tuple(
        Item(
            name=name,
            label=share_label("storage", name),
            value=value,
            text=format_bytes(value) + ("/s" if name.endswith("_per_s") else ""),
        )
        for name in (
            *("weights_bytes", "data_bytes", "checkpoints_bytes", "offload_bytes"),
            *("read_bytes_per_s", "feed_bytes_per_s"),
        )
        if (value := getattr(storage, name)) is not None
    )
    return Part(id="storage", title=say("explain.storage"), unit="B", total=None, items=items)


_MOST_CONSTANTS: Final = 8


def _constants(estimate: Estimate) -> Part:
    """Return the calibrated constants that a training plan hangs on most, with what they rest on."""
    items: tuple[Item, ...] = ()
    if isinstance(estimate.candidate.workload, Training):
        from tonnage.plan.leverage import leverage_of  # noqa: PLC0415  serving has constants of its own

        items = tuple(
            Item(
                name=one.name,
                label=one.name,
                value=one.value,
                text=say(
                    "explain.constant",
                    value=f"{one.value:.4g}",
                    low=f"{one.low:g}",
                    high=f"{one.high:g}",
                    memory=f"{100 * one.memory_ratio:.0f}",
                    time=f"{100 * one.time_ratio:.0f}",
                ),
                meaning=one.meaning,
                source=say(
                    "explain.evidence", rows=one.num_rows, sources=", ".join(one.sources) or "-", basis=one.basis
                ),
            )
            for one in leverage_of(estimate.candidate)[:_MOST_CONSTANTS]
        )
    return Part(id="constants", title=say("explain.constants"), unit="", total=None, items=items)


def explanation_object(explanation: Explanation) -> dict[str, Any]:
    """Return the object that `tonnage explain --json` prints."""
    from tonnage.plan.report import plan_object  # noqa: PLC0415  only --json needs it

    return {
        "title": explanation.title,
        "parts": [
            {
                "id": part.id,
                "unit": part.unit or None,
                "total": None
                if part.total is None
                else {"best": part.total.best, "low": part.total.low, "high": part.total.high},
                "capacity": part.capacity,
                "items": [
                    {
                        "name": item.name,
                        "value": item.value,
                        "share_ratio": item.share,
                        "formula": item.formula or None,
                        "meaning": item.meaning or None,
                        "source": item.source or None,
                        "detail": item.detail or None,
                    }
                    for item in part.items
                ],
            }
            for part in explanation.parts
        ],
        "assumptions": list(explanation.assumptions),
        "warnings": list(explanation.warnings),
        "sources": list(explanation.sources),
        "plan": plan_object(explanation.plan),
    }
