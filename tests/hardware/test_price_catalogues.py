"""The public catalogues' traps, each with a row of the kind that has it."""

from __future__ import annotations

import pytest

from tonnage.errors import BadFileError
from tonnage.hardware.price_catalogues import read_euro_rates, read_gpuhunt, read_skypilot

DAY = "2026-11-30"
INFO = "\"{{'Gpus': [{{'Name': '{name}', 'Count': {num}, 'MemoryInfo': {{'SizeInMiB': {held}}}}}], 'Total': 1}}\""


def sky(provider: str, *rows: tuple[str, str, object, object, str, str, str], region: str = "r") -> dict[str, tuple]:
    """Read rows of (instance, accelerator, count, memory, board's name, price, spot) and return them by instance."""
    lines = ["InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region"]
    for instance, name, num, held, board, full, spot in rows:
        info = INFO.format(name=board, num=num, held=held)
        lines.append(f"{instance},{name},{num},8,64,{info},{full},{spot},{region}")
    table = read_skypilot("\n".join(lines) + "\n", provider, DAY)
    return {
        o.instance: (o.device, o.num_devices, o.usd_per_device_hour, o.spot_usd_per_device_hour) for o in table.offers
    }


def hunt(provider: str, text: str):
    header = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size\n"
    return read_gpuhunt(header + text, provider, DAY)


