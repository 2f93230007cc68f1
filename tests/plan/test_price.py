"""What plans cost: whole machines, rent by the machine, spot with its stops, owning against renting."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tonnage import api
from tonnage.errors import RequestError
from tonnage.estimate.cost.assumptions import stated, with_given
from tonnage.estimate.cost.machine import machine_draw, machine_kind, machine_parts, value_kind
from tonnage.estimate.cost.propagate import propagated
from tonnage.estimate.types import Interval, Offload, Performance
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.host import default_host
from tonnage.hardware.prices import shipped_book
from tonnage.hardware.types import Cluster, Node
from tonnage.plan import price
from tonnage.plan.file import read_plan, write_plan
from tonnage.plan.request import command, make_request
from tonnage.plan.stored import with_read_rate
from tonnage.plan.types import Limits, Money
from tonnage.workload.types import Training, TrainingKind

from .nouns import make_estimate

HOUR, DAY = 3600.0, 86_400.0
ESTIMATE = make_estimate()
TODAY = replace(shipped_book(), today="2026-11-30")


def node(name: str, num: int = 1) -> Node:
    return Node(devices=(find_device(name),) * num, host=default_host())


def estimate(name: str, num: int = 1, num_nodes: int = 1, rate: float = 1000.0, job: float | None = None):
    """Return an estimate with a known rate, for serving or, with a time, for training."""
    workload = ESTIMATE.candidate.workload
    if job is not None:
        workload = Training(kind=TrainingKind.FULL, seq_len=4096, global_batch_size=8)
    cluster = Cluster(node=node(name, num), num_nodes=num_nodes)
    performance = Performance(
        tokens_per_s=Interval.exact(rate), job_seconds=None if job is None else Interval.exact(job)
    )
    return replace(
        ESTIMATE,
        candidate=replace(ESTIMATE.candidate, cluster=cluster, workload=workload, offload=Offload()),
        performance=performance,
        storage=replace(ESTIMATE.storage, checkpoints_bytes=60e9),
    )


def priced(one, limits: Limits | None = None):
    return price.priced(one, limits or Limits(), TODAY).cost


def given(**words: float) -> Limits:
    return Limits(assume=words)


# -- machines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "num", "kind"),
    [("rtx-4080", 1, "desktop"), ("rtx-3090", 2, "desktop"), ("rtx-3090", 4, "workstation"),
     ("rtx-4090", 8, "server_pcie"), ("l40s", 1, "workstation"), ("rtx-pro-6000-blackwell-ws", 1, "desktop"),
     ("a100-sxm4-80gb", 1, "desktop"), ("a100-drive-32gb", 2, "workstation"), ("mi210", 1, "workstation"), ("a100-sxm4-80gb", 8, "server_sxm"),
     ("h100-sxm5", 8, "server_sxm"), ("mi300x", 8, "server_sxm"), ("m4-max", 1, "none"), ("gh200-96gb", 1, "server_pcie")],
)  # fmt: skip
def test_the_kind_of_machine(name, num, kind):
    assert machine_kind(node(name, num).devices) == kind


def test_a_desktop_around_a_4080_by_hand():
    """900 + 64 GiB x 12 + 1.25 x (320 + 100) W x 0.15 = 900 + 768 + 78.75 USD."""
    parts = {part.name: part.usd.best for part in machine_parts(node("rtx-4080"), stated())}
    assert parts == {"host": 900, "memory": pytest.approx(768), "supply": pytest.approx(78.75)}


def test_sxm_boards_in_a_workstation_need_an_adapter_each():
    parts = {part.name: part.usd.best for part in machine_parts(node("a100-sxm4-80gb", 2), stated())}
    assert parts["adapter"] == 500
    assert "adapter" not in {part.name for part in machine_parts(node("a100-sxm4-80gb", 8), stated())}


def test_a_unified_machine_is_bought_whole():
    assert machine_parts(node("m4-max"), stated()) == ()


def test_the_draw_of_a_node_of_eight():
    """8 x 700 W x 0.8 + 2400 W = 6.88 kW; nodes drew 7.75 kW sustained and 8.4 kW at most."""
    draw = machine_draw(node("h100-sxm5", 8), "training", stated())
    assert draw is not None
    assert draw.best == pytest.approx(6880)
    assert draw.low < 7750 < draw.high * 1.05
    half = machine_draw(node("h100-sxm5", 8), "training", stated(), limit_ratio=0.5)
    assert half is not None
    assert half.best == pytest.approx(0.5 * 4480 + 2400)


def test_no_power_limit_known_no_draw():
    bare = replace(find_device("rtx-4080"), power_watts=None)
    assert machine_draw(Node(devices=(bare,), host=default_host()), "decode", stated()) is None


def test_markets():
    names = ("rtx-4090", "rtx-a6000", "h100-sxm5", "rtx-4090-48gb-mod", "mi300x", "rx-7900-xtx", "mi210", "arc-pro-b60")
    kinds = [
        "consumer",
        "professional",
        "datacentre",
        "unofficial",
        "datacentre",
        "consumer",
        "datacentre",
        "professional",
    ]
    assert [value_kind(find_device(name)) for name in names] == kinds


# -- purchase ----------------------------------------------------------------------------------------------------


def test_a_budget_is_held_against_the_whole_machine():
    cost = priced(estimate("rtx-4080"))
    assert cost.purchase_usd.best == pytest.approx(1199 + 900 + 768 + 78.75)
    assert [part.name for part in cost.own.parts] == ["devices", "host", "memory", "supply"]
    assert sum(part.usd.best for part in cost.own.parts) == pytest.approx(cost.purchase_usd.best)


def test_who_has_a_machine_pays_for_the_card():
    own = given(host_usd=0, memory_usd=0, supply_usd=0)
    assert priced(estimate("rtx-4080"), own).purchase_usd.best == pytest.approx(1199)


def test_nodes_are_bought_one_by_one():
    one, four = priced(estimate("h100-sxm5", 8)), priced(estimate("h100-sxm5", 8, num_nodes=4))
    assert four.purchase_usd.best == pytest.approx(4 * one.purchase_usd.best)
    assert four.own.draw_watts.best == pytest.approx(4 * one.own.draw_watts.best)


def test_an_old_launch_price_reaches_down_to_second_hand():
    """An RTX 3090 came out on 1 September 2020 for 1499 USD; 6.25 years at 0.75 leave 17 %."""
    card = find_device("rtx-3090")
    usd = price.device_usd(card, price.prices_for(Limits(), TODAY))
    years = 6.25
    assert usd.best == card.launch_price_usd
    assert usd.low == pytest.approx(card.launch_price_usd * 0.75**years, rel=0.03)
    assert usd.high > usd.best


def test_a_given_price_is_exact_and_in_its_currency():
    limits = Limits(prices={"4090": Money(amount=14_000, currency="CNY")}, rates={"CNY": 7.0})
    devices = priced(estimate("rtx-4090"), limits).own.parts[0].usd
    assert devices == Interval.exact(2000.0)


def test_without_a_price_nothing_is_bought_and_the_device_stays():
    cost = priced(estimate("gh200-96gb"))
    assert cost.purchase_usd is None
    assert cost.own is None
    assert cost.usd_per_hour is not None
    assert any("price unknown" in note for note in cost.notes)


def test_what_a_card_may_cost_within_a_budget():
    one = estimate("rtx-4090-48gb-mod").candidate
    around = 900 + 768 + 1.25 * (450 + 100) * 0.15
    found = price.fits_below_usd(one, 3500, price.prices_for(Limits(), TODAY))
    assert found == pytest.approx(3500 - around)
    bought = priced(estimate("rtx-4090-48gb-mod"), Limits(prices={"rtx-4090-48gb-mod": Money(amount=found)}))
    assert bought.purchase_usd.best == pytest.approx(3500)


# -- rent and spot -----------------------------------------------------------------------------------------------


def test_rent_of_the_cheapest_machine_that_holds_eight():
    """vast asked 14.94 USD/h for eight H100 in one machine; 1000 tokens/s make 4.15 USD a million."""
    cost = priced(estimate("h100-sxm5", 8))
    assert cost.usd_per_hour.best == 14.94
    assert cost.usd_per_hour.low == 14.94 < cost.usd_per_hour.high
    assert cost.usd_per_million_tokens.best == pytest.approx(14.94 / 3.6)


def test_idle_time_makes_tokens_dearer():
    busy, idle = (priced(estimate("h100-sxm5"), given(idle_ratio=r)).usd_per_million_tokens.best for r in (0, 0.8))
    assert idle == pytest.approx(5 * busy)


def test_a_job_on_demand_pays_for_its_checkpoints_and_stops():
    """100 h on 8 devices: 0.17 stops a device and year are 0.0155 stops; saving and stopping cost less than 1 %."""
    total = priced(estimate("h100-sxm5", 8, job=100 * HOUR)).usd_total.best
    assert 14.94 * 100 < total < 14.94 * 101


def test_16384_devices_stop_every_three_hours():
    """419 stops in 54 days; over 90 % of the time was effective (arXiv:2407.21783)."""
    one = estimate("h100-sxm5", 8, num_nodes=2048, job=54 * DAY)
    cost = priced(one)
    ratio = cost.usd_total.best / (cost.usd_per_hour.best * 54 * 24)
    assert 1.02 < ratio < 1.11


def test_spot_saves_less_than_its_discount():
    cost = priced(estimate("h100-sxm5", job=100 * HOUR), replace(Limits(), is_spot=True))
    on_demand = priced(estimate("h100-sxm5", job=100 * HOUR))
    discount = 1 - cost.spot.usd_per_hour.best / on_demand.usd_per_hour.best
    assert 0 < cost.spot.saved_ratio.best < discount
    assert cost.usd_per_hour == cost.spot.usd_per_hour
    assert cost.usd_total == cost.spot.usd_total
    assert cost.spot.held_seconds.best > 100 * HOUR
    assert cost.spot.wall_seconds.best == pytest.approx(cost.spot.held_seconds.best / 0.8)


def test_spot_by_hand():
    """Saving 60 GB at 1 GB/s takes 60 s; a stop a day: every 53 minutes (Young), 4 % on top of 100 h with restarts."""
    spot = priced(estimate("h100-sxm5", job=100 * HOUR)).spot
    assert spot.save_every_seconds.best == pytest.approx((2 * 60 * DAY) ** 0.5, rel=0.03)
    assert spot.held_seconds.best / (100 * HOUR) == pytest.approx(1 + 2 * 60 / 3220 + 600 / DAY, abs=0.004)
    assert spot.stops_per_hour.best == pytest.approx(1 / 24)


def test_more_machines_stop_more_often():
    few, many = (priced(estimate("h100-sxm5", 8, num_nodes=n, job=100 * HOUR)).spot for n in (1, 16))
    assert many.stops_per_hour.best == pytest.approx(16 * few.stops_per_hour.best)
    assert many.held_seconds.best > few.held_seconds.best


def test_two_thousand_spot_machines_get_nowhere():
    """2048 machines lose one every 42 s, starting takes ten minutes: nothing would ever be finished."""
    spot = priced(estimate("h100-sxm5", 8, num_nodes=2048, job=54 * DAY)).spot
    assert spot.stops_per_hour.best == pytest.approx(2048 / 24)
    assert spot.held_seconds is None
    assert spot.usd_total is None


def test_without_stops_spot_costs_its_price():
    spot = priced(estimate("h100-sxm5", job=100 * HOUR), given(spot_stops_per_day=0)).spot
    assert spot.usd_total.best == pytest.approx(spot.usd_per_hour.best * (100 + 60 / 3600))


def test_no_spot_offer_no_spot_price():
    """vast's file says 0.00 for the RTX 4090: none, not free."""
    cost = priced(estimate("rtx-4090", job=10 * HOUR), replace(Limits(), is_spot=True))
    assert cost.spot is None
    assert cost.usd_per_hour is None
    assert cost.usd_total is None


