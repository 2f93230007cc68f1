"""An explanation as one HTML page that needs nothing beside itself: no script, no font, no network."""

from __future__ import annotations

from html import escape
from typing import Final

from tonnage import __version__
from tonnage.messages import language, say
from tonnage.plan.charts import Bar, colour, waterfall
from tonnage.plan.explain import Explanation, Item, Part
from tonnage.plan.request import command
from tonnage.units import format_bytes, format_seconds

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
code { font-family: ui-monospace, monospace; font-size: .9em; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem; vertical-align: top; }
tr + tr td { border-top: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.small { font-size: .85em; opacity: .75; } .key { display: inline-block; width: .8em; height: .8em; border-radius: .2em; }
svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 12px; } svg .value { opacity: .8; }
svg .grid { stroke: currentColor; opacity: .18; } svg .limit { stroke: #e15759; stroke-width: 2; }
svg .frame { fill: none; stroke: currentColor; opacity: .35; } svg .front { fill: none; stroke: #f28e2b; stroke-width: 2; }
svg .other { fill: none; stroke: currentColor; opacity: .45; } svg .best { fill: #f28e2b; } svg .plan { fill: #4e79a7; }
svg text.rank { fill: #fff; font-weight: 600; }
"""


def write_page(explanation: Explanation) -> str:
    """Return the whole page.

    Parameters
    ----------
    explanation : Explanation
        Of any plan; every text in it is escaped.

    Returns
    -------
    str
        HTML.
    """
    asked = say("explain.request", command=command(explanation.plan.request))
    head = f"<h1>{escape(explanation.title)}</h1>\n<p><code>{escape(asked)}</code></p>"
    return framed(explanation.title, f"{head}\n{parts_of(explanation)}")


def parts_of(explanation: Explanation) -> str:
    """Return an explanation's parts and lists as HTML, without a page around them."""
    parts = [_part(part) for part in explanation.parts]
    lists = [_list(name, getattr(explanation, name)) for name in ("assumptions", "warnings", "sources")]
    return "\n".join((*parts, *lists))


def framed(title: str, body: str) -> str:
    """Return a page around a body of HTML; the title is escaped here."""
    return f"""<!doctype html>
<html lang="{language()}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tonnage {__version__}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _list(name: str, texts: tuple[str, ...]) -> str:
    if not texts:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<h2>{escape(say(f'explain.{name}'))}</h2>\n<ul>{items}</ul>"


def _size(value: float, unit: str) -> str:
    return format_bytes(value, 2) if unit == "B" else format_seconds(value)


def _part(part: Part) -> str:
    head = f"<h2>{escape(part.title)}</h2>"
    if part.total is not None:
        best, low, high = (_size(v, part.unit) for v in (part.total.best, part.total.low, part.total.high))
        head += f"<p>{escape(say('explain.interval', best=best, low=low, high=high))}{_room(part)}</p>{_bar(part)}"
    rows = "\n".join(_row(item, place, has_key=part.total is not None) for place, item in enumerate(part.items))
    return f"{head}\n<table>{rows}</table>"


def _room(part: Part) -> str:
    if part.capacity is None or part.total is None:
        return ""
    left = part.capacity - part.total.best
    values = {"used": _size(part.total.best, part.unit), "capacity": _size(part.capacity, part.unit)}
    text = (
        say("explain.of", free=_size(left, part.unit), **values)
        if left >= 0
        else say("explain.over", short=_size(-left, part.unit), **values)
    )
    return f" · {escape(text)}"


def _bar(part: Part) -> str:
    """Draw the shares, each beginning where the one before ends, and where the capacity ends."""
    if part.total is None or not part.total.best:
        return ""
    bars = [Bar(label=item.label, value=item.value, text=item.text) for item in part.items]
    limit = "" if part.capacity is None else _size(part.capacity, part.unit)
    return waterfall(part.title, bars, part.total.best, part.capacity, limit)


def _row(item: Item, place: int, *, has_key: bool) -> str:
    key = f'<span class="key" style="background:{colour(place)}"></span> ' if has_key else ""
    share = "" if item.share is None else f"{100 * item.share:.1f} %"
    words = [escape(item.meaning)] if item.meaning else []
    words += [f"<code>{escape(item.formula)}</code>"] if item.formula else []
    words += [escape(item.source)] if item.source else []
    return (
        f"<tr><td>{key}{escape(item.label)}</td>"
        f'<td class="number">{escape(item.text)}</td><td class="number">{share}</td>'
        f'<td class="small">{"<br>".join(words)}</td></tr>'
    )
