"""The figures of the catalogue: a value for one device, rules that hold across families, ecosystem and prices."""

from __future__ import annotations

import pytest

from tonnage.hardware import ecosystem
from tonnage.hardware.catalogue import device, devices, find_device, matrix_flop_per_s
from tonnage.hardware.worth import worth
from tonnage.units import GB, GIB, MIB

ALL = devices()


def test_there_are_devices_of_every_kind():
    assert len(ALL) >= 250
    assert {d.vendor for d in ALL} == {"NVIDIA", "AMD", "Intel", "Apple", "Huawei", "Google", "AWS"}


def test_memory_is_what_the_driver_reports():
    reported = {
        "rtx-4080": 16376, "rtx-4090": 24564, "rtx-5090": 32607, "l4": 23034, "l40s": 46068, "a10": 23028, "t4": 15360,
        "h100-sxm5": 81559, "h200-sxm5": 143771, "b200": 183359, "a100-sxm4-80gb": 81920, "rtx-4090-48gb-mod": 49140,
    }  # fmt: skip
    assert {slug: device(slug).memory_bytes / MIB for slug in reported} == reported
    assert all(device(slug).is_memory_reported for slug in reported)


def test_no_device_holds_more_than_was_sold():
    for d in ALL:
        assert d.memory_bytes <= float(d.sold_as.removesuffix(" GB")) * GIB * 1.045, d.slug


def test_metal_keeps_a_part_of_unified_memory():
    assert find_device("M1 Max 32GB").memory_bytes == pytest.approx(21845 * MIB, rel=1e-4)
    assert find_device("M2 Max 64GB").memory_bytes == 49152 * MIB


@pytest.mark.parametrize("d", [d for d in ALL if d.name.startswith("GeForce RTX")], ids=lambda d: d.slug)
def test_geforce_multiplies_16_bit_at_twice_the_shader_rate(d):
    """With fp32 accumulation; four times on Turing. Half of what professional cards of the same chip do."""
    factor = 4 if d.architecture == "Turing" else 2
    assert d.flop_per_s["fp16"] == pytest.approx(factor * d.flop_per_s["fp32"], rel=0.01)
    if d.architecture == "Turing":
        assert "bf16" not in d.flop_per_s
        assert matrix_flop_per_s(d, "bf16") == d.flop_per_s["fp32"]
    else:
        assert d.flop_per_s["bf16"] == d.flop_per_s["fp16"]
        assert d.flop_per_s["tf32"] == pytest.approx(d.flop_per_s["fp32"], rel=0.01)


@pytest.mark.parametrize(
    ("slug", "dtype", "tera"),
    [
        ("rtx-3090", "bf16", 71.2), ("rtx-4080", "bf16", 97.5), ("rtx-4090", "bf16", 165.2), ("rtx-5090", "bf16", 209.6),
        ("rtx-4090", "fp8", 330.3), ("rtx-3090", "int8", 284.6), ("rtx-5090", "fp4", 1676.8), ("rtx-a6000", "bf16", 154.8),
        ("rtx-6000-ada", "bf16", 364.2), ("rtx-pro-6000-blackwell-ws", "fp8", 1007.6), ("t4", "fp16", 65),
        ("l40", "bf16", 181), ("l40s", "bf16", 362), ("a10g", "bf16", 70), ("a100-sxm4-80gb", "bf16", 312),
        ("h100-sxm5", "bf16", 989), ("h100-sxm5", "fp8", 1979), ("b200", "bf16", 2250), ("mi300x", "bf16", 1307),
        ("rx-7900-xtx", "fp16", 122.8), ("rx-9070-xt", "fp16", 194.6), ("arc-b580", "int8", 233.5),
    ],
)  # fmt: skip
def test_published_rates_are_met(slug, dtype, tera):
    assert device(slug).flop_per_s[dtype] / 1e12 == pytest.approx(tera, rel=0.005)


def test_formats_come_with_the_architecture():
    for d in ALL:
        if d.vendor != "NVIDIA" or not d.compute_capability:
            continue
        capability = float(d.compute_capability)
        assert ("bf16" in d.formats) == (capability >= 8.0), d.slug
        assert ("fp8" in d.formats) == (capability >= 8.9), d.slug
        assert ("fp4" in d.formats) == (capability >= 10.0), d.slug
        for dtype in ("bf16", "fp8", "fp4"):
            assert not (dtype in d.flop_per_s and dtype not in d.formats), d.slug


def test_every_nvidia_device_has_its_software_floor():
    for d in ALL:
        if d.vendor == "NVIDIA":
            assert d.min_cuda, d.slug
            assert d.min_driver_branch, d.slug
    assert device("rtx-5090").min_cuda == "12.8"
    assert device("rtx-5090").min_driver_branch == "R570"
    assert device("v100-sxm2-16gb").max_cuda == "12.x"
    assert device("v100-sxm2-16gb").last_driver_branch == "R580"