@pytest.mark.parametrize(
    ("provider", "row", "device"),
    [
        # vast collapses names and gives the memory of all devices together
        ("vast", ("4x-RTX_4070S_Ti-32-65536", "RTX4070", 4, 65504, "RTX4070", "0.77", "0.00"), "rtx-4070-ti-super"),
        ("vast", ("4x-RTX_4060_Ti-32-65536", "RTX4060", 4, 65520, "RTX4060", "0.29", "0.00"), "rtx-4060-ti-16gb"),
        ("vast", ("1x-RTX_3060_Ti-32-65536", "RTX3060", 1, 8192, "RTX3060", "0.16", "0.00"), "rtx-3060-ti"),
        ("vast", ("4x-RTX_3060-32-65536", "RTX3060", 4, 49152, "RTX3060", "0.21", "0.00"), "rtx-3060-12gb"),
        ("vast", ("2x-A100_SXM4-32-65536", "A100", 2, 81920, "A100", "1.87", "0.00"), "a100-sxm4-40gb"),
        ("vast", ("2x-A100_SXM4-32-65536", "A100", 2, 163840, "A100", "1.87", "0.00"), "a100-sxm4-80gb"),
        ("vast", ("2x-A100_PCIE-32-65536", "A100", 2, 81920, "A100", "1.33", "0.00"), "a100-pcie-40gb"),
        ("vast", ("1x-H100_NVL-32-65536", "H100", 1, 95830, "H100", "1.98", "0.00"), "h100-nvl"),
        ("vast", ("8x-H100_SXM-32-65536", "H100", 8, 652472, "H100", "14.94", "0.00"), "h100-sxm5"),
        ("vast", ("1x-RTX_PRO_6000_WS-32-65536", "RTXPRO6000WS", 1, 97887, "RTXPRO6000WS", "0.93", "0.00"),
         "rtx-pro-6000-blackwell-ws"),
        # runpod and shadeform give GB in a field for MiB
        ("runpod", ("2x_A100-80GB_SECURE", "A100-80GB", 2.0, 80, "A100 PCIe", "2.78", "2.78"), "a100-pcie-80gb"),
        ("shadeform", ("crusoe_A100-80G-sxm4x8", "A100-80GB", 8.0, 80, "A100-80GB", "18.4", ""), "a100-sxm4-80gb"),
        ("shadeform", ("scaleway_H100x2", "H100", 2.0, 80, "H100", "6.6", ""), "h100-pcie"),
        ("shadeform", ("excesssupply_H200x8", "H200", 8.0, 141, "H200", "32.0", ""), "h200-sxm5"),
        ("shadeform", ("massedcompute_RTX6000Adax4", "RTX6000Ada", 4.0, 48, "RTX6000Ada", "3.88", ""), "rtx-6000-ada"),
        # lambda and verda give MiB of one device
        ("lambda", ("gpu_8x_v100_n", "V100", 8.0, 16384, "V100", "6.32", ""), "v100-sxm2-16gb"),
        ("lambda", ("gpu_8x_h100_sxm5", "H100", 8.0, 81920, "H100", "31.92", ""), "h100-sxm5"),
        ("verda", ("4RTXPRO6000.120V", "RTX-PRO-6000", 4.0, 98304, "RTX-PRO-6000", "6.76", "2.366"),
         "rtx-pro-6000-blackwell-server"),
        ("verda", ("1B300.30V", "B300", 1.0, 268288, "B300", "6.99", "2.447"), "b300"),
        # nebius sometimes gives none at all
        ("nebius", ("gpu-h100-sxm_8gpu-128vcpu-1600gb", "H100", 8, 0, "H100", "23.60", "10.00"), "h100-sxm5"),
        ("nebius", ("gpu-l40s-d_4gpu-128vcpu-768gb", "L40S", 4, 49152, "L40S", "9.1376", ""), "l40s"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)  # fmt: skip
def test_which_board_it_is(provider, row, device):
    (found,) = sky(provider, row).values()
    assert found[0] == device
    assert found[1] == row[2]
    assert found[2] == pytest.approx(float(row[5]) / row[2])


def test_a_spot_price_of_zero_or_without_discount_is_none():
    found = sky(
        "vast",
        ("1x-RTX_4090-32-65536", "RTX4090", 1, 24564, "RTX4090", "0.40", "0.00"),
        ("1x-RTX_3090-32-65536", "RTX3090", 1, 24576, "RTX3090", "0.25", "0.25"),
        ("1x-L40S-32-65536", "L40S", 1, 46068, "L40S", "0.60", "0.30"),
    )
    assert [spot for *_, spot in found.values()] == [None, None, 0.30]


def test_a_missing_price_leaves_the_spot_price():
    found = sky("aws", ("p5e.48xlarge", "H200", 8, 144384, "H200", "", "14.0291"))
    assert found["p5e.48xlarge"][2:] == (None, pytest.approx(14.0291 / 8))


def test_a_machine_listed_once_a_region_is_one():
    rows = [("gpu_1x_gh200", "GH200", 1.0, 98304, "GH200", "2.29", "")] * 30
    assert len(sky("lambda", *rows)) == 1


def test_of_many_zones_the_cheapest_stay():
    """AWS spot prices differ by zone; one row keeps the price on demand, one the cheapest spot."""
    lines = ["InstanceType,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice"]
    for zone, full, spot in (("a", 55.04, 20.0), ("b", 55.04, 9.37), ("c", 60.0, 13.0)):
        lines.append(f"p5.48xlarge,H100,8,us,us-{zone},{full},{spot}")
    offers = read_skypilot("\n".join(lines), "aws", DAY).offers
    assert min(o.usd_per_device_hour for o in offers) == pytest.approx(55.04 / 8)
    assert min(o.spot_usd_per_device_hour for o in offers) == pytest.approx(9.37 / 8)
    assert {o.region for o in offers} == {"us us-a", "us us-b"}


def test_what_is_no_board_of_ours_is_left_out_and_counted():
    lines = ["InstanceType,AcceleratorName,AcceleratorCount,Region,Price,SpotPrice", "m5.large,,,r,0.1,",
             "g3.x,M60,1,r,0.75,", "p5.x,H100,0.5,r,1,", "p5.y,H100,8,r,,", "p5.z,H100,8,r,abc,nan",
             "p5.ok,H100,8,r,50,"]  # fmt: skip
    table = read_skypilot("\n".join(lines), "aws", DAY)
    assert [o.instance for o in table.offers] == ["p5.ok"]
    assert table.num_left_out == 3  # M60, and two without a price; half a device and a machine without are none


def test_a_name_whose_memory_is_wrong_is_left_out():
    """A 4070 has 12 GB: 16 GB under that name is another board, and which is not said."""
    lines = ["InstanceType,AcceleratorName,AcceleratorCount,GpuInfo,Region,Price,SpotPrice",
             f"x,RTX4070,1,{INFO.format(name='RTX4070', num=1, held=16376)},r,1,"]  # fmt: skip
    table = read_skypilot("\n".join(lines), "aws", DAY)
    assert table.offers == ()
    assert table.num_left_out == 1


def test_gpuhunt_lists_spot_in_rows_of_its_own():
    table = hunt(
        "lambdalabs",
        "gpu_8x_h100_sxm5,us-east-1,31.92,208,1800,8,H100,80,False,\n"
        "gpu_8x_h100_sxm5,us-east-1,15.0,208,1800,8,H100,80,True,\n"
        "cpu_4x,us-east-1,0.2,4,16,0,,,False,\n",
    )
    (offer,) = table.offers
    assert (offer.provider, offer.device, offer.num_devices) == ("lambda", "h100-sxm5", 8)
    assert (offer.usd_per_device_hour, offer.spot_usd_per_device_hour) == (31.92 / 8, 15.0 / 8)


@pytest.mark.parametrize(
    ("provider", "line", "device"),
    [
        ("runpod", "NVIDIA H100 PCIe,r,2.39,16,188,1,H100,80,False,", "h100-pcie"),
        ("runpod", "NVIDIA H100 80GB HBM3,r,2.69,16,125,1,H100,80,False,", "h100-sxm5"),
        ("runpod", "NVIDIA RTX 6000 Ada Generation,r,0.77,10,167,1,RTX6000Ada,48,False,", "rtx-6000-ada"),
        ("azure", "Standard_NC24ads_A100_v4,eastus,3.67,24,220,1,A100,80,False,", "a100-pcie-80gb"),
        ("azure", "Standard_NC40ads_H100_v5,eastus,6.98,40,320,1,H100,94,False,", "h100-nvl"),
        ("azure", "Standard_ND96isr_H100_v5,eastus,98.3,96,1900,8,H100,80,False,", "h100-sxm5"),
        ("gcp", "a2-highgpu-1g,us-central1,3.67,12,85,1,A100,40,False,", "a100-sxm4-40gb"),
        ("aws", "g6e.xlarge,us-east-1,1.86,4,32,1,L40S,48,False,", "l40s"),
        ("aws", "g4dn.xlarge,us-east-1,0.526,4,16,1,T4,16,False,", "t4"),
    ],
)
def test_gpuhunts_boards(provider, line, device):
    (offer,) = hunt(provider, line + "\n").offers
    assert offer.device == device


def test_broken_tables_give_what_can_be_read():
    assert read_skypilot("", "aws", DAY).offers == ()
    assert read_skypilot("<html>no</html>", "aws", DAY).offers == ()
    assert read_gpuhunt('instance_name,price\n"broken', "aws", DAY).offers == ()


def test_the_banks_rates():
    text = "<Cube time='2026-05-08'><Cube currency='USD' rate='1.1761'/><Cube currency='CNY' rate='7.9989'/></Cube>"
    rates = read_euro_rates(text).rates
    assert rates["CNY"].per_usd == pytest.approx(7.9989 / 1.1761)
    assert rates["CNY"].day == "2026-05-08"
    for wrong in ("", "<Cube time='2026-05-08'/>", text.replace("USD", "ABC"), text.replace("1.1761", "0")):
        with pytest.raises(BadFileError):
            read_euro_rates(wrong)
