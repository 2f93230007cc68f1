"""Money as a person reads it: what each plan costs to rent, to buy and to own, and what the prices rest on."""

from __future__ import annotations

from tonnage.cli.tables import style, table, wrap
from tonnage.estimate.types import Cost, Interval
from tonnage.messages import say
from tonnage.plan.routes import million_usd
from tonnage.plan.types import Answer, Limits, Plan, Route
from tonnage.units import format_seconds

_COLUMNS = 100
_OWN = "own_currency_"
_MOST_UNPRICED = 12


def usd(value: float) -> str:
    """Write dollars with three significant digits below a hundred, whole above.

    >>> usd(12345.6), usd(17.79), usd(0.0389)
    ('12,346', '17.8', '0.0389')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def own_currency(limits: Limits) -> tuple[str, float] | None:
    """Return the currency that a limit of money was given in, and its units for a dollar; None for dollars."""
    for money in (limits.budget, limits.rent, limits.spend):
        if money is not None and money.currency != "USD" and money.usd:
            return money.currency, money.amount / money.usd
    return None


def in_own(interval: Interval | None, own: tuple[str, float] | None) -> Interval | None:
    """Return an amount in the person's own currency."""
    if interval is None or own is None:
        return None
    return Interval(best=interval.best * own[1], low=interval.low * own[1], high=interval.high * own[1])


def both(usd_amount: float, limits: Limits, *, per: str = "", digits: int = 0) -> str:
    """Write dollars, and beside them the currency that the person spoke of."""
    own = own_currency(limits)
    told = f"{usd_amount:,.{digits}f} USD{per}"
    return told if own is None else f"{told} = {usd_amount * own[1]:,.{digits}f} {own[0]}{per}"


def spread(interval: Interval | None) -> str:
    """Write dollars with their interval; a dash where they are not known."""
    if interval is None:
        return "-"
    if interval.low == interval.high:
        return usd(interval.best)
    return f"{usd(interval.best)} ({usd(interval.low)}–{usd(interval.high)})"


def money_lines(answer: Answer) -> list[str]:
    """Return what the plans cost and whose prices they are; nothing where prices do not decide."""
    if not answer.prices:
        return []
    lines = [say("money.title"), *_table(answer.plans)]
    for plan in answer.plans:
        lines += [line for text in _spot(plan) for line in wrap(text, columns=_COLUMNS, indent="  ")]
    lines += [*_routes(answer), *_unpriced(answer)]
    for text in answer.prices:
        lines += [style(line, "dim") for line in wrap(text, columns=_COLUMNS, indent="  ")]
    return [*lines, ""]


def _routes(answer: Answer) -> list[str]:
    """Return the ways side by side, and below them what stands against each."""
    if not answer.routes:
        return []
    names = ("way", "gpu", "rate", "buy", "rent", "million")
    rows = [[say(f"money.way_{route.way}"), *_route(route)] for route in answer.routes]
    lines = ["", say("money.routes"), *table([say(f"money.col_{name}") for name in names], rows, indent="  ")]
    for route in answer.routes:
        for text in route.flags:
            lines += wrap(f"{say(f'money.way_{route.way}')}: {text}", columns=_COLUMNS, indent="  ")
    for place, text in enumerate(answer.stages):
        lines += wrap(text, columns=_COLUMNS, indent="    " if place else "  ")
    return [*lines, ""]


def _route(route: Route) -> list[str]:
    estimate = route.estimate
    if estimate is None:
        return ["-"] * 5
    cluster, rate = estimate.candidate.cluster, estimate.performance.tokens_per_s
    return [
        f"{cluster.num_devices} x {cluster.node.devices[0].slug}",
        "-" if rate is None else f"{rate.best:,.0f}",
        spread(estimate.cost.purchase_usd),
        spread(estimate.cost.usd_per_hour),
        spread(million_usd(estimate, route.way)),
    ]


def _unpriced(answer: Answer) -> list[str]:
    if not answer.unpriced:
        return []
    shown = answer.unpriced[:_MOST_UNPRICED]
    listed = ", ".join(f"{one.num_gpus} x {one.gpu} {one.fits_below_usd:,.0f}" for one in shown)
    if len(answer.unpriced) > len(shown):
        listed = say("money.more", list=listed, num=len(answer.unpriced) - len(shown))
    return [say("money.unpriced"), *wrap(listed, columns=_COLUMNS, indent="  "), ""]


def _table(plans: tuple[Plan, ...]) -> list[str]:
    """Return a row a plan; columns that no plan has a figure for are left out."""
    own = own_currency(plans[0].request.limits) if plans else None
    rows = [{"rank": str(plan.rank), **_row(plan.estimate.cost), **_own_row(plan.estimate.cost, own)} for plan in plans]
    names = [name for name in (rows[0] if rows else ()) if any(row[name] != "-" for row in rows)]
    header = [
        f"{say(f'money.col_{name.removeprefix(_OWN)}')} [{own[0]}]"
        if own and name.startswith(_OWN)
        else say(f"money.col_{name}")
        for name in names
    ]
    return table(header, [[row[name] for name in names] for row in rows], indent="  ") if rows else []


def _own_row(cost: Cost, own: tuple[str, float] | None) -> dict[str, str]:
    """Return what is rented, bought and spent in the person's own currency; nothing where that is the dollar."""
    amounts = {"rent": cost.usd_per_hour, "buy": cost.purchase_usd, "job": cost.usd_total}
    return {f"{_OWN}{name}": spread(in_own(amount, own)) for name, amount in amounts.items()} if own else {}


def _row(cost: Cost) -> dict[str, str]:
    own = cost.own
    even = None if own is None else own.break_even_hours
    return {
        "rent": spread(cost.usd_per_hour),
        "million": spread(cost.usd_per_million_tokens),
        "job": spread(cost.usd_total),
        "buy": spread(cost.purchase_usd),
        "own_hour": "-" if own is None else spread(own.usd_per_hour),
        "own_million": "-" if own is None else spread(own.usd_per_million_tokens),
        "even": _even(cost, even),
    }


def _even(cost: Cost, even: Interval | None) -> str:
    if even is not None:
        return f"{even.best:,.0f} h"
    return say("money.never") if cost.own is not None and cost.usd_per_hour is not None else "-"


def _spot(plan: Plan) -> list[str]:
    cost, spot = plan.estimate.cost, plan.estimate.cost.spot
    if not cost.is_spot or spot is None:
        return [say("money.no_spot", rank=plan.rank)] if cost.is_spot else []
    said: list[str] = []
    if plan.estimate.performance.job_seconds is not None and spot.held_seconds is None:
        return [say("money.spot_never", rank=plan.rank)]
    if spot.held_seconds is not None and spot.wall_seconds is not None and spot.save_every_seconds is not None:
        said.append(
            say(
                "money.spot_job",
                rank=plan.rank,
                wall=format_seconds(spot.wall_seconds.best),
                latest=format_seconds(spot.wall_seconds.high),
                held=format_seconds(spot.held_seconds.best),
                every=format_seconds(spot.save_every_seconds.best),
            )
        )
    if spot.saved_ratio is not None:
        best, low, high = (round(100 * r) for r in (spot.saved_ratio.best, spot.saved_ratio.low, spot.saved_ratio.high))
        said.append(say("money.spot_saves", rank=plan.rank, best=best, low=low, high=high))
    return said