def test_a_spot_server_is_away_while_it_starts_again():
    spot = priced(estimate("h100-sxm5")).spot
    plain = spot.usd_per_hour.best / 3.6
    assert spot.usd_per_million_tokens.best == pytest.approx(plain * (DAY + 600) / DAY)


# -- owning ------------------------------------------------------------------------------------------------------


def test_owning_a_4090_by_hand():
    """Three years, 8 hours a day: 8766 h. 1599 USD lose 1 - 0.75^3, fail 9 % at half the price; the rest keeps 0.6^3."""
    cost = priced(estimate("rtx-4090"))
    around = 900 + 768 + 1.25 * (450 + 100) * 0.15
    lost = 1599 * (1 - 0.75**3 + 3 * 0.03 * 0.5) + around * (1 - 0.6**3)
    power = (450 * 0.9 + 100) / 1000 * 0.187
    assert cost.own.lost_usd.best == pytest.approx(lost)
    assert cost.own.electricity_usd_per_hour.best == pytest.approx(power)
    assert cost.own.usd_per_hour.best == pytest.approx(lost / (3 * 365.25 * 8) + power)
    assert cost.own.break_even_hours.best == pytest.approx(lost / (0.40 - power))


def test_unofficial_boards_cost_their_risk():
    limits = Limits(prices={"rtx-4090-48gb-mod": Money(amount=1599.0), "rtx-4090": Money(amount=1599.0)})
    mod, official = (priced(estimate(name), limits).own for name in ("rtx-4090-48gb-mod", "rtx-4090"))
    assert mod.lost_usd.best > official.lost_usd.best