def test_engines_follow_the_hardware():
    def names(slug: str) -> set[str]:
        return {s.engine for s in ecosystem.engines(device(slug))}

    assert {"vllm", "sglang", "llama.cpp", "transformers", "ktransformers"} <= names("rtx-4080")
    assert "vllm" not in names("tesla-p40")
    assert "llama.cpp" in names("tesla-p40")
    assert "mlx" in names("m2-ultra")
    assert "tensorrt-llm" not in names("mi300x")
    assert "tensorrt-llm" not in names("t4")
    assert "vllm" in names("rx-7900-xtx")
    assert "vllm" not in names("rx-6700-xt")


def test_unofficial_boards_are_flagged_with_their_risk():
    boards = {d.slug for d in ALL if d.is_unofficial}
    assert boards == {
        "rtx-2080-ti-22gb-mod", "rtx-3080-20gb-mod", "rtx-4080-32gb-mod", "rtx-4090-48gb-mod", "rtx-4090-d-48gb-mod",
        "a100-drive-32gb",
    }  # fmt: skip
    assert all("warranty" in " ".join(ecosystem.risks(device(slug))) for slug in boards)
    assert not any("warranty" in " ".join(ecosystem.risks(d)) for d in ALL if not d.is_unofficial)


def test_nvlink_is_only_where_it_exists():
    has = {d.slug for d in ALL if d.has_nvlink}
    assert not any(d.has_nvlink for d in ALL if d.architecture == "Ada" or d.vendor != "NVIDIA")
    assert {"rtx-3090", "rtx-a6000", "a100-sxm4-80gb", "h100-sxm5", "b200", "rtx-2080-ti", "v100-sxm2-32gb"} <= has
    assert not {"rtx-4090", "rtx-5090", "rtx-3080-10gb", "rtx-a4000", "l40s", "t4", "rtx-pro-6000-blackwell-ws"} & has
    for d in ALL:
        assert (d.nvlink_bytes_per_s is None) == (d.nvlink_generation is None), d.slug
    generation = {"Hopper": "nvlink4", "Blackwell Ultra": "nvlink5", "Volta": "nvlink2"}
    for d in ALL:
        if d.has_nvlink and d.architecture in generation:
            assert d.nvlink_generation == generation[d.architecture], d.slug


def test_geforce_cards_have_no_peer_access_and_no_ecc():
    for d in ALL:
        if d.name.startswith("GeForce"):
            assert d.has_p2p is not True, d.slug
            assert d.has_ecc is False, d.slug


def test_export_variants_are_cut_down():
    for d in ALL:
        if d.export_variant_of:
            original = device(d.export_variant_of)
            cut = [
                (d.nvlink_bytes_per_s or 0) < (original.nvlink_bytes_per_s or 0),
                d.flop_per_s["bf16"] < original.flop_per_s["bf16"],
                (d.flop_per_s.get("fp4") or 0) < (original.flop_per_s.get("fp4") or 0),
                d.memory_bytes < original.memory_bytes,
            ]
            assert any(cut), d.slug


def test_prices_carry_source_and_day():
    for d in ALL:
        for price in worth(d):
            assert price.source, d.slug
            assert price.day or price.kind == "launch", d.slug
            assert price.usd_per_byte == pytest.approx(price.usd / d.memory_bytes)


def test_cost_per_unit_is_the_price_over_the_figure():
    (launch,) = worth(device("rtx-4080"))
    assert (launch.kind, launch.usd, launch.day) == ("launch", 1199, "2022-09-20")
    assert (launch.usd_per_flop_per_s or 0) * 1e12 == pytest.approx(1199 / 97.48)
    assert launch.usd_per_byte * GIB == pytest.approx(1199 / (16376 / 1024))
    assert launch.usd_per_byte_per_s * GB == pytest.approx(1199 / 717)


def test_an_unknown_price_stays_unknown():
    assert worth(device("rtx-4090-48gb-mod")) == ()
    assert worth(device("a100-drive-32gb")) == ()


def test_measured_rates_are_near_the_specification():
    rows = ecosystem.measured()
    assert len(rows) >= 120
    for row in rows:
        assert 0.4 < row.ratio < 1.2, (row.device, row.operation, row.dtype, row.ratio)
    (gemm,) = ecosystem.measured_of(device("rtx-5090"), "matmul", "bf16")
    assert gemm.ratio == pytest.approx(1.126, abs=0.002)  # the boost clock is no ceiling


def test_a_device_on_sale_in_several_sizes_keeps_its_prices_and_measurements():
    assert ecosystem.measured_of(find_device("M2 Ultra 64GB")) == ecosystem.measured_of(device("m2-ultra"))
