"""Hardware: what is assumed is said, free memory counts, and each kind of machine's traps are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage import api
from tonnage.errors import OutsideError, RequestError, UnknownNameError
from tonnage.hardware.host import default_host
from tonnage.hardware.sample import DeviceSample, HostSample, MachineSample
from tonnage.plan.report import request_object
from tonnage.plan.request import arguments, make_request
from tonnage.plan.types import Where
from tonnage.plan.where import DESKTOP_RESERVE_BYTES, parse_host, place, place_here, usual_host_of
from tonnage.units import GIB, MIB

CARD = DeviceSample(
    index=0,
    name="NVIDIA GeForce RTX 4080",
    memory_bytes=16376 * MIB,
    free_bytes=14376 * MIB,
    driver="580.95.05",
    drives_display=True,
    pcie_generation=4,
    pcie_lanes=8,
)
MACHINE = MachineSample(
    host=HostSample(memory_bytes=64 * GIB, available_bytes=40 * GIB, num_cores=12, system="Linux"), devices=(CARD,)
)
HERE = Where(is_here=True)


def test_the_default_host_is_the_one_that_is_said():
    assert replace(parse_host("64 GiB ddr5-5600 x2"), is_assumed=True) == default_host()


@pytest.mark.parametrize(
    ("gpu", "count", "gibibytes", "words"),
    [
        ("rtx-4090", 2, 64, "64 GiB ddr5-5600 x2"),
        ("rtx-4090", 4, 256, "ddr5-4800 x8"),
        ("rtx-pro-6000", 8, 512, "ddr5-4800 x16"),
        ("a100-sxm4-80gb", 8, 1024, "ddr4-3200 x16"),
        ("h100-sxm5", 8, 1024, "ddr5-4800 x16, pcie5 x16, 96 cores"),
    ],
)
def test_the_usual_host_grows_with_the_cards_and_is_said(gpu, count, gibibytes, words):
    placed = place(Where(gpus=((gpu, count),)))
    assert placed.cluster.node.host.memory_bytes == gibibytes * GIB
    assert any(words in text and "--host" in text for text in placed.assumptions)
    assert parse_host(usual_host_of(placed.cluster.node.devices)).memory_bytes == gibibytes * GIB


@pytest.mark.parametrize(("gpu", "rate"), [("h100-sxm5", 50e9), ("a100-sxm4-80gb", 25e9), ("rtx-4090", 12.5e9)])
def test_the_network_between_machines_is_assumed_by_the_kind_of_card_and_said(gpu, rate):
    placed = place(Where(gpus=((gpu, 8),), num_nodes=2))
    assert placed.cluster.inter_link.bytes_per_s == rate
    assert any("--network" in text for text in placed.assumptions)
    named = place(Where(gpus=((gpu, 8),), num_nodes=2, network="eth-25"))
    assert named.cluster.inter_link.bytes_per_s == 3.125e9
    assert not any("--network" in text for text in named.assumptions)


@pytest.mark.parametrize(
    ("text", "written", "rate"),
    [
        ("400Gb/s", "400Gb/s", 50e9),
        ("50 GB/s", "400Gb/s", 50e9),
        ("25Gbps", "25Gb/s", 3.125e9),
        ("IB-NDR", "ib-ndr", 50e9),
    ],
)
def test_a_network_is_named_or_given_as_a_rate(text, written, rate):
    request = make_request("m", gpus=["h100-sxm5:8"], nodes=2, network=text)
    assert place(request.where).cluster.inter_link.bytes_per_s == rate
    assert arguments(request)[arguments(request).index("--network") + 1] == written
    assert request_object(request)["network"] == written
    assert make_request("m", gpus=["h100-sxm5:8"], nodes=2, network=written).where == request.where


@pytest.mark.parametrize("text", ["400", "400 GiB", "0Gb/s", "eth-7"])
def test_a_network_that_is_none_is_refused(text):
    with pytest.raises(RequestError, match="--network"):
        make_request("m", gpus=["h100-sxm5:8"], nodes=2, network=text)


def test_a_rate_of_the_network_is_kept_in_a_plan_file():
    words = {"gpus": ["rtx-4090"], "nodes": 2, "network": "25Gb/s", "load": {"global_batch": "8", "seq_len": "512"}}
    plan = api.plan(make_request("Qwen/Qwen3-0.6B", goal="finetune", **words)).plans[0]
    again = api.read_plan(api.write_plan(plan))
    assert again.request.where == plan.request.where
    assert again.estimate.candidate.cluster.inter_link.bytes_per_s == 3.125e9


def test_a_game_card_leaves_room_for_the_desktop_and_says_so():
    placed = place(Where(gpus=(("rtx-4080", 1),)))
    assert placed.cluster.node.reserved_bytes == DESKTOP_RESERVE_BYTES
    assert any("--reserve" in text for text in placed.assumptions)
    assert place(Where(gpus=(("rtx-4080", 1),), reserve_bytes=0)).cluster.node.reserved_bytes == 0
    assert place(Where(gpus=(("h100-sxm5", 1),))).cluster.node.reserved_bytes == 0


def test_mixed_cards_are_counted_as_the_smallest():
    placed = place(Where(gpus=(("rtx-5090", 1), ("rtx-4080", 1))))
    assert placed.cluster.node.devices[0].slug == "rtx-4080"
    assert any("differ" in text for text in placed.warnings)


def test_an_unofficial_board_is_flagged():
    assert any("unofficial" in text for text in place(Where(gpus=(("rtx-4090-48gb-mod", 1),))).warnings)


def test_a_wrong_name_has_suggestions():
    with pytest.raises(UnknownNameError) as caught:
        place(Where(gpus=(("rtx-4808", 1),)))
    assert caught.value.suggestions


def test_here_free_memory_counts():
    placed = place_here(HERE, MACHINE)
    node = placed.cluster.node
    assert node.devices[0].memory_bytes == 16376 * MIB
    assert node.reserved_bytes == 2000 * MIB
    assert node.host.memory_bytes == 40 * GIB
    assert node.host.num_cores == 12
    assert node.host.pcie.name.endswith("x8")


def test_here_the_traps_are_named():
    wsl = replace(MACHINE, host=replace(MACHINE.host, is_wsl=True, limit_bytes=32 * GIB))
    text = " ".join(place_here(HERE, wsl).warnings)
    for word in ("screen", "shared memory", ".wslconfig", "control group"):
        assert word in text
    headless = replace(MACHINE, devices=(replace(CARD, drives_display=False),))
    assert any("other programs" in text for text in place_here(HERE, headless).warnings)


def test_a_full_card_plans_less_than_an_empty_one():
    full = replace(MACHINE, devices=(replace(CARD, free_bytes=6000 * MIB),))
    request = make_request("Qwen/Qwen3.5-35B-A3B", is_here=True)
    less = api.plan(request, machine=full).plans[0].estimate
    more = api.plan(request, machine=MACHINE).plans[0].estimate
    assert less.footprint.capacity_bytes < more.footprint.capacity_bytes
    assert less.candidate.offload.num_cpu_expert_layers > more.candidate.offload.num_cpu_expert_layers


def test_no_card_here_is_said():
    with pytest.raises(OutsideError, match="no accelerator") as caught:
        place_here(HERE, replace(MACHINE, devices=()))
    assert caught.value.exit_code == 4


def test_several_machines_are_joined_by_a_network_that_is_said():
    placed = place(Where(gpus=(("h100-sxm5", 8),), num_nodes=2))
    assert placed.cluster.num_devices == 16
    assert placed.cluster.inter_link is not None
    assert any("400 Gb/s" in text for text in placed.assumptions)


def test_this_machine_s_driver_and_drive_count():
    card = replace(CARD, driver="535.154.05")
    here = replace(MACHINE, devices=(card,), host=replace(MACHINE.host, drive_free_bytes=10**12))
    node = place_here(HERE, here).cluster.node
    assert node.driver == "535.154.05"
    assert node.host.drive.free_bytes == 10**12
    assert node.host.drive.is_assumed
    assert place_here(replace(HERE, driver="580.65"), here).cluster.node.driver == "580.65"
    assert place_here(HERE, MACHINE).cluster.node.host.drive is None