def test_break_even_is_where_the_totals_meet():
    cost = priced(estimate("rtx-4090"))
    hours = cost.own.break_even_hours.best
    rent = cost.usd_per_hour.best
    assert cost.own.lost_usd.best + cost.own.electricity_usd_per_hour.best * hours == pytest.approx(rent * hours)


def test_renting_that_is_always_cheaper_has_no_break_even():
    dear = Limits(prices={"rtx-4090": Money(amount=500_000.0)})
    assert priced(estimate("rtx-4090"), dear).own.break_even_hours is None


@pytest.mark.parametrize("amount", [500, 1000, 2000, 4000])
def test_a_dearer_card_never_makes_owning_cheaper(amount):
    cheap, dear = (
        priced(estimate("rtx-4090"), Limits(prices={"rtx-4090": Money(amount=float(a))}))
        for a in (amount, 1.3 * amount)
    )
    assert cheap.purchase_usd.best < dear.purchase_usd.best
    assert cheap.own.usd_per_hour.best < dear.own.usd_per_hour.best
    assert cheap.own.break_even_hours.best < dear.own.break_even_hours.best


def test_a_datacentre_pays_business_tariffs_and_cooling():
    own = priced(estimate("h100-sxm5", 8)).own
    assert own.electricity_usd_per_hour.best == pytest.approx((8 * 700 * 0.9 + 2400) / 1000 * 0.146 * 1.58)


