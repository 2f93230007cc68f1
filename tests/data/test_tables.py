"""Facts are rows: every table has a schema beside it, every value keeps it, every source can be looked up."""

from __future__ import annotations

import csv
import datetime as dt
import re
import warnings
from pathlib import Path

import pytest

import tonnage
from tonnage import datafiles

DATA = Path(tonnage.__file__).parent / "data"
TABLES = sorted(
    str(path.relative_to(DATA))
    for path in (
        *DATA.glob("hardware/*.csv"),
        *DATA.glob("prices/*.csv"),
        *DATA.glob("efficiency/*.csv"),
        *DATA.glob("assumptions/*.csv"),
        *DATA.glob("traces/*.csv"),
        DATA / "sources.csv",
    )
    if not path.name.endswith(".schema.csv")
)
SLUG = re.compile(r"[a-z0-9][a-z0-9.-]*")
DAY = re.compile(r"20[12]\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])")
SOURCES = {row["key"] for row in datafiles.rows("sources.csv")}
OLDEST_PRICE_DAYS = 365


def schema_of(table: str) -> list[dict[str, str]]:
    return list(datafiles.rows(table.removesuffix(".csv") + ".schema.csv"))


def key_column(table: str) -> set[str]:
    rows = datafiles.rows(table)
    return {next(iter(row.values())) for row in rows}


def fault(value: str, column: dict[str, str]) -> str:
    """Return what is wrong with a value by its column's schema, "" where nothing is."""
    kind = column["type"]
    if not value:
        return "is missing" if column["required"] == "yes" else ""
    if kind in ("number", "count"):
        if not re.fullmatch(r"\d+(\.\d+)?", value) or (kind == "count" and "." in value):
            return "is not a number"
        if column["min"] and float(value) < float(column["min"]):
            return f"is less than {column['min']}"
        if column["max"] and float(value) > float(column["max"]):
            return f"is more than {column['max']}"
        return ""
    if kind.startswith("one of "):
        return "" if value in kind.removeprefix("one of ").split("|") else f"is not {kind}"
    if kind.startswith("key of "):
        return "" if value in key_column(kind.removeprefix("key of ")) else f"is not a {kind}"
    patterns = {
        "slug": SLUG,
        "day": DAY,
        "month": MONTH,
        "yes or no": re.compile("yes|no"),
        "address": re.compile(r"https://\S+"),
    }
    if kind in patterns:
        return "" if patterns[kind].fullmatch(value) else f"is not a {kind}"
    if kind == "sources":
        unknown = set(value.split()) - SOURCES
        return f"names sources that are not listed: {sorted(unknown)}" if unknown else ""
    assert kind == "text", f"the schema's type {kind} is not known"
    return ""


@pytest.mark.parametrize("table", TABLES)
def test_a_table_keeps_its_schema(table):
    schema = schema_of(table)
    rows = datafiles.rows(table)
    assert rows
    assert list(rows[0]) == [column["column"] for column in schema]
    found = [
        f"{next(iter(row.values()))}: {column['column']} = {row[column['column']]!r} {wrong}"
        for row in rows
        for column in schema
        if (wrong := fault(row[column["column"]], column))
    ]
    assert found == []


@pytest.mark.parametrize("table", TABLES)
def test_a_schema_is_whole(table):
    for column in schema_of(table):
        assert list(column) == ["column", "type", "unit", "min", "max", "required", "meaning"]
        assert column["meaning"]
        assert column["required"] in ("yes", "no")
        if column["type"] in ("number", "count"):
            assert column["unit"]
            assert column["min"]
            assert column["max"]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_plain(table):
    text = datafiles.text(table)
    assert text.endswith("\n")
    assert "\r" not in text
    assert "\t" not in text
    width = len(next(csv.reader([text.splitlines()[0]])))
    assert {len(row) for row in csv.reader(text.splitlines())} == {width}


@pytest.mark.parametrize("table", ["hardware/gpus.csv", "hardware/links.csv", "hardware/rate_rules.csv", "sources.csv"])
def test_names_are_unique(table):
    rows = datafiles.rows(table)
    assert len(key_column(table)) == len(rows)


def test_every_source_is_used():
    used = {
        key
        for path in DATA.rglob("*.csv")
        for row in csv.DictReader(path.read_text("utf-8").splitlines())
        for column in ("source", "memory_source")
        for key in row.get(column, "").split()
    }
    assert SOURCES - used == set()


def test_sources_are_public():
    for row in datafiles.rows("sources.csv"):
        assert row["address"] or row["licence"] == "own work", row["key"]
        assert not re.search(r"\bFS \d|\bG\(C\)|general knowledge|memory$", row["title"])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("memory_mib", "16"),  # a 16 typed for the driver's figure
        ("memory_gb", "17179869184"),
        ("bandwidth_gb_s", "0.717"),
        ("fp16_tflops", "97500"),
        ("source", ""),
        ("source", "FS 59148300470"),
        ("form_factor", "SXM"),
        ("is_unofficial", "maybe"),
        ("launch_day", "20.9.2022"),
        ("export_variant_of", "rtx-9999"),
        ("slug", "RTX 4080"),
    ],
)
def test_a_planted_fault_is_found(column, value):
    schema = {c["column"]: c for c in schema_of("hardware/gpus.csv")}
    assert fault(value, schema[column])


def test_prices_are_dated_and_age_is_said():
    """Old prices are worth a warning, not a failure: a checkout stays green when nobody touches it."""
    today = dt.datetime.now(tz=dt.UTC).date()
    months = {row["month"] for table in ("prices/rent.csv", "prices/buy.csv") for row in datafiles.rows(table)}
    old = [m for m in months if (today - dt.date.fromisoformat(f"{m}-01")).days > OLDEST_PRICE_DAYS]
    if old:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(f"prices of {', '.join(sorted(old))} are more than a year old", stacklevel=1)
    assert all(MONTH.fullmatch(m) for m in months)
