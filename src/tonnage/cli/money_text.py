"""Money as a person reads it: what each plan costs to rent, to buy and to own, and what the prices rest on."""

from __future__ import annotations

from tonnage.cli.tables import style, table, wrap
from tonnage.estimate.types import Cost, Interval
from tonnage.messages import say
from tonnage.plan.coin import Coin, coin_of, number
from tonnage.plan.routes import million_usd
from tonnage.plan.types import Answer, Plan, Route
from tonnage.units import format_seconds

_COLUMNS = 100
_MOST_UNPRICED = 12


def spread(interval: Interval | None, coin: Coin) -> str:
    """Write dollars in a currency with their interval; a dash where they are not known."""
    if interval is None:
        return "-"
    best, low, high = (number(value, coin) for value in (interval.best, interval.low, interval.high))
    return best if interval.low == interval.high else f"{best} ({low}–{high})"


def money_lines(answer: Answer) -> list[str]:
    """Return what the plans cost and whose prices they are; nothing where prices do not decide."""
    if not answer.prices:
        return []
    coin = coin_of(answer.request.limits)
    title = "money.title" if coin.is_dollar else "money.title_in"
    lines = [say(title, code=coin.code, rate=f"{coin.per_usd:.4g}"), *_table(answer.plans, coin)]
    for plan in answer.plans:
        lines += [line for text in _spot(plan) for line in wrap(text, columns=_COLUMNS, indent="  ")]
    lines += [*_routes(answer, coin), *_unpriced(answer, coin)]
    for text in answer.prices:
        lines += [style(line, "dim") for line in wrap(text, columns=_COLUMNS, indent="  ")]
    return [*lines, ""]


def _routes(answer: Answer, coin: Coin) -> list[str]:
    """Return the ways side by side, and below them what stands against each."""
    if not answer.routes:
        return []
    names = ["way", "gpu", "rate", "buy", "buy_usd", "rent", "million"]
    rows = [{"way": say(f"money.way_{route.way}"), **_route(route, coin)} for route in answer.routes]
    if coin.is_dollar:
        names.remove("buy_usd")
    rows = [[row[name] for name in names] for row in rows]
    lines = ["", say("money.routes"), *table([say(f"money.col_{name}") for name in names], rows, indent="  ")]
    for route in answer.routes:
        for text in route.flags:
            told = say("money.of_way", way=say(f"money.way_{route.way}"), text=text)
            lines += wrap(told, columns=_COLUMNS, indent="  ")
    for place, text in enumerate(answer.stages):
        lines += wrap(text, columns=_COLUMNS, indent="    " if place else "  ")
    return [*lines, ""]


def _route(route: Route, coin: Coin) -> dict[str, str]:
    estimate = route.estimate
    if estimate is None:
        return dict.fromkeys(("gpu", "rate", "buy", "buy_usd", "rent", "million"), "-")
    cluster, rate = estimate.candidate.cluster, estimate.performance.tokens_per_s
    return {
        "gpu": f"{cluster.num_devices} x {cluster.node.devices[0].slug}",
        "rate": "-" if rate is None else f"{rate.best:,.0f}",
        "buy": spread(estimate.cost.purchase_usd, coin),
        "buy_usd": _dollars(estimate.cost),
        "rent": spread(estimate.cost.usd_per_hour, coin),
        "million": spread(million_usd(estimate, route.way), coin),
    }


def _dollars(cost: Cost) -> str:
    return "-" if cost.purchase_usd is None else number(cost.purchase_usd.best, Coin())


def _unpriced(answer: Answer, coin: Coin) -> list[str]:
    if not answer.unpriced:
        return []
    shown = answer.unpriced[:_MOST_UNPRICED]
    listed = ", ".join(f"{one.num_gpus} x {one.gpu} {number(one.fits_below_usd, coin)}" for one in shown)
    if len(answer.unpriced) > len(shown):
        listed = say("money.more", list=listed, num=len(answer.unpriced) - len(shown))
    return [say("money.unpriced", code=coin.code), *wrap(listed, columns=_COLUMNS, indent="  "), ""]


def _table(plans: tuple[Plan, ...], coin: Coin) -> list[str]:
    """Return a row a plan; columns that no plan has a figure for are left out."""
    rows = [{"rank": str(plan.rank), **_row(plan.estimate.cost, coin)} for plan in plans]
    names = [name for name in (rows[0] if rows else ()) if any(row[name] != "-" for row in rows)]
    header = [say(f"money.col_{name}") for name in names]
    return table(header, [[row[name] for name in names] for row in rows], indent="  ") if rows else []


def _row(cost: Cost, coin: Coin) -> dict[str, str]:
    own = cost.own
    even = None if own is None else own.break_even_hours
    return {
        "rent": spread(cost.usd_per_hour, coin),
        "million": spread(cost.usd_per_million_tokens, coin),
        "job": spread(cost.usd_total, coin),
        "buy": spread(cost.purchase_usd, coin),
        "buy_usd": "-" if coin.is_dollar else _dollars(cost),
        "own_hour": spread(None if own is None else own.usd_per_hour, coin),
        "own_million": spread(None if own is None else own.usd_per_million_tokens, coin),
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