def test_intervals_hold_their_best():
    for name, num in (("rtx-4090", 1), ("h100-sxm5", 8), ("a100-sxm4-80gb", 2)):
        cost = priced(estimate(name, num, job=10 * HOUR))
        found = [cost.usd_per_hour, cost.usd_per_million_tokens, cost.purchase_usd, cost.usd_total, cost.own.usd_per_hour,
                 cost.own.lost_usd, cost.own.electricity_usd_per_hour]  # fmt: skip
        assert all(0 < one.low <= one.best <= one.high for one in found if one is not None)


def test_independent_errors_add_in_squares():
    found = propagated(lambda a, b: a - b, Interval(best=10, low=7, high=13), Interval(best=5, low=1, high=9))
    assert (found.best, found.low, found.high) == (5, 0, 10)
    assert propagated(lambda a: -a, Interval(best=-5, low=-6, high=-3)) == Interval(best=5, low=3, high=6)


# -- what is said ------------------------------------------------------------------------------------------------


def test_old_prices_are_said_to_be_old():
    clusters = [estimate("rtx-4090").candidate.cluster]
    said = " ".join(price.age_warnings(clusters, price.prices_for(Limits(), TODAY)))
    assert "vast 2026-02" in said
    assert "GeForce RTX 4090 2022-09-20" in said
    assert price.age_warnings(clusters, price.prices_for(Limits(), replace(TODAY, today="2022-10-01"))) == ()
    mine = Limits(prices={"rtx-4090": Money(amount=1500.0)})
    assert "RTX 4090" not in " ".join(price.age_warnings(clusters, price.prices_for(mine, TODAY)))


def test_each_assumption_is_said_with_its_reason_and_flag():
    one = priced(estimate("rtx-4090"))
    keys = price.assumed_of(replace(estimate("rtx-4090"), cost=one))
    assert {"host_usd.desktop", "kept_per_year.consumer", "tariff.home", "use_per_day"} <= set(keys)
    text = price.assumption_text("tariff.home", stated())
    assert "0.187 USD/kWh" in text
    assert "--assume tariff.home" in text
    assert price.assumption_text("tariff.home", with_given({"tariff": 0.3})) == "electricity 0.3 USD/kWh, as you say"


