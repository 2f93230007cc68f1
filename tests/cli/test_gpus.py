"""`tonnage gpus`: lists, sheets side by side, the object scripts rely on, and one line for every mistake."""

from __future__ import annotations

import pytest

from tonnage import datafiles
from tonnage.cli.tables import width
from tonnage.hardware.browse import ORDERS
from tonnage.hardware.catalogue import devices


def flat(text: str) -> str:
    return " ".join(text.split())


def listed(text: str) -> list[str]:
    """Return the names of a list, up to the blank line before the notes."""
    return [line.split()[0] for line in text.partition("\n\n")[0].splitlines()[1:]]


def test_without_words_it_lists_every_device(tonnage):
    answer = tonnage("gpus")
    assert (answer.code, answer.err) == (0, "")
    assert listed(answer.out) == [d.slug for d in devices()]


def test_one_device_is_a_sheet_with_sources_and_addresses(tonnage):
    text = flat(tonnage("gpus", "4080").out)
    for part in (
        "15.99 GiB GDDR6X (sold as 16 GB)", "717 GB/s", "bf16 TFLOPS 97.5", "peer access (PCIe) no", "power 320 W",
        "1,199 (at launch, 2022-09-20)", "vllm", "driver geforce", "CUDA >= 11.8", "the driver blocks peer access",
    ):  # fmt: skip
        assert part in text
    assert "https://github.com/aigc-apps/sd-webui-EasyPhoto/issues/281" in text


def test_unquoted_words_are_one_name(tonnage):
    assert tonnage("gpus", "rtx", "4080").out == tonnage("gpus", "4080").out


def test_several_names_stand_side_by_side(tonnage):
    lines = tonnage("gpus", "4080", "4090", "h200").out.splitlines()
    assert lines[0].split() == ["rtx-4080", "rtx-4090", "h200-sxm5"]
    rows = {line[:18].strip(): line[18:].split() for line in lines if line[:18].strip()}
    assert rows["bandwidth"] == ["717", "GB/s", "1008", "GB/s", "4800", "GB/s"]
    assert rows["per GiB"][:2] != ["-", "-"]
    assert "h200-sxm5: 'h200' is taken for SXM5" in flat("\n".join(lines))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("words", [("ada",), ("4080", "4090", "h200", "m1 max"), ("rtx-4080-32gb-mod",)])
def test_it_fits_the_terminal(tonnage, monkeypatch, words, columns, language):
    monkeypatch.setenv("COLUMNS", str(columns))
    answer = tonnage("gpus", *words, "--lang", language)
    assert answer.code == 0
    unbroken = ("http", "rtx-4080-32gb-mod *")  # an address is not broken; a list keeps name, memory and bandwidth
    wide = [line for line in answer.out.splitlines() if width(line) > max(columns, 50)]
    assert [line for line in wide if not line.strip().partition(": ")[2].startswith(unbroken)] == []
    for slug in ("rtx-4080-32gb-mod",) if words[0] == "ada" else ():
        assert slug in answer.out


