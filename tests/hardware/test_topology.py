"""Which link joins devices, and what a host can do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import RequestError, UnknownNameError
from tonnage.hardware import topology
from tonnage.hardware.catalogue import device, devices
from tonnage.hardware.host import default_host, parse_host
from tonnage.hardware.types import Cluster, Node
from tonnage.units import GIB


def cluster(slug: str, num_devices: int, **more) -> Cluster:
    return Cluster(node=Node(devices=(device(slug),) * num_devices, host=default_host()), **more)


def test_one_device_needs_no_link():
    assert topology.intra_link(device("h100-sxm5"), 1) is None
    assert topology.link_between(device("h100-sxm5"), cluster("h100-sxm5", 1)) is None


def test_cut_down_nvlink_keeps_its_own_rate():
    link = topology.intra_link(device("h800-sxm5"), 8)
    assert link
    assert link.bytes_per_s == 200e9


def test_a_bridge_joins_a_pair_and_no_more():
    pair = topology.intra_link(device("rtx-3090"), 2, has_bridge=True)
    four = topology.intra_link(device("rtx-3090"), 4, has_bridge=True)
    bare = topology.intra_link(device("rtx-3090"), 2)
    assert pair
    assert four
    assert bare
    assert (pair.kind, pair.bytes_per_s) == ("nvlink", 56.25e9)
    assert four.kind == bare.kind == "pcie-host"


def test_fewer_mi300x_see_fewer_wires():
    two = topology.intra_link(device("mi300x"), 2)
    eight = topology.intra_link(device("mi300x"), 8)
    assert two
    assert eight
    assert two.bytes_per_s == pytest.approx(64e9)
    assert two.bytes_per_s * two.achieved_ratio == pytest.approx(47.7e9, rel=0.07)
    assert eight.bytes_per_s * eight.achieved_ratio == pytest.approx(312.9e9, rel=0.01)


def test_between_machines_the_network_is_the_link():
    network = topology.link("ib-ndr")
    assert (
        topology.link_between(device("h100-sxm5"), cluster("h100-sxm5", 8, num_nodes=2, inter_link=network)) == network
    )
    with pytest.raises(RequestError):
        topology.link_between(device("h100-sxm5"), cluster("h100-sxm5", 8, num_nodes=2))


def test_every_device_has_a_link_or_none():
    for d in devices():
        link = topology.intra_link(d, 8)
        assert link is None or 0 < link.achieved_ratio <= 1
        host = topology.host_link(d)
        assert host is None or host.bytes_per_s > 0
    narrow = topology.host_link(device("rtx-4060-ti-16gb"))
    assert narrow
    assert narrow.name == "PCIe 4.0 x8"


def test_an_unknown_link_is_asked_about():
    with pytest.raises(UnknownNameError) as caught:
        topology.link("ib-qdr")
    assert "ib-hdr" in caught.value.suggestions


def test_a_host_is_read():
    host = parse_host("256GiB DDR5-4800 x12 pcie5 x16 96 cores")
    assert host.memory_bytes == 256 * GIB
    assert host.theoretical_bytes_per_s == 460.8e9
    assert host.bandwidth_bytes_per_s == pytest.approx(275.7e9)
    assert host.num_cores == 96
    assert host.pcie
    assert host.pcie.name == "PCIe 5.0 x16"


def test_the_default_host_is_labelled():
    host = default_host()
    assert host.is_assumed
    assert (host.memory_bytes, host.theoretical_bytes_per_s) == (64 * GIB, 89.6e9)
    assert host.pcie
    assert host.pcie.name == "PCIe 4.0 x16"


@pytest.mark.parametrize(
    "text", ["", "64", "64 GiB", "ddr5-5600", "64 GiB ddr5", "64 GiB ddr5-5600 x0", "64 GiB ddr5-5600 x2 nonsense",
             "0 GiB ddr5-5600", "64 GiB ddr5-56 x2", "64 GiB ddr5-99999"],
)  # fmt: skip
def test_what_is_no_host_is_refused(text):
    with pytest.raises(RequestError):
        parse_host(text)


@given(st.text(max_size=80))
def test_no_text_breaks_the_host(text):
    try:
        host = parse_host(text)
    except RequestError as error:
        assert "\n" not in str(error)
    else:
        assert host.memory_bytes > 0
