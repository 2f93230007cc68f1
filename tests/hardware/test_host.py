"""A machine in words: memory, slots, cores and its drive."""

from __future__ import annotations

import pytest

from tonnage.errors import RequestError
from tonnage.hardware.host import default_host, parse_host


@pytest.mark.parametrize(
    ("text", "free", "read", "write"),
    [
        ("64 GiB ddr5-5600 x2, nvme 2 TB 7/5 GB/s", 2e12, 7e9, 5e9),
        ("nvme 4 TiB 6.5 GB/s, 64 GiB ddr5-5600 x2", 2**42, 6.5e9, 6.5e9),
        ("64 GiB ddr5-5600 x2 pcie5 x8 nvme 960GB 16 cores", 960e9, 3.9375e9, 3.9375e9),
    ],
)
def test_a_drive_is_read_beside_the_memory(text, free, read, write):
    host = parse_host(text)
    assert host.memory_bytes == 64 * 2**30
    assert (host.drive.free_bytes, host.drive.read_bytes_per_s, host.drive.write_bytes_per_s) == (free, read, write)
    assert host.drive.is_assumed == (read == 3.9375e9)


def test_no_drive_is_assumed():
    assert default_host().drive is None
    assert parse_host("64 GiB ddr5-5600 x2").drive is None


@pytest.mark.parametrize("text", ["nvme", "nvme 2", "nvme 2 TB 0 GB/s", "nvme 2 TB 7/5", "nvme 2 TB 7/5 Gb"])
def test_a_drive_that_is_none_is_refused(text):
    with pytest.raises(RequestError):
        parse_host(f"64 GiB ddr5-5600 x2, {text}")