def test_a_wide_terminal_shows_more_columns(tonnage, monkeypatch):
    heads = []
    for columns in (60, 100, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        heads.append(tonnage("gpus", "blackwell").out.splitlines()[0])
    assert len({*heads}) == 3
    assert "architecture" in heads[2]
    assert "architecture" not in heads[1]


def test_chinese(tonnage):
    text = tonnage("gpus", "4080", "--lang", "zh").out
    for word in ("显存", "带宽", "功耗", "首发价", "来源：", "每 GiB", "标称 16 GB"):
        assert word in text
    assert "memory" not in text.partition("https")[0]


def test_json_is_one_object_in_base_units(tonnage):
    answer = tonnage("gpus", "4080", "h100 pcie", "--json")
    assert answer.code == 0
    assert answer.json["schema"] == 1
    first, second = answer.json["gpus"]
    assert first["slug"] == "rtx-4080"
    assert first["memory_bytes"] == 16376 * 2**20
    assert first["bandwidth_bytes_per_s"] == 717e9
    assert first["flop_per_s"]["bf16"] == pytest.approx(97.48e12)
    assert first["flop_per_s"]["fp4"] is None
    assert first["has_nvlink"] is first["has_p2p"] is first["has_ecc"] is False
    assert second["has_ecc"] is True
    price = first["prices"][0]
    assert price["usd"] / first["memory_bytes"] == pytest.approx(price["usd_per_byte"])
    assert price["usd"] / 97.48e12 == pytest.approx(price["usd_per_flop_per_s"])
    assert price["usd"] / 717e9 == pytest.approx(price["usd_per_byte_per_s"])
    assert price["day"] == "2022-09-20"
    assert all(s["title"] and s["address"].startswith("https://") for s in first["sources"] + price["source"])
    assert "fit" not in first


def test_json_of_all_has_the_same_keys_everywhere(tonnage):
    gpus = tonnage("gpus", "--json").json["gpus"]
    assert len(gpus) == len(devices())
    assert len({tuple(gpu) for gpu in gpus}) == 1
    sources = {row["key"] for row in datafiles.rows("sources.csv")}
    for gpu in gpus:
        assert gpu["sources"], gpu["slug"]
        assert {s["key"] for s in gpu["sources"]} <= sources
        for price in gpu["prices"]:
            assert price["day"], gpu["slug"]
            assert price["source"], gpu["slug"]


def test_unknown_stays_unknown(tonnage):
    gpu = tonnage("gpus", "m2 ultra", "--json").json["gpus"][0]
    assert gpu["prices"] == []
    assert gpu["flop_per_s"]["fp8"] is None
    assert gpu["ecosystem"]["min_cuda"] is None
    assert gpu["unified_memory_bytes"] > gpu["memory_bytes"]


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_sorts(tonnage, order):
    answer = tonnage("gpus", "--sort", order, "--json")
    assert answer.code == 0
    assert {g["slug"] for g in answer.json["gpus"]} == {d.slug for d in devices()}


def test_sorted_lists_begin_with_the_best(tonnage):
    gpus = tonnage("gpus", "--sort", "price-per-gib", "--json").json["gpus"]
    paid = [min((p["usd_per_byte"] for p in g["prices"] if "usd" in p), default=None) for g in gpus]
    known = [p for p in paid if p is not None]
    assert known == sorted(known)
    assert paid[: len(known)] == known
    by_memory = [g["memory_bytes"] for g in tonnage("gpus", "ampere", "--sort", "memory", "--json").json["gpus"]]
    assert by_memory == sorted(by_memory, reverse=True)


def test_makers_and_memory_narrow_the_list(tonnage):
    gpus = tonnage("gpus", "--vendor", "AMD,intel", "--min-memory", "24 GB", "--json").json["gpus"]
    assert {g["vendor"] for g in gpus} == {"AMD", "Intel"}
    assert min(g["memory_bytes"] for g in gpus) >= 22 * 10**9
    assert "rtx-4090" in listed(tonnage("gpus", "ada", "--min-memory", "24GB").out)


def test_a_card_sold_as_24_gb_is_not_lost_to_its_driver(tonnage):
    assert "l4" in listed(tonnage("gpus", "ada", "--min-memory", "24 GB").out)


def test_nothing_left_is_said(tonnage):
    answer = tonnage("gpus", "4080", "--min-memory", "1 TB")
    assert (answer.code, answer.out) == (0, "No accelerator matches.\n")
    assert tonnage("gpus", "4080", "--min-memory", "1 TB", "--json").json["gpus"] == []


def test_unofficial_boards_are_marked(tonnage):
    text = tonnage("gpus", "ada").out
    assert "rtx-4090-48gb-mod *" in text
    assert "no maker's warranty" in flat(text)
    assert "no maker's warranty" in flat(tonnage("gpus", "4090 48gb").out)


def test_whether_a_models_weights_fit(tonnage):
    answer = tonnage("gpus", "4080", "3090", "--model", "Qwen/Qwen3.5-27B", "--json")
    fit = answer.json["gpus"][0]["fit"]
    assert fit["bf16"] == {"weights_bytes": 2 * 27_356_728_560, "fits": False, "num_devices": 4}
    assert fit["q4_k_m"]["fits"] is True
    shown = tonnage("gpus", "4080", "--model", "Qwen/Qwen3.5-27B")
    assert "weights in q4_k_m" in shown.out
    assert "cache and workspace come on top" in shown.err
    assert tonnage("gpus", "4080", "--model", "Qwen/Qwen3.5-27B", "-q").err == ""


def test_a_list_says_what_fits_too(tonnage):
    text = tonnage("gpus", "ada", "--model", "Qwen/Qwen3.5-27B").out
    assert text.splitlines()[0].split()[:5] == ["name", "GiB", "bf16", "fp8", "q4_k_m"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rtx-4800",), "did you mean"),
        (("4o80",), "rtx-4080"),
        (("4080", "nonsense-gpu"), "nonsense-gpu"),
        (("--sort", "beauty"), "beauty"),
        (("--vendor", "acme"), "not a maker on record"),
        (("--min-memory", "lots"), "--min-memory"),
        (("4080", "--model", "no-such-model-at-all"), "no-such-model-at-all"),
        (("\x1b[31mred",), "no device is named"),
        (("x" * 5000,), "is not the name of a device"),
        (("$(reboot)",), "no device is named"),
        (("4080; rm -rf /",), "no device is named"),
    ],
)
def test_a_mistake_is_one_line(tonnage, arguments, says):
    answer = tonnage("gpus", *arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert len(answer.err) < 500
    assert says in answer.err
    assert answer.err.strip().isprintable()


def test_a_failure_is_an_object_with_json(tonnage):
    answer = tonnage("gpus", "rtx-4800", "--json")
    assert answer.code == 2
    assert set(answer.json["error"]) == {"what", "where", "fix"}
