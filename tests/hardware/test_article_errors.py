"""What the three articles say of hardware and is wrong, with the right figure; numbered as in the table of claims.

The numbers in the names are those of the list of 29 errors: 1 to 13 from the first article, 14 to 23, 24 to 29.
"""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.hardware import ecosystem, topology
from tonnage.hardware.catalogue import device, find_device
from tonnage.hardware.host import parse_host
from tonnage.units import GB, MIB


def tera(slug: str, dtype: str) -> float:
    return device(slug).flop_per_s[dtype] / 1e12


def test_01_the_h200_has_141_gb_of_hbm3e():
    assert (device("h200-sxm5").sold_as, device("h200-sxm5").memory_type) == ("141 GB", "HBM3e")
    assert device("h200-sxm5").memory_bytes == 143771 * MIB


def test_02_the_h200_moves_4_8_tb_per_second():
    assert device("h200-sxm5").bandwidth_bytes_per_s == 4800 * GB


def test_03_the_h100_has_hbm3_or_hbm2e_never_hbm3e():
    sxm, pcie = device("h100-sxm5"), device("h100-pcie")
    assert (sxm.memory_type, sxm.bandwidth_bytes_per_s) == ("HBM3", 3350 * GB)
    assert (pcie.memory_type, pcie.bandwidth_bytes_per_s) == ("HBM2e", 2000 * GB)


def test_04_the_4090_moves_1008_gb_per_second():
    assert device("rtx-4090").bandwidth_bytes_per_s == 1008 * GB
    assert device("rtx-4070-ti-super").bandwidth_bytes_per_s == 672 * GB  # whose figure the article prints


def test_05_the_4090_has_no_nvlink_and_no_peer_access():
    card = device("rtx-4090")
    assert (card.has_nvlink, card.nvlink_generation, card.has_p2p) == (False, None, False)
    link = topology.intra_link(card, 2, has_bridge=True)
    assert link
    assert link.kind == "pcie-host"
    assert device("h100-sxm5").nvlink_generation == "nvlink4"


def test_06_consumer_cards_have_tensor_cores_and_fp8():
    assert tera("rtx-4090", "fp8") == pytest.approx(330, rel=0.002)
    for dtype in ("bf16", "fp8", "int8"):
        assert tera("h200-sxm5", dtype) == tera("h100-sxm5", dtype)  # the same die


def test_07_the_h100_and_the_h200_are_both_data_centre_parts():
    assert {device(s).architecture for s in ("h100-sxm5", "h200-sxm5")} == {"Hopper"}
    assert {ecosystem.driver_class(device(s)) for s in ("h100-sxm5", "h200-sxm5")} == {"datacenter"}


def test_08_infiniband_is_a_network_of_machines_not_a_link_of_the_h100():
    link = topology.intra_link(device("h100-sxm5"), 8)
    assert link
    assert link.kind == "nvlink"
    assert topology.link("ib-ndr").kind == "infiniband"


def test_09_two_gpus_over_pcie_meet_by_peer_access_or_through_the_host():
    direct = topology.intra_link(device("l40s"), 2)
    through = topology.intra_link(device("rtx-5090"), 2)
    assert direct
    assert through
    assert (direct.kind, through.kind) == ("pcie", "pcie-host")


def test_10_two_h100_sxm_are_joined_by_nvlink():
    link = topology.intra_link(device("h100-sxm5"), 2)
    assert link
    assert (link.kind, link.bytes_per_s) == ("nvlink", 450 * GB)


def test_13_fp8_of_the_h200_is_1979_dense():
    assert tera("h200-sxm5", "fp8") == 1979


def test_13_spot_saves_more_than_either_article_says():
    saved = {}
    for slug in ("a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5", "b200", "b300", "v100-sxm2-16gb"):
        for offer in ecosystem.offers(device(slug)):
            if offer.provider == "aws" and offer.usd_per_device_hour and offer.spot_usd_per_device_hour:
                saved[slug, offer.instance] = 1 - offer.spot_usd_per_device_hour / offer.usd_per_device_hour
    assert min(saved.values()) < 0.5
    assert max(saved.values()) > 0.85


def test_14_modified_cards_double_their_memory():
    for board, card in (("rtx-4080-32gb-mod", "rtx-4080"), ("rtx-4090-48gb-mod", "rtx-4090")):
        assert device(board).memory_bytes / device(card).memory_bytes == pytest.approx(2.0, rel=0.002)
        assert device(board).is_unofficial


def test_15_the_a100_with_32_gb_is_a_drive_board():
    board = find_device("A100 SXM 32GB")
    assert board.slug == "a100-drive-32gb"
    assert (board.has_nvlink, board.is_unofficial) == (False, True)
    assert board.bandwidth_bytes_per_s == 1866 * GB
    assert tera("a100-drive-32gb", "bf16") == pytest.approx(278.7)


def test_16_an_adapter_costs_the_link_not_the_memory():
    on_board = topology.intra_link(device("a100-sxm4-80gb"), 8)
    adapted = topology.intra_link(device("a100-drive-32gb"), 8)
    assert on_board
    assert adapted
    assert adapted.kind == "pcie"
    assert 1 - adapted.bytes_per_s / on_board.bytes_per_s == pytest.approx(0.9, abs=0.01)