def test_a_plan_with_money_reads_back():
    words = {"budget": "25000 CNY", "rates": ["CNY=7.1"], "assume": ["tariff=0.3"]}
    answer = api.plan(make_request("Qwen/Qwen3.5-35B-A3B", gpus=["rtx-4080"], limits=words))
    plan = answer.plans[0]
    assert read_plan(write_plan(plan)) == plan
    assert plan.request.limits.budget.usd == pytest.approx(25_000 / 7.1)
    assert any("CNY" in text for text in answer.prices)


def test_the_command_asks_for_the_same():
    words = {"budget": "25000 CNY", "rates": ["CNY=7.1"], "assume": ["tariff=0.3", "use_per_day.=24"][:1], "spot": True}
    request = make_request("m", limits=words)
    text = command(request)
    assert all(part in text for part in ("--rate CNY=7.1", "--assume tariff=0.3", "--spot", "--budget '25000 CNY'"))


@pytest.mark.parametrize("flag", ["budget", "spend"])
def test_an_unknown_currency_is_refused_at_once(flag):
    with pytest.raises(RequestError, match=f"--{flag}.*--rate XAU="):
        make_request("m", limits={flag: "5 XAU"})
    assert make_request("m", limits={flag: "5 XAU", "rates": ["XAU=2"]}).limits.rates == {"XAU": 2.0}


def test_a_deadline_counts_the_waiting_for_spot(tonnage):
    words = ("plan", "Qwen/Qwen3-8B", "--finetune", "lora", "--gpu", "h100-sxm5", "--tokens", "300M", "--json")
    job = tonnage(*words).json["plans"][0]
    seconds = job["performance"]["job_seconds"]["best"]
    wall = job["money"]["spot"]["wall_seconds"]["best"]
    between = f"{(seconds + wall) / 2:.0f}s"
    assert tonnage(*words, "--deadline", between).code == 0
    late = tonnage(*words, "--deadline", between, "--spot")
    assert late.code == 3
    assert "deadline" in json.dumps(late.json["rejections"])


def test_disks_must_load_the_weights_in_a_minute():
    """A server's 60 GB in 60 s are 1 GB/s; a job of 10^9 tokens/s needs 4 GB/s of data."""
    one = estimate("rtx-4090")
    one = replace(one, storage=replace(one.storage, weights_bytes=60e9, read_bytes_per_s=None))
    assert with_read_rate(one, stated()).storage.read_bytes_per_s == 1e9
    assert with_read_rate(one, with_given({"load_time": 30})).storage.read_bytes_per_s == 2e9
    job = estimate("rtx-4090", job=100.0, rate=1e9)
    job = replace(job, storage=replace(job.storage, weights_bytes=60e9, read_bytes_per_s=None))
    fed = with_read_rate(job, stated()).storage
    assert (fed.read_bytes_per_s, fed.feed_bytes_per_s) == (1e9, 4e9)


def test_pretraining_loads_no_weights_and_divided_weights_are_read_in_parts():
    """Weights cut over two machines of eight are 30 of 60 GB on each; random weights are not read at all."""
    job = estimate("rtx-4090", job=100.0, rate=1e9)
    job = replace(job, storage=replace(job.storage, weights_bytes=60e9, read_bytes_per_s=None))
    load = replace(job.candidate.workload, kind=TrainingKind.PRETRAIN)
    begun = replace(job, candidate=replace(job.candidate, workload=load))
    assert with_read_rate(begun, stated()).storage.read_bytes_per_s is None
    layout = replace(job.candidate.layout, tp=2 * len(job.candidate.cluster.node.devices))
    cut = replace(job, candidate=replace(job.candidate, layout=layout))
    assert with_read_rate(cut, stated()).storage.read_bytes_per_s == 0.5e9


def test_spot_without_hardware_named_is_what_somebody_offers(tonnage):
    """Plans are machines that can be had as spot; what can only be bought stays among the ways."""
    found = tonnage("plan", "Qwen/Qwen3-0.6B", "--finetune", "lora", "--tokens", "100M", "--spot", "--json").json
    assert found["plans"]
    assert all(plan["cost"]["usd_per_hour"] is not None for plan in found["plans"])
    assert all(plan["money"]["spot"] is not None for plan in found["plans"])
    totals = [plan["cost"]["usd_total"]["best"] for plan in found["plans"] if plan["fits"]["surely"]]
    assert totals == sorted(totals)  # by what the job costs, not by what a machine costs to buy
    assert any(route["purchase_usd"] and not route["usd_per_hour"] for route in found["routes"])
