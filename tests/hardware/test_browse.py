"""Choosing among devices: names, words, limits, orders, and what each is worth."""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.errors import RequestError, UnknownNameError
from tonnage.hardware.browse import named, ordered, select
from tonnage.hardware.catalogue import devices, find_device
from tonnage.hardware.worth import training_dtype, worth


def slugs(found):
    return [d.slug for d in found]


def test_names_keep_the_order_they_are_given_in():
    found, is_exact = named(["4090", "4080", "4090"])
    assert (slugs(found), is_exact) == (["rtx-4090", "rtx-4080"], True)


def test_words_find_every_device_that_has_them():
    found, is_exact = named(["a100"])
    assert not is_exact or len(found) == 1
    assert {"rtx-5090", "b200"} <= set(slugs(named(["blackwell"])[0]))


def test_a_name_that_finds_nothing_is_refused():
    with pytest.raises(UnknownNameError):
        select(["4080", "no such thing"])
    with pytest.raises(UnknownNameError):
        select(vendor="acme")
    with pytest.raises(RequestError):
        ordered(devices(), "beauty")


def test_devices_without_the_figure_come_last():
    found = ordered(devices(), "price")
    has = [any(not w.is_rent for w in worth(d)) for d in found]
    assert has == sorted(has, reverse=True)
    assert True in has
    assert False in has


def test_least_memory_counts_the_size_on_the_box_too():
    assert "rtx-4080" in slugs(select(min_memory_bytes=16 * 2**30))
    assert "rtx-4080" not in slugs(select(min_memory_bytes=17 * 2**30))


def test_a_price_is_divided_by_what_it_buys():
    device = find_device("4090")
    price = worth(device)[0]
    assert price.usd_per_byte == price.usd / device.memory_bytes
    assert price.usd_per_byte_per_s == price.usd / device.bandwidth_bytes_per_s
    assert price.usd_per_flop_per_s == price.usd / device.flop_per_s["bf16"]
    assert all(w.source and w.day for d in devices() for w in worth(d))


def test_hours_are_the_cheapest_on_record():
    kinds = {w.kind: w for w in worth(find_device("h200"))}
    assert kinds["spot"].usd < kinds["rent"].usd < kinds["third-party"].usd


def test_the_type_trained_in():
    assert [training_dtype(find_device(n)) for n in ("4090", "v100", "2080 ti", "gtx 1080 ti")] == [
        "bf16", "fp16", "fp16", "fp16",
    ]  # fmt: skip


def test_the_function_and_the_choice_are_one():
    assert api.find_gpus("4080", order="memory") == select(["4080"], order="memory")
    fits = api.weights_fit(api.read_model("Qwen/Qwen3.5-27B"), api.find_gpus("4080"), ["bf16"])
    fit = fits["rtx-4080"][0]
    assert fit.weights_bytes == 2 * 27_356_728_560
    assert (fit.num_devices - 1) * fit.memory_bytes < fit.weights_bytes <= fit.num_devices * fit.memory_bytes


def test_cost_of_a_5090_d_and_an_a100():
    card, other = (worth(find_device(name))[0] for name in ("5090 D", "A100 PCIe 80GB"))
    assert card.usd_per_flop_per_s
    assert other.usd_per_flop_per_s
    assert card.usd_per_flop_per_s < other.usd_per_flop_per_s
    assert card.usd_per_byte < other.usd_per_byte
    assert card.usd_per_byte_per_s < other.usd_per_byte_per_s
    assert (card.kind, other.kind) == ("launch", "third-party")  # not the same sort of price, and both say so


def test_classes_of_memory():
    sold = {d.sold_as.removesuffix(" GB") for d in devices()}
    assert {"24", "32", "40", "48", "80", "96", "141", "180", "192", "288"} <= sold
    assert {d.slug for d in devices() if "fp4" in d.flop_per_s} >= {"rtx-5090", "b200", "mi355x"}
