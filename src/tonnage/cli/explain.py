"""`tonnage explain`: where every byte, second and coin of a plan goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tonnage.cli.options import common, emit_json, note, put_text
from tonnage.messages import say

if TYPE_CHECKING:
    from tonnage.plan.explain import Explanation, Item, Part


@click.command("explain")
@click.argument("path", metavar="PLAN")
@click.option("--html", metavar="FILE", help="Write a page that needs nothing beside itself; - prints it.")
@common
def command(path: str, html: str | None, is_json: bool, is_quiet: bool) -> None:
    """Show where every byte, second and coin of a plan goes, with formula and source.

    PLAN is a file that `tonnage plan -o` wrote, or - for standard input.

    \b
    tonnage plan Qwen/Qwen3.5-27B --gpu rtx-4090 -o plan.toml
    tonnage explain plan.toml
    tonnage explain plan.toml --html plan.html
    """
    from tonnage import api
    from tonnage.cli.plan import read_text
    from tonnage.errors import RequestError
    from tonnage.plan.file import LARGEST_BYTES

    explanation = api.explain(api.read_plan(read_text(path, LARGEST_BYTES), path))
    if html is not None:
        if is_json and html == "-":
            raise RequestError(
                "--html - and --json both write there", where="standard output", fix="leave out one of them"
            )
        _write(explanation, html, is_quiet=is_quiet)
    if is_json:
        from tonnage.plan.explain import explanation_object

        emit_json(explanation_object(explanation))
    elif html is None:
        print("\n".join(to_lines(explanation)))


def _write(explanation: Explanation, path: str, *, is_quiet: bool) -> None:
    from tonnage.plan.page import write_page

    if put_text(path, write_page(explanation)):
        note(say("explain.written", path=path), is_quiet=is_quiet)


def to_lines(explanation: Explanation) -> list[str]:
    """Return what a person reads."""
    from tonnage.cli.tables import style, wrap
    from tonnage.plan.request import command as written

    lines = [style(explanation.title, "bold"), say("explain.request", command=written(explanation.plan.request)), ""]
    for part in explanation.parts:
        lines += [*_part(part), ""]
    for name in ("assumptions", "warnings", "sources"):
        texts = getattr(explanation, name)
        if texts:
            lines += [say(f"explain.{name}"), *(line for text in texts for line in wrap(text, indent="  ")), ""]
    return lines[:-1]


def _part(part: Part) -> list[str]:
    from tonnage.cli.tables import style, table, wrap

    lines = [style(part.title, "bold")]
    if part.total is not None:
        lines += [f"  {text}" for text in _totals(part)]
    rows = [(item.label, item.text, _share(item), item.meaning) for item in part.items]
    header = tuple(say(f"explain.col_{name}") for name in ("item", "value", "share", "meaning"))
    if not any(share or meaning for _, _, share, meaning in rows):
        lines += table(("", ""), [row[:2] for row in rows], right=(), indent="  ")[1:]
    else:
        lines += table(header, rows, right=(1, 2), indent="  ")
    by_source: dict[str, list[str]] = {}
    for item in part.items:
        known = by_source.setdefault(item.source, [])
        if item.formula and item.formula not in known:
            known.append(item.formula)
    for source, formulas in by_source.items():
        text = say("explain.formula", formula=", ".join(formulas)) if formulas else ""
        text += ("; " if text and source else "") + (say("explain.source", source=source) if source else "")
        lines += [style(line, "dim") for line in wrap(text, indent="    ")]
    return lines


def _totals(part: Part) -> list[str]:
    from tonnage.units import format_bytes, format_seconds

    total = part.total
    if total is None:
        return []

    def written(value: float) -> str:
        return format_bytes(value, 2) if part.unit == "B" else format_seconds(value)

    lines = [say("explain.interval", best=written(total.best), low=written(total.low), high=written(total.high))]
    if part.capacity is not None:
        left = part.capacity - total.best
        used, capacity = written(total.best), written(part.capacity)
        lines.append(
            say("explain.of", used=used, capacity=capacity, free=written(left))
            if left >= 0
            else say("explain.over", used=used, capacity=capacity, short=written(-left))
        )
    return lines


def _share(item: Item) -> str:
    return "" if item.share is None else f"{100 * item.share:.1f} %"
