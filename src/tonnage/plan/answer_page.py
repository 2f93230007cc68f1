"""An answer as one HTML page that needs nothing beside itself: the plans against each other, and the first taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from tonnage.estimate.types import Estimate, Interval
from tonnage.messages import say
from tonnage.plan.charts import Point, scatter
from tonnage.plan.coin import Coin, both, coin_of, number
from tonnage.plan.explain import explain
from tonnage.plan.page import framed, parts_of
from tonnage.plan.request import command
from tonnage.plan.scene import where_it_lives
from tonnage.plan.types import Answer, Plan
from tonnage.search import rank
from tonnage.units import GIB, format_bytes, format_seconds
from tonnage.workload.types import Serving

# What a chart has across: name of the axis, and the figure.
_ACROSS: Final = ("price", "rent", "bits", "memory")


def write_answer_page(answer: Answer, pick: int = 1) -> str:
    """Return the whole page.

    Parameters
    ----------
    answer : Answer
        Of any request; every text in it is escaped.
    pick : int
        Rank of the plan that is taken apart. [1]

    Returns
    -------
    str
        HTML.
    """
    title = say("page.title", model=answer.request.model)
    body = [f"<h1>{escape(title)}</h1>", f"<p><code>{escape(command(answer.request))}</code></p>"]
    if answer.assumptions:
        body.append(
            f'<p class="small">{escape(say("plan.assumed", text=say("plan.comma").join(answer.assumptions)))}</p>'
        )
    if answer.plans:
        body += [_chart(answer), _table(answer)]
        body += _notes(answer)
    body += _changes(answer)
    body += _lost(answer)
    if answer.plans:
        plan = answer.plans[min(pick, len(answer.plans)) - 1]
        body.append(f"<h2>{escape(say('page.apart', rank=plan.rank))}</h2>")
        body.append(parts_of(explain(plan)))
    for name, texts in (("money", answer.prices), ("warnings", answer.warnings)):
        if texts:
            items = "".join(f"<li>{escape(text)}</li>" for text in texts)
            body.append(f"<h2>{escape(say(f'page.{name}'))}</h2><ul class=small>{items}</ul>")
    return framed(title, "\n".join(body))


# -- the chart ---------------------------------------------------------------------------------------------------


def across(answer: Answer) -> str:
    """Return what the plans are compared by beside speed: money where the hardware is open, else bits or memory."""
    limits = answer.request.limits
    every = (*answer.looked, *(plan.estimate for plan in answer.plans))
    if limits.rent is not None and any(one.cost.usd_per_hour for one in every):
        return "rent"
    if answer.request.where.is_open and any(one.cost.purchase_usd for one in every):
        return "price"
    bits = {round(rank.weights_bits(plan.estimate)) for plan in answer.plans}
    return "bits" if isinstance(answer.request.workload, Serving) and len(bits) > 1 else "memory"


def _figure(name: str, estimate: Estimate) -> float:
    """Return a way's figure across, 0 where it is not known."""
    cost = estimate.cost
    interval = {"price": cost.purchase_usd, "rent": cost.usd_per_hour}.get(name)
    if name in ("price", "rent"):
        return 0.0 if interval is None else interval.best
    return rank.weights_bits(estimate) if name == "bits" else estimate.footprint.total.best / GIB


def points(answer: Answer) -> list[Point]:
    """Return every way that is known, the numbered plans among them, and which nothing beats in both respects."""
    name = across(answer)
    ranks = {id(plan.estimate): plan.rank for plan in answer.plans}
    every = {id(one): one for one in (*answer.looked, *answer.front, *(plan.estimate for plan in answer.plans))}
    figures = [(key, _figure(name, one), _rate(one)) for key, one in every.items()]
    known = [(key, x, y) for key, x, y in figures if x > 0 and y > 0]
    more_is_better = name == "bits"

    def is_beaten(x: float, y: float) -> bool:
        return any((a >= x if more_is_better else a <= x) and b >= y and (a != x or b != y) for _, a, b in known)

    return [
        Point(
            x=x,
            y=y,
            title=_name(every[key], ranks.get(key)),
            label=str(ranks[key]) if key in ranks else "",
            is_front=not is_beaten(x, y),
        )
        for key, x, y in known
    ]


def _rate(estimate: Estimate) -> float:
    rate = estimate.performance.tokens_per_s
    return 0.0 if rate is None else rate.best


