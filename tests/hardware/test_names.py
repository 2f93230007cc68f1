"""A device is found under every name that people write; a name that leaves it open is asked about."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import RequestError, UnknownNameError
from tonnage.hardware.catalogue import devices, find_device, find_devices, find_devices_like
from tonnage.hardware.names import split_count
from tonnage.units import GIB

# The names of devices in published measurements, as their sources write them, and what they mean.
MEASURED = {
    "4070": "rtx-4070", "4070 Ti Super": "rtx-4070-ti-super", "4080": "rtx-4080", "4090": "rtx-4090", "5090": "rtx-5090",
    "7900 XT": "rx-7900-xt", "A100": "a100-sxm4-80gb", "A100 (not stated)": "a100-sxm4-80gb",
    "A100 80GB": "a100-sxm4-80gb", "A100 80GB (form factor not stated)": "a100-sxm4-80gb",
    "A100 80GB (not stated here)": "a100-sxm4-80gb", "A100 PCIe": "a100-pcie-80gb",
    "A100 SXM (DGX, 40 or 80GB not stated)": "a100-sxm4-80gb", "A100 SXM 40GB": "a100-sxm4-40gb",
    "A100 SXM 80GB": "a100-sxm4-80gb", "A100 SXM4 40GB": "a100-sxm4-40gb", "48 GB budget on A100 80GB": "a100-sxm4-80gb",
    "80 GB budget on A100 80GB": "a100-sxm4-80gb", "A10G 24GB (PCIe)": "a10g", "A40": "a40", "A400": "rtx-a400",
    "A4000": "rtx-a4000", "AI Pro R9700": "radeon-ai-pro-r9700", "AMD Radeon RX 7900 XT": "rx-7900-xt",
    "Apple M1 Max": "m1-max", "Apple M2 Max": "m2-max", "Apple M3 Pro": "m3-pro", "Apple M4 Pro": "m4-pro",
    "Arc A310 ECO": "arc-a310", "Arc B580": "arc-b580", "Arc Pro B50": "arc-pro-b50", "B200": "b200",
    "B200 SXM 180GB": "b200", "B300 SXM 288GB": "b300", "DGX Spark GB10": "dgx-spark-gb10",
    "DGX Spark GB10 (unified)": "dgx-spark-gb10", "Framework Desktop Mainboard (395+)": "strix-halo-395",
    "Framework Mainboard (128GB)": "strix-halo-395", "GB200": "gb200", "GB200 (186GB)": "gb200", "GB300 (288GB)": "gb300",
    "GTX 1080 Ti": "gtx-1080-ti", "H100": "h100-sxm5", "H100 80GB": "h100-sxm5", "H100 80GB (79.22 GiB)": "h100-sxm5",
    "H100 80GB (form factor not stated)": "h100-sxm5", "H100 NVL 94GB": "h100-nvl", "H100 SXM": "h100-sxm5",
    "H100 SXM 80GB": "h100-sxm5", "H100 SXM 96GB HBM2e (500W)": "h100-sxm5-96gb-hbm2e", "H200 SXM": "h200-sxm5",
    "H200 SXM 141GB": "h200-sxm5", "Intel Arc Graphics 130V/140V (integrated)": "arc-140v",
    "Jetson Thor 128GB (unified)": "jetson-thor", "L20 48GB": "l20", "L40S": "l40s", "M1 Max 32\u2011Core GPU": "m1-max",
    "M1 Max Mac Studio (10 core - 64GB)": "m1-max", "M1 Ultra (48 GPU Core) 64GB": "m1-ultra-48core-64gb",
    "M4 Mac mini (10 core - 32GB)": "m4", "Mac Studio (M3 Ultra 512GB)": "m3-ultra", "NVIDIA GB10": "dgx-spark-gb10",
    "NVIDIA GeForce GTX 1070": "gtx-1070", "NVIDIA GeForce RTX 2070 SUPER": "rtx-2070-super",
    "NVIDIA GeForce RTX 3080": "rtx-3080-10gb", "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 3090 Ti": "rtx-3090-ti", "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090 D": "rtx-4090-d", "NVIDIA GeForce RTX 5090": "rtx-5090",
    "NVIDIA RTX 5880 Ada Generation": "rtx-5880-ada", "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA RTX A6000": "rtx-a6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000-blackwell-ws",
    "Pro W7700": "radeon-pro-w7700", "RTX 2080 8GB": "rtx-2080", "RTX 2080 Ti": "rtx-2080-ti", "RTX 3060": "rtx-3060-12gb",
    "RTX 3070": "rtx-3070", "RTX 3080": "rtx-3080-10gb", "RTX 3080 Ti": "rtx-3080-ti", "RTX 3090": "rtx-3090",
    "RTX 3090 (230 W)": "rtx-3090", "RTX 3090 (245 W)": "rtx-3090", "RTX 3090 (250 W)": "rtx-3090",
    "RTX 3090 (280 W)": "rtx-3090", "RTX 3090 (290 W)": "rtx-3090", "RTX 3090 (300 W)": "rtx-3090",
    "RTX 3090 (350 W)": "rtx-3090", "RTX 3090 (365 W)": "rtx-3090", "RTX 3090 (370 W)": "rtx-3090",
    "RTX 3090 (420 W)": "rtx-3090", "RTX 3090 24GB": "rtx-3090", "RTX 3090 NVLink": "rtx-3090", "RTX 3090 Ti": "rtx-3090-ti",
    "RTX 4000 Ada": "rtx-4000-ada", "RTX 4060 Laptop 8GB": "rtx-4060-laptop", "RTX 4070 Ti": "rtx-4070-ti",
    "RTX 4080": "rtx-4080", "RTX 4090": "rtx-4090", "RTX 4090 (230 W)": "rtx-4090", "RTX 4090 24GB": "rtx-4090",
    "RTX 4090 48GB": "rtx-4090-48gb-mod", "RTX 4090 48GB (modded)": "rtx-4090-48gb-mod", "RTX 4090 D 24GB": "rtx-4090-d",
    "RTX 5000 Ada": "rtx-5000-ada", "RTX 5090": "rtx-5090", "RTX 5090 (575 W)": "rtx-5090", "RTX 5090 (600 W)": "rtx-5090",
    "RTX 5090 (WSL2)": "rtx-5090", "RTX A2000": "rtx-a2000", "RTX A4000": "rtx-a4000", "RTX A6000": "rtx-a6000",
    "RTX A6000 48GB": "rtx-a6000", "RTX PRO 6000 Blackwell 96GB": "rtx-pro-6000-blackwell-ws",
    "RTX PRO 6000 Blackwell Max-Q": "rtx-pro-6000-blackwell-maxq",
    "RTX PRO 6000 Blackwell SE": "rtx-pro-6000-blackwell-server",
    "RTX PRO 6000 Blackwell Workstation": "rtx-pro-6000-blackwell-ws", "RX 580": "rx-580", "RX 6500 XT": "rx-6500-xt",
    "RX 6700 XT": "rx-6700-xt", "RX 7600": "rx-7600", "RX 7900 XT": "rx-7900-xt", "RX 9070 XT": "rx-9070-xt",
    "Radeon 8060S (Strix Halo, Ryzen AI Max+ 395)": "strix-halo-395", "Radeon AI Pro R9700": "radeon-ai-pro-r9700",
    "Spark": "dgx-spark-gb10", "T4 16GB": "t4", "T4 16GB (14.56 GiB usable)": "t4", "Tesla T4": "t4",
    "V100 SXM2 16GB": "v100-sxm2-16gb", "V100 SXM2 32GB": "v100-sxm2-32gb",
}  # fmt: skip
MIXED = {
    "2x RTX 3080 20GB + RTX 5090": ["rtx-3080-20gb-mod", "rtx-3080-20gb-mod", "rtx-5090"],
    "RTX 3090 + RTX 5070 Ti": ["rtx-3090", "rtx-5070-ti"],
    "RTX 5090 + 2x RTX 3080 20GB": ["rtx-5090", "rtx-3080-20gb-mod", "rtx-3080-20gb-mod"],
    "RTX 5090 + RTX 3090 Ti": ["rtx-5090", "rtx-3090-ti"],
    "RTX A5000 + RTX 3090": ["rtx-a5000", "rtx-3090"],
}
# What names no one device: a memory class, a processor, a choice of two.
NO_DEVICE = [
    "12 GB GPU (model not stated)", "16 GB GPU (model not stated)", "24 GB GPU (model not stated)",
    "40 GB GPU (model not stated)", "48 GB GPU (model not stated)", "80 GB GPU (model not stated)",
    "8 GB GPU (model not stated)", "48 GB class (44 GB free)", "80 GB class", "80 GB class GPU (not named)", "CPU only",
    "none (CPU)", "any", "not named", "consumer GPU (not named)", "not stated (single GPU)", "single GPU (not named)",
    "A100/H100 80GB (79.33 GiB)", "A800/H800 80GB", "RTX 3090/4090 (23.55 GiB)",
]  # fmt: skip


@pytest.mark.parametrize(("query", "slug"), MEASURED.items())
def test_a_measured_device_is_in_the_catalogue(query, slug):
    assert find_device(query).slug == slug


@pytest.mark.parametrize(("query", "slugs"), MIXED.items())
def test_a_mix_is_taken_apart(query, slugs):
    assert [d.slug for d in find_devices(query)] == slugs


@pytest.mark.parametrize("query", NO_DEVICE)
def test_what_names_no_device_is_refused(query):
    with pytest.raises(UnknownNameError):
        find_devices(query)


def test_the_lists_above_are_whole(shared):
    names = set()
    for file in ("training", "inference"):
        lines = (shared / "data" / "measurements" / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
        names |= {json.loads(line)["gpu"] for line in lines}
    assert names - set(MEASURED) - set(MIXED) - set(NO_DEVICE) == set()


@pytest.mark.parametrize(
    ("query", "slug"),
    [
        ("rtx4080", "rtx-4080"), ("GeForce RTX 4080", "rtx-4080"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"), ("NVIDIA H100 80GB HBM3", "h100-sxm5"), ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"), ("5090m", "rtx-5090-laptop"), ("3060ti", "rtx-3060-ti"),
        ("4070tisuper", "rtx-4070-ti-super"), ("5060 Ti 8GB", "rtx-5060-ti-8gb"), ("4090D", "rtx-4090-d"),
        ("5090D v2", "rtx-5090-d-v2"), ("Apple M2 Ultra", "m2-ultra"), ("MacBook Pro M4 Pro 48GB", "m4-pro-48gb"),
        ("Strix Halo", "strix-halo-395"), ("AMD Instinct MI300X", "mi300x"), ("w7900", "radeon-pro-w7900"),
        ("7900XTX", "rx-7900-xtx"), ("A100 32GB SXM", "a100-drive-32gb"), ("RTX 2080 Ti 22GB", "rtx-2080-ti-22gb-mod"),
        ("4080 32GB", "rtx-4080-32gb-mod"), ("GTX 1060", "gtx-1060-6gb"), ("MI50 32GB", "mi50-32gb"),
    ],
)  # fmt: skip
def test_a_device_is_found_as_people_write_it(query, slug):
    assert find_device(query).slug == slug


@pytest.mark.parametrize(
    "query", ["RTX 4060 Ti", "RTX 6000", "RTX 5060 Ti", "9060 XT", "W7800 64GB", "gtx 4080", "RTX 4080 24GB"]
)
def test_a_name_that_leaves_it_open_or_is_wrong_is_asked_about(query):
    with pytest.raises(UnknownNameError) as caught:
        find_device(query)
    assert caught.value.suggestions
    assert "did you mean" in str(caught.value)


def test_what_custom_settles_is_said():
    assert "SXM4, 80 GB" in find_device("A100").warnings[0]
    assert find_device("A100 SXM4 80GB").warnings == ()
    assert "64 GB" in find_device("M1 Max").warnings[0]
    assert find_device("M1 Max 32GB").warnings == ()


def test_an_unofficial_board_is_only_meant_when_its_size_is_said():
    assert not find_device("4090").is_unofficial
    assert not find_device("2080 ti").is_unofficial
    assert find_device("4090 48GB").is_unofficial


def test_a_memory_size_that_is_said_is_kept():
    found = find_device("Apple M2 Ultra 64GB")
    assert found.unified_memory_bytes == 64 * GIB
    assert find_device(found.slug) == found


def test_every_device_finds_itself():
    for found in devices():
        assert find_device(found.slug).slug == found.slug
        assert find_device(found.name).slug == found.slug


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [("rtx-4080:2", "rtx-4080", 2), ("8xH100", "H100", 8), ("h100x8", "h100", 8), ("RTX 3090 x2", "RTX 3090", 2),
     ("7900 XT", "7900 XT", 1), ("RTX 3090", "RTX 3090", 1), ("rtx4080", "rtx4080", 1)],
)  # fmt: skip
def test_a_number_of_devices_is_read(text, name, count):
    assert split_count(text) == (name, count)


@pytest.mark.parametrize("text", ["0x H100", "rtx-4080:0", "h100:999999999", ":3"])
def test_an_absurd_number_is_refused(text):
    with pytest.raises(RequestError):
        split_count(text)


def test_browsing_finds_words():
    assert {"rtx-4080", "rtx-4080-super"} <= {d.slug for d in find_devices_like("rtx 4080")}
    assert all(d.architecture.startswith("Blackwell") or "Blackwell" in d.name for d in find_devices_like("blackwell"))


@given(st.text(max_size=150))
def test_no_text_breaks_the_search(text):
    try:
        found = find_devices(text)
    except RequestError as error:
        assert "\n" not in str(error)
    else:
        assert found
