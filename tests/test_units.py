"""Quantities are read strictly: a number, a unit, nothing else; whatever is wrong is one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import RequestError
from tonnage.units import format_bytes, parse_bytes, parse_count, parse_seconds, parse_watts

PARSERS = (parse_bytes, parse_count, parse_seconds, parse_watts)
TEXT = st.text(max_size=50) | st.text("0123456789.,_-+eEkKmMgGtTiIbBsdhwWµ%/$`;|& ", max_size=20)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=TEXT)
def test_any_text_is_a_quantity_above_zero_or_one_line(parse, text):
    try:
        value = parse(text)
    except RequestError as error:
        assert "\n" not in str(error)
    else:
        assert 0 < value < float("inf")


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text", ["0", "0 GiB", "-1 GiB", "", " ", "GiB", "1e999 GiB", "nan", "inf s", "1 parsec", "9" * 99, "1\n2 GiB"]
)
def test_what_is_no_quantity_is_refused(parse, text):
    with pytest.raises(RequestError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16 GiB", 2**34),
        ("24GB", 24 * 10**9),
        ("1.5 tib", 3 << 39),
        ("512 mib", 2**29),
        ("1_000 B", 1000),
        ("80,000 MB", 8 * 10**10),
    ],
)
def test_sizes(text, value):
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["16", "16 G", "16 Gb/s", "16GiBs"])
def test_a_size_needs_its_unit(text):
    with pytest.raises(RequestError, match="GiB"):
        parse_bytes(text)


@given(st.integers(1, 2**60))
def test_a_size_that_was_written_reads_back(value):
    assert parse_bytes(format_bytes(value, 6)) == pytest.approx(value, rel=1e-5)