def _name(estimate: Estimate, place: int | None) -> str:
    candidate = estimate.candidate
    hardware = f"{candidate.cluster.num_devices} x {candidate.cluster.node.devices[0].slug}"
    text = f"{hardware}, {candidate.engine}, {candidate.precision.weights}, {where_it_lives(estimate)}"
    return text if place is None else f"#{place}: {text}"


def _chart(answer: Answer) -> str:
    name = across(answer)
    title = say(f"page.chart_{name}")
    drawn = scatter(title, points(answer), say(f"page.axis_{name}"), say("page.axis_rate"))
    return f"<h2>{escape(title)}</h2>{drawn}<p class=small>{escape(say('page.chart_key'))}</p>" if drawn else ""


# -- the table ---------------------------------------------------------------------------------------------------


def _table(answer: Answer) -> str:
    is_serving = isinstance(answer.request.workload, Serving)
    names = ["rank", "gpu", "engine" if is_serving else "software", "weights", "place", "device", "rate"]
    names += ["ttft"] if is_serving else ["step"]
    names += (
        ["buy", "rent"]
        if any(p.estimate.cost.purchase_usd or p.estimate.cost.usd_per_hour for p in answer.plans)
        else []
    )
    coin = coin_of(answer.request.limits)
    head = "".join(f"<th>{escape(say(f'page.col_{name}'))}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(plan, names, coin)) + "</tr>"
        for plan in answer.plans
    )
    return f"<h2>{escape(say('page.plans'))}</h2><table><tr>{head}</tr>{rows}</table>"


def _cells(plan: Plan, names: list[str], coin: Coin) -> Iterator[str]:
    estimate = plan.estimate
    candidate, held, performance, cost = estimate.candidate, estimate.footprint, estimate.performance, estimate.cost
    cells = {
        "rank": str(plan.rank),
        "gpu": f"{candidate.cluster.num_devices} x {candidate.cluster.node.devices[0].slug}",
        "engine": candidate.engine,
        "software": candidate.engine,
        "weights": candidate.precision.weights,
        "place": plan.kind,
        "device": say("plan.of", used=format_bytes(held.total.best), capacity=format_bytes(held.capacity_bytes)),
        "rate": _written(performance.tokens_per_s),
        "ttft": _seconds(performance.ttft_seconds),
        "step": _seconds(performance.step_seconds),
        "buy": _money(cost.purchase_usd, coin),
        "rent": _money(cost.usd_per_hour, coin),
    }
    return (cells[name] for name in names)


def _written(value: Interval | None) -> str:
    if value is None:
        return "–"
    best, low, high = (f"{v:,.0f}" if v >= 10 else f"{v:.2f}" for v in (value.best, value.low, value.high))
    return best if value.low == value.high else f"{best} ({low} – {high})"


def _money(value: Interval | None, coin: Coin) -> str:
    if value is None:
        return "–"
    bounds = "" if value.low == value.high else f" [{number(value.low, coin)} – {number(value.high, coin)}]"
    return both(value.best, coin) + bounds


def _seconds(value: Interval | None) -> str:
    return "–" if value is None else format_seconds(value.best)


def _notes(answer: Answer) -> Iterator[str]:
    items = [
        f"<li>#{plan.rank}: {escape(say('plan.comma').join((*plan.reasons, *plan.warnings)))}</li>"
        for plan in answer.plans
        if plan.reasons or plan.warnings
    ]
    if items:
        yield f"<ul class=small>{''.join(items)}</ul>"


def _changes(answer: Answer) -> Iterator[str]:
    """Yield what would make it fit, where nothing does, each with its figures and its command."""
    changes = answer.rejections[0].changes if answer.rejections and not answer.plans else ()
    if changes:
        rows = "".join(
            f"<tr><td>{escape(one.what)}</td><td>{escape(format_bytes(one.estimate.footprint.total.best))}</td>"
            f"<td>{escape(_written(one.estimate.performance.tokens_per_s))}</td><td><code>{escape(one.command)}</code></td></tr>"
            for one in changes
        )
        head = "".join(
            f"<th>{escape(say(f'plan.col_{name}'))}</th>" for name in ("change", "device", "rate", "command")
        )
        yield f"<h2>{escape(say('plan.changes'))}</h2><table><tr>{head}</tr>{rows}</table>"


def _lost(answer: Answer) -> Iterator[str]:
    if answer.rejections:
        items = "".join(f"<li>{escape(one.what)}: {escape(one.reason)}</li>" for one in answer.rejections)
        yield f"<h2>{escape(say('plan.lost'))}</h2><ul class=small>{items}</ul>"
