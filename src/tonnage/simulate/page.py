"""A simulation as one HTML page with its charts, that needs nothing beside itself."""

from __future__ import annotations

from html import escape
from typing import TypeVar

from tonnage.messages import say
from tonnage.plan.charts import Line, lines
from tonnage.plan.page import framed
from tonnage.simulate.ask import JobAnswer, LoadAnswer

_MOST_POINTS = 2000
Row = TypeVar("Row")

__all__ = ["job_page", "load_page"]


def load_page(title: str, text: list[str], answer: LoadAnswer) -> str:
    """Return the page of a load.

    Parameters
    ----------
    title : str
        What was simulated.
    text : list of str
        The lines of the terminal's answer.
    answer : LoadAnswer
        What came of it.

    Returns
    -------
    str
        HTML; every text is escaped.
    """
    charts = []
    if len(answer.rates) > 1:
        found = [
            Line(
                label=say(f"simulate.line_{name}"),
                points=tuple((one.requests_per_s, getattr(one.run, name).p99 or 0.0) for one in answer.rates),
            )
            for name in ("ttft", "e2e")
        ]
        charts.append(lines(say("simulate.chart_rate"), found, say("simulate.axis_rate"), say("simulate.axis_seconds")))
    at = answer.winner if answer.winner is not None else 0
    if answer.scaled:
        series = _thin(answer.scaled[at].run.series)
        found = [
            Line(
                label=say(f"simulate.line_{name}"),
                points=tuple((float(row[0]), float(row[place])) for row in series),
                is_step=place == 1,
            )
            for place, name in ((1, "replicas"), (2, "waiting"), (3, "running"))
        ]
        charts.append(lines(say("simulate.chart_series"), found, say("simulate.axis_time"), say("simulate.axis_count")))
    return _page(title, text, charts)


def job_page(title: str, text: list[str], answer: JobAnswer) -> str:
    """Return the page of a job on machines that come and go.

    Parameters
    ----------
    title : str
        What was simulated.
    text : list of str
        The lines of the terminal's answer.
    answer : JobAnswer
        What came of it.

    Returns
    -------
    str
        HTML; every text is escaped.
    """
    found = [
        Line(label=say(f"simulate.{one.fallback}"), points=tuple(_thin(one.runs[0].progress)))
        for one in answer.tries
        if one.runs and one.runs[0].is_finished
    ]
    chart = lines(say("simulate.chart_progress"), found, say("simulate.axis_time"), say("simulate.axis_done"))
    return _page(title, text, [chart])


def _page(title: str, text: list[str], charts: list[str]) -> str:
    body = "\n".join(escape(line) for line in text)
    return framed(
        title, f"<h1>{escape(title)}</h1>\n<pre>{body}</pre>\n" + "\n".join(chart for chart in charts if chart)
    )


def _thin(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Keep as many points as a chart shows, the last among them."""
    if len(rows) <= _MOST_POINTS:
        return rows
    step = len(rows) // _MOST_POINTS + 1
    return (*rows[::step], rows[-1])