def test_17_eight_a100_peak_at_2_5_pflops():
    assert 8 * tera("a100-sxm4-80gb", "bf16") == pytest.approx(2496)
    assert 8 * tera("a100-drive-32gb", "bf16") == pytest.approx(2230, rel=0.001)


def test_17_a_trillion_parameters_are_eight_times_what_eight_boards_hold():
    board = device("a100-drive-32gb")
    fit = api.weights_fit(api.read_model("moonshotai/Kimi-K2-Instruct"), [board], ["bf16"])[board.slug][0]
    assert fit.weights_bytes == pytest.approx(2e12, rel=0.04)
    assert 7 < fit.weights_bytes / (8 * board.memory_bytes) < 8


def test_18_two_hundred_billion_parameters_do_not_fit_96_gb_in_any_format_of_four_bits():
    card = find_device("RTX PRO 6000")
    formats = ["bf16", "fp8", "nvfp4", "q4_k_m"]
    fits = api.weights_fit(api.read_model("Qwen/Qwen3-235B-A22B"), [card], formats)[card.slug]
    assert [fit.num_devices > 1 for fit in fits] == [True] * 4
    assert 200e9 * 2 / card.memory_bytes > 3.8


def test_18_the_professional_card_with_96_gb_is_a_blackwell():
    card = find_device("RTX PRO 6000")
    assert (card.compute_capability, card.sold_as) == ("12.0", "96 GB")
    assert (card.min_cuda, card.min_driver_branch, card.needs_open_modules) == ("12.8", "R570", True)


def test_19_engines_of_every_kind_run_on_it():
    engines = {s.engine for s in ecosystem.engines(find_device("RTX PRO 6000"))}
    assert {"vllm", "sglang", "transformers", "llama.cpp", "tensorrt-llm"} <= engines


def test_20_cuda_12_2_is_too_old_for_every_blackwell():
    for slug in ("rtx-5090", "rtx-5080", "b200", "b300", "rtx-pro-6000-blackwell-ws", "dgx-spark-gb10", "gb200"):
        floor = device(slug).min_cuda
        assert floor
        assert float(floor) > 12.2


def test_21_the_m5_family_kept_lpddr5x():
    assert device("m5-max").memory_type == "LPDDR5X"
    assert device("m5-max").bandwidth_bytes_per_s == 614 * GB


def test_22_fifty_gb_per_second_is_plain_dual_channel_ddr4():
    host = parse_host("64 GiB ddr4-3200 x2")
    assert host.theoretical_bytes_per_s == pytest.approx(51.2e9)
    assert host.bandwidth_bytes_per_s == pytest.approx(46e9)
    pcie = topology.link("pcie4-x16")
    assert pcie.bytes_per_s * pcie.achieved_ratio == pytest.approx(26e9, rel=0.02)


def test_23_ten_gigabit_takes_most_of_a_minute_for_the_gradients():
    seconds = 54e9 / topology.link("eth-10").bytes_per_s
    assert seconds == pytest.approx(43.2)


def test_24_the_cards_named_are_ada_blackwell_and_ampere():
    assert device("rtx-4080").architecture == "Ada"
    assert (device("rtx-5090-d").architecture, device("rtx-5090-d").compute_capability) == ("Blackwell", "12.0")
    assert device("a100-sxm4-80gb").architecture == "Ampere"


def test_25_the_5090_d_has_32_gb_and_its_successor_24():
    assert device("rtx-5090-d").sold_as == "32 GB"
    second = device("rtx-5090-d-v2")
    assert (second.sold_as, second.bandwidth_bytes_per_s) == ("24 GB", 1344 * GB)


def test_26_the_a100_has_no_fp8_and_the_5090_d_has_fp8_and_fp4():
    assert "fp8" not in device("a100-sxm4-80gb").flop_per_s
    assert {"fp8", "fp4"} <= set(device("rtx-5090-d").flop_per_s)
    assert tera("rtx-5090-d", "fp4") / tera("rtx-5090", "fp4") == pytest.approx(2375 / 3352, rel=0.001)


def test_27_the_5090_d_needs_cuda_12_8():
    assert (device("rtx-5090-d").min_cuda, device("rtx-5090-d").min_driver_branch) == ("12.8", "R570")


def test_28_the_5090_d_has_no_nvlink():
    assert not device("rtx-5090-d").has_nvlink


def test_29_what_the_5090_d_lacks_is_memory_links_and_ecc_not_speed():
    card, other = device("rtx-5090-d"), device("a100-sxm4-80gb")
    assert card.flop_per_s["bf16"] / other.flop_per_s["bf16"] == pytest.approx(0.67, abs=0.01)
    assert card.bandwidth_bytes_per_s / other.bandwidth_bytes_per_s == pytest.approx(0.88, abs=0.01)
    assert (card.has_p2p, card.has_nvlink, card.has_ecc) == (False, False, False)
