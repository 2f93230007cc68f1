"""An explanation as one HTML page that needs nothing beside itself: no script, no font, no network."""

from __future__ import annotations

from html import escape
from typing import Final

from tonnage import __version__
from tonnage.messages import language, say
from tonnage.plan.explain import Explanation, Item, Part
from tonnage.plan.request import command
from tonnage.units import format_bytes, format_seconds

_COLOURS: Final = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#bab0ac")
_WIDTH: Final = 720
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
code { font-family: ui-monospace, monospace; font-size: .9em; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem; vertical-align: top; }
tr + tr td { border-top: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.small { font-size: .85em; opacity: .75; } .key { display: inline-block; width: .8em; height: .8em; border-radius: .2em; }
svg { width: 100%; height: auto; }
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
    parts = "\n".join(_part(part) for part in explanation.parts)
    lists = "\n".join(_list(name, getattr(explanation, name)) for name in ("assumptions", "warnings", "sources"))
    asked = say("explain.request", command=command(explanation.plan.request))
    return f"""<!doctype html>
<html lang="{language()}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tonnage {__version__}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(explanation.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(explanation.title)}</h1>
<p><code>{escape(asked)}</code></p>
{parts}
{lists}
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
    """Draw the shares beside one another, and where the capacity ends."""
    if part.total is None or not part.total.best:
        return ""
    whole = max(part.total.best, part.capacity or 0.0)
    drawn, x = [], 0.0
    for place, item in enumerate(part.items):
        wide = _WIDTH * item.value / whole
        title = f"{item.label}: {item.text}"
        colour = _COLOURS[place % len(_COLOURS)]
        drawn.append(
            f'<rect x="{x:.2f}" y="6" width="{wide:.2f}" height="28" fill="{colour}"><title>{escape(title)}</title></rect>'
        )
        x += wide
    if part.capacity:
        end = _WIDTH * part.capacity / whole
        drawn.append(f'<line x1="{end:.2f}" x2="{end:.2f}" y1="0" y2="40" stroke="currentColor" stroke-width="2"/>')
    return f'<svg viewBox="0 0 {_WIDTH} 40" role="img" aria-label="{escape(part.title)}">{"".join(drawn)}</svg>'


def _row(item: Item, place: int, *, has_key: bool) -> str:
    key = f'<span class="key" style="background:{_COLOURS[place % len(_COLOURS)]}"></span> ' if has_key else ""
    share = "" if item.share is None else f"{100 * item.share:.1f} %"
    words = [escape(item.meaning)] if item.meaning else []
    words += [f"<code>{escape(item.formula)}</code>"] if item.formula else []
    words += [escape(item.source)] if item.source else []
    return (
        f"<tr><td>{key}{escape(item.label)}</td>"
        f'<td class="number">{escape(item.text)}</td><td class="number">{share}</td>'
        f'<td class="small">{"<br>".join(words)}</td></tr>'
    )
