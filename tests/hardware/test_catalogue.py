import pytest

from tonnage.errors import UnknownNameError
from tonnage.hardware.catalogue import device, devices, find_device, find_devices


@pytest.mark.parametrize(
    "query, slug",
    [
        ("RTX 4080", "rtx-4080"),
        ("4080", "rtx-4080"),
        ("rtx4080", "rtx-4080"),
        ("NVIDIA GeForce RTX 4080", "rtx-4080"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("H100 SXM", "h100-sxm5"),
        ("Apple M2 Ultra", "m2-ultra"),
        ("4070 Ti Super", "rtx-4070-ti-super"),
        ("4090 48GB", "rtx-4090-48gb-mod"),
        ("RTX 4090 (230 W)", "rtx-4090"),
    ],
)
def test_a_device_is_found_as_people_write_it(query, slug):
    assert find_device(query).slug == slug


def test_a_name_nobody_has_comes_with_suggestions():
    with pytest.raises(UnknownNameError) as caught:
        find_device("gtx 4080")
    assert "rtx-4080" in caught.value.suggestions


def test_several_devices_in_one_text():
    assert [d.slug for d in find_devices("2x RTX 3090 + RTX 5090")] == ["rtx-3090", "rtx-3090", "rtx-5090"]


def test_the_4080_has_the_memory_its_driver_reports():
    assert device("rtx-4080").memory_bytes == 16376 << 20


def test_every_device_finds_itself():
    for found in devices():
        assert find_device(found.slug).slug == found.slug
        assert find_device(found.name).slug == found.slug
