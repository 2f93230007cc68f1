"""Charts as SVG that stand in a page without script, font or network, in its light or dark colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from tonnage.nouns import noun

COLOURS: Final = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#bab0ac")
WIDTH: Final = 720
_ROW: Final = 26
_LABELS: Final = 210  # columns of a waterfall that its labels take
_VALUES: Final = 96
_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 74, 20, 16, 46, 380
_FEWEST_TICKS: Final = 3


@noun
class Bar:
    """One step of a waterfall."""

    label: str
    value: float
    text: str


@noun
class Point:
    """One way in a chart of two objectives."""

    x: float
    y: float
    title: str
    label: str = ""  # of a plan that is shown: its rank
    is_front: bool = False


def colour(place: int) -> str:
    """Return the colour of the n-th share."""
    return COLOURS[place % len(COLOURS)]


def waterfall(title: str, bars: Sequence[Bar], total: float, limit: float | None = None, limit_text: str = "") -> str:
    """Return shares that add up to a total, each beginning where the one before ends; a limit as an upright line."""
    whole = max(total, limit or 0.0)
    if not bars or whole <= 0:
        return ""
    room = WIDTH - _LABELS - _VALUES
    drawn: list[str] = []
    x = float(_LABELS)
    for place, bar in enumerate(bars):
        wide, top = room * bar.value / whole, place * _ROW
        drawn.append(
            f'<text x="{_LABELS - 8}" y="{top + 17}" text-anchor="end" class="label">{escape(_short(bar.label))}</text>'
            f'<rect x="{x:.2f}" y="{top + 4}" width="{max(wide, 0.8):.2f}" height="{_ROW - 8}" fill="{colour(place)}">'
            f"<title>{escape(f'{bar.label}: {bar.text}')}</title></rect>"
            f'<text x="{min(x + wide + 6, WIDTH - _VALUES + 4):.2f}" y="{top + 17}" class="value">{escape(bar.text)}</text>'
        )
        x += wide
        if place + 1 < len(bars):
            drawn.append(f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{top + _ROW - 4}" y2="{top + _ROW + 4}" class="grid"/>')
    high = len(bars) * _ROW
    if limit:
        end = _LABELS + room * limit / whole
        drawn.append(
            f'<line x1="{end:.2f}" x2="{end:.2f}" y1="0" y2="{high + 6}" class="limit"/>'
            f'<text x="{end - 6:.2f}" y="{high + 18}" text-anchor="end" class="value">{escape(limit_text)}</text>'
        )
        high += 24
    return _svg(title, high, drawn)


def scatter(title: str, points: Sequence[Point], x_name: str, y_name: str) -> str:
    """Return ways by two objectives on logarithmic axes; what nothing beats is joined and filled, plans are numbered."""
    shown = [point for point in points if point.x > 0 and point.y > 0]
    if not shown:
        return ""
    xs, ys = _range([p.x for p in shown]), _range([p.y for p in shown])
    right, bottom = WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (right - _LEFT) * _share(x, *xs),
            bottom - (bottom - _TOP) * _share(y, *ys),
        )

    drawn = [f'<rect x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}" class="frame"/>']
    for value in _ticks(*xs):
        x, _ = at(value, ys[0])
        drawn.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}" class="grid"/>'
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" class="value">{_tick(value)}</text>'
        )
    for value in _ticks(*ys):
        _, y = at(xs[0], value)
        drawn.append(
            f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" class="value">{_tick(value)}</text>'
        )
    line = [at(p.x, p.y) for p in sorted(shown, key=lambda p: (p.x, p.y)) if p.is_front]
    if len(line) > 1:
        drawn.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in line)}" class="front"/>')
    for point in sorted(shown, key=lambda p: (bool(p.label), p.is_front)):
        x, y = at(point.x, point.y)
        kind = "plan" if point.label else "best" if point.is_front else "other"
        drawn.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{11 if point.label else 4}" class="{kind}">'
            f"<title>{escape(point.title)}</title></circle>"
        )
        if point.label:
            drawn.append(
                f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" class="rank">{escape(point.label)}'
                f"<title>{escape(point.title)}</title></text>"
            )
    drawn.append(
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle" class="label">{escape(x_name)}</text>'
        f'<text transform="translate(14 {(_TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle" class="label">'
        f"{escape(y_name)}</text>"
    )
    return _svg(title, _HEIGHT, drawn)


@noun
class Line:
    """One quantity over another, as points in the order of the first."""

    label: str
    points: tuple[tuple[float, float], ...]
    is_step: bool = False  # stays as it is until the next point


def lines(title: str, drawn_lines: Sequence[Line], x_name: str, y_name: str) -> str:
    """Return lines on plain axes that begin at zero, each in a colour of its own with its label above."""
    shown = [line for line in drawn_lines if line.points]
    if not shown:
        return ""
    most_x = max(x for line in shown for x, _ in line.points) or 1.0
    most_y = max(y for line in shown for _, y in line.points) or 1.0
    right, bottom = WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    top = _TOP + 20

    def at(x: float, y: float) -> str:
        return f"{_LEFT + (right - _LEFT) * x / most_x:.1f},{bottom - (bottom - top) * y / most_y:.1f}"

    drawn = [f'<rect x="{_LEFT}" y="{top}" width="{right - _LEFT}" height="{bottom - top}" class="frame"/>']
    for value in _even(most_x):
        x = at(value, 0.0).split(",")[0]
        drawn.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle" class="value">{_tick(value)}</text>')
    for value in _even(most_y):
        y = float(at(0.0, value).split(",")[1])
        drawn.append(
            f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" class="value">{_tick(value)}</text>'
        )
    for place, line in enumerate(shown):
        points = _stepped(line.points) if line.is_step else line.points
        drawn.append(
            f'<polyline points="{" ".join(at(x, y) for x, y in points)}" fill="none" stroke="{colour(place)}" '
            f'stroke-width="1.8"><title>{escape(line.label)}</title></polyline>'
            f'<rect x="{_LEFT + 170 * place}" y="{_TOP - 4}" width="10" height="10" fill="{colour(place)}"/>'
            f'<text x="{_LEFT + 170 * place + 15}" y="{_TOP + 5}" class="value">{escape(_short(line.label, 24))}</text>'
        )
    drawn.append(
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle" class="label">{escape(x_name)}</text>'
        f'<text transform="translate(14 {(top + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle" class="label">'
        f"{escape(y_name)}</text>"
    )
    return _svg(title, _HEIGHT, drawn)


def _stepped(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found = [points[0]]
    for (x, y), (_, before) in zip(points[1:], points, strict=False):
        found += [(x, before), (x, y)]
    return found


def _even(most: float) -> list[float]:
    """Return round values from zero to a most, at even distances.

    >>> _even(130.0)
    [0.0, 50.0, 100.0]
    """
    step = 10.0 ** math.floor(math.log10(most))
    while most / step < _FEWEST_TICKS - 0.5:
        step /= 2.0
    return [step * place for place in range(int(most / step + 1e-9) + 1)]


def _svg(title: str, height: float, drawn: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg>'


def _short(label: str, most: int = 32) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return where an axis begins and ends: a tenth of its length beyond the values."""
    low, high = min(values), max(values)
    beyond = max((high / low) ** 0.1, 1.1)
    return low / beyond, high * beyond


def _share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)


def _ticks(low: float, high: float) -> list[float]:
    """Return round values inside a range: 1, 2 and 5 of each power of ten, or closer where these are few.

    >>> _ticks(9.0, 130.0)
    [10.0, 20.0, 50.0, 100.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1.0,), (1.0, 2.0, 5.0), tuple(s / 2 for s in range(2, 20)), tuple(s / 10 for s in range(10, 100))):
        found = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(found) >= _FEWEST_TICKS + 1:
            return found[:: max(1, len(found) // 8)]
    return [low, high]


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
