"""A person's own table: read strictly, written so that it reads back and no spreadsheet runs it."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import BadFileError
from tonnage.hardware.currency import reference_rates
from tonnage.hardware.price_tables import (
    COLUMNS,
    PriceTable,
    joined,
    provider_name,
    read_table,
    safe_cell,
    without_providers,
    write_table,
)
from tonnage.hardware.types import Offer


def read(text: str) -> PriceTable:
    return read_table(text, "mine.csv", reference_rates(), "2026-11-30")


def test_a_gpu_and_a_price_are_enough():
    (price,) = read("gpu,price\n4090,1500\n").purchases
    assert (price.device, price.usd, price.kind, price.day) == ("rtx-4090", 1500.0, "own", "2026-11-30")


def test_currencies_in_a_column_or_in_the_price():
    table = read('gpu,price,currency\n4090,14000,CNY\n5090,"20,000 cny",\n')
    per_usd = 7.9989 / 1.1761
    assert [p.usd for p in table.purchases] == [pytest.approx(14_000 / per_usd), pytest.approx(20_000 / per_usd)]


def test_a_rate_counts_for_the_rows_after_it():
    table = read("kind,gpu,price,currency\nrate,,7,CNY\nbuy,4090,14000,CNY\n")
    assert table.purchases[0].usd == pytest.approx(2000)
    assert table.rates["CNY"].per_usd == 7


def test_rent_and_spot_of_one_machine_are_one_offer():
    table = read(
        "kind,gpu,price,num_gpus,provider,instance\nrent,h100-sxm5,24,8,Mine Inc,big\nspot,h100-sxm5,8,8,Mine Inc,big\n"
    )
    (offer,) = table.offers
    assert (offer.provider, offer.num_devices) == ("mine-inc", 8)
    assert (offer.usd_per_device_hour, offer.spot_usd_per_device_hour) == (3.0, 1.0)


def test_a_spot_price_of_zero_is_left_out():
    table = read("kind,gpu,price\nspot,4090,0\nrent,4090,0.4\n")
    assert table.num_left_out == 1
    assert table.offers[0].spot_usd_per_device_hour is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no table"),
        ("gpu,cost\n4090,1\n", "'cost'"),
        ("gpu\n4090\n", "no table"),
        ("gpu,price,price\n4090,1,2\n", "no table"),
        ("gpu,price\n4090\n", "line 2"),
        ("gpu,price\n4090,1,2\n", "line 2"),
        ("gpu,price\n4090,\n", "line 2.*no price"),
        ("gpu,price\n4090,-5\n", "line 2.*no price"),
        ("gpu,price\n4090,1e3\n", "line 2.*no price"),
        ("gpu,price\n4090,nan\n", "line 2.*no price"),
        ("gpu,price\n4090,99999999999\n", "line 2.*no price"),
        ("gpu,price\n4090,0\n", "line 2.*price of 0"),
        ("gpu,price\nok,5\n", "line 2.*'ok'"),
        ("gpu,price\n4090,1\nrtx 9999,5\n", "line 3.*9999"),
        ("gpu,price,currency\n4090,5,XAU\n", "line 2.*XAU"),
        ("gpu,price,currency\n4090,5 EUR,CNY\n", "two currencies"),
        ("gpu,price,currency\n4090,5,yuan!\n", "no currency"),
        ("gpu,price,kind\n4090,5,lease\n", "'lease'"),
        ("gpu,price,kind,num_gpus\n4090,5,rent,0\n", "number of devices"),
        ("gpu,price,kind,num_gpus\n4090,5,rent,65\n", "number of devices"),
        ("gpu,price,day\n4090,5,30.11.2026\n", "'30.11.2026'"),
        ('gpu,price\n"4090,1\n', "line"),
        ("gpu,price\n" + "x" * 300 + ",1\n", "too long"),
    ],
)
def test_faults_name_the_line(text, fault):
    with pytest.raises(BadFileError, match=fault) as caught:
        read(text)
    assert caught.value.where == "mine.csv"
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_and_empty_lines_are_fine():
    assert len(read("\ufeffgpu,price\n\n4090,5\n,\n").purchases) == 1


def test_no_cell_is_a_formula():
    offer = Offer(
        device="rtx-4090", provider="own", region='=HYPERLINK("http://x")', num_devices=1, usd_per_device_hour=1.0,
        spot_usd_per_device_hour=None, day="2026-11-30", source="@SUM(1)", instance="+1-1",
    )  # fmt: skip
    text = write_table(PriceTable(offers=(offer,)))
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert read(text).offers == (offer,)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=40).map(str.strip))
def test_any_text_survives_unless_it_looks_escaped(text):
    cell = safe_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "|", "%"))
    offer = Offer(
        device="rtx-4090", provider="own", region=text, num_devices=1, usd_per_device_hour=1.0,
        spot_usd_per_device_hour=None, day="2026-11-30", source="own",
    )  # fmt: skip
    (again,) = read(write_table(PriceTable(offers=(offer,)))).offers
    assert again.region == text or (text.startswith("'") and again.region == text[1:].strip())


def test_a_table_reads_back():
    text = "kind,gpu,price,currency,num_gpus,provider,instance,region,day,source\n"
    text += "buy,rtx-4090,1500,USD,1,,,,2026-11-01,shop\nrate,,7.1,CNY,,,,,2026-11-02,bank\n"
    text += "rent,h100-sxm5,24.5,USD,8,mine,big,here,2026-11,me\nspot,h100-sxm5,8.5,USD,8,mine,big,here,2026-11,me\n"
    table = read(text)
    again = read(write_table(table))
    assert write_table(again) == write_table(table)
    assert write_table(table).splitlines()[0] == ",".join(COLUMNS)
    assert again.offers == table.offers
    assert again.purchases == table.purchases
    assert again.rates["CNY"] == table.rates["CNY"]


def test_newer_prices_take_the_place_of_the_same():
    old = read("kind,gpu,price,provider\nbuy,4090,1500,\nbuy,5090,2500,\nrent,4090,1,a\nrent,4090,2,b\n")
    new = read("kind,gpu,price,provider\nbuy,4090,1400,\nrent,4090,0.9,a\n")
    both = joined(old, new)
    assert sorted((p.device, p.usd) for p in both.purchases) == [("rtx-4090", 1400.0), ("rtx-5090", 2500.0)]
    assert sorted((o.provider, o.usd_per_device_hour) for o in both.offers) == [("a", 0.9), ("b", 2.0)]
    assert [o.provider for o in without_providers(both, ["a"]).offers] == ["b"]


def test_providers_go_by_one_name():
    assert [provider_name(n) for n in ("LambdaLabs", "vastai", "My Cloud!", "")] == [
        "lambda",
        "vast",
        "my-cloud",
        "own",
    ]
