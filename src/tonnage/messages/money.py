"""What is said of money: assumptions with their reasoning, prices with their age, routes, power caps."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    # why an assumption is what it is
    "why_given": ("as you say", "由您给定"),
    "why_tariff_home": (
        "average of US homes in early 2026; China pays about half, Germany twice as much",
        "2026 年初美国居民均价；中国约为一半，德国约为两倍",
    ),
    "why_tariff_datacentre": (
        "average of US businesses in early 2026; large contracts pay half of it",
        "2026 年初美国商业用电均价；大用户合同价约为一半",
    ),
    "why_pue_home": (
        "no cooling plant; an air conditioner in summer adds up to 0.3",
        "没有制冷设备；夏天开空调最多再加 0.3",
    ),
    "why_pue_datacentre": (
        "the industry's average; large operators reach 1.1 to 1.2",
        "行业平均值；大型运营商可达 1.1–1.2",
    ),
    "why_kept_per_year_consumer": (
        "a card of the last generation sells at about half after two to three years; shortages keep prices up",
        "上一代显卡两三年后大约能卖半价；缺货时更高",
    ),
    "why_kept_per_year_professional": (
        "large memory keeps its buyers, the price at purchase is high",
        "大显存仍有买家，但购入价高",
    ),
    "why_kept_per_year_datacentre": (
        "a third is left after three years: each successor about doubles the speed, and few can use an old board",
        "三年后约剩三分之一：每代新品速度约翻倍，旧板的买家少",
    ),
    "why_kept_per_year_unofficial": ("no warranty passes to the buyer, few want one", "没有可转让的保修，买家少"),
    "why_kept_per_year_host": ("machines are outdated by their sockets and memory", "主机随插槽和内存换代而贬值"),
    "why_failures_per_year_consumer": (
        "a builder of workstations saw 0.25 to 1.6 % fail in the first year; round-the-clock load is harder than theirs",
        "一家工作站厂商首年故障率为 0.25%–1.6%；全天满载更苛刻",
    ),
    "why_failures_per_year_professional": (
        "the same builder, a bad series left out (6.8 %)",
        "同一厂商的数据，剔除一个问题系列（6.8%）",
    ),
    "why_failures_per_year_datacentre": (
        "220 of 16384 H100 stopped a job in 54 days by GPU or memory faults, 9 % a year; about half need a new part",
        "16384 张 H100 在 54 天内有 220 次因 GPU 或显存故障中断，年化 9%；约一半需要换件",
    ),
    "why_failures_per_year_unofficial": (
        "reworked boards: new solder, altered firmware, no figures published",
        "改装板：重新焊接、固件经修改，没有公开数据",
    ),
    "why_repair_ratio_official": (
        "the maker's warranty covers two to three years; shipping and standing still do not come back",
        "厂商质保两三年；运费和停机损失无法收回",
    ),
    "why_repair_ratio_unofficial": ("no warranty: the board is lost", "无质保：坏了就没了"),
    "why_stops_per_year": (
        "419 unplanned stops of 16384 H100 in 54 days, for each device",
        "16384 张 H100 在 54 天内 419 次意外中断，按每张卡折算",
    ),
    "why_horizon": ("usual time to write off such machines", "此类设备通常的折旧年限"),
    "why_use_per_day": (
        "a working day; an owner pays for the rest of the day too",
        "按一个工作日；其余时间机主照样承担折旧",
    ),
    "why_idle_ratio": ("the load asked for, without pauses", "按所要求的负载，没有空闲"),
    "why_spot_stops_per_day": (
        "AWS shows 5 to 20 % of GPU instances stopped in a month, traces of 2022 and 2023 one to thirty stops a day",
        "AWS 显示每月 5%–20% 的 GPU 实例被回收，2022–2023 年的记录则是每天 1–30 次",
    ),
    "why_spot_available_ratio": (
        "traces of 2022 and 2023 had machines 45 to 88 % of the time",
        "2022–2023 年的记录中有 45%–88% 的时间能拿到机器",
    ),
    "why_save_rate": (
        "a local NVMe disk or a fast object store, for each machine",
        "每台机器写本地 NVMe 或高速对象存储",
    ),
    "why_restart": ("getting a machine, starting containers, loading weights", "申请机器、启动容器、加载权重"),
    "why_load_time": ("a server that is to answer within a minute of its start", "服务启动后一分钟内可用"),
    "why_host_usd_desktop": (
        "processor, board, disk and case of a desktop with one or two slots, without memory and supply",
        "带一两个插槽的台式机：处理器、主板、硬盘、机箱，不含内存和电源",
    ),
    "why_host_usd_workstation": (
        "a board and processor with lanes for three or four cards, or for a data-centre board",
        "有足够通道接三四张卡或数据中心卡的主板和处理器",
    ),
    "why_host_usd_server_pcie": ("a rack server with eight slots, two processors", "八槽双路机架服务器"),
    "why_host_usd_server_sxm": (
        "a node of eight H100 was offered at 310,000 USD in 2024, eight boards cost about 240,000; parts alone 32,000",
        "2024 年八卡 H100 节点报价 31 万美元，八张卡约 24 万；其余零件成本 3.2 万",
    ),
    "why_memory_usd": (
        "32 GB of DDR5 sold at 326 USD in January 2026, and prices were rising",
        "2026 年 1 月 32 GB DDR5 售价 326 美元，且仍在上涨",
    ),
    "why_supply_usd": ("good power supplies, for what they can give", "优质电源，按额定功率计"),
    "why_adapter_usd": ("adapter and cooler for one SXM board", "一块 SXM 板的转接卡和散热器"),
    "why_host_power_desktop": ("processor, memory, fans and losses", "处理器、内存、风扇和损耗"),
    "why_host_power_workstation": ("processor, memory, fans and losses", "处理器、内存、风扇和损耗"),
    "why_host_power_server_pcie": ("two processors, memory, fans and losses", "双处理器、内存、风扇和损耗"),
    "why_host_power_server_sxm": (
        "nodes of eight H100 drew up to 8.4 kW, boards with 700 W each take 5.6 of it",
        "八卡 H100 节点最高 8.4 kW，其中八张 700 W 的卡占 5.6 kW",
    ),
    "why_draw_ratio_training": (
        "nodes of eight H100 drew 76 to 82 % of their rating in training",
        "八卡 H100 节点训练时的功耗为额定值的 76%–82%",
    ),
    "why_draw_ratio_prefill": ("matrix units run at the limit", "矩阵单元满载"),
    "why_draw_ratio_decode": (
        "an RTX 5060 Ti drew 96 % of its limit; larger cards with less to read draw less",
        "RTX 5060 Ti 实测为上限的 96%；读得少的大卡更低",
    ),
    "why_price_ratio_launch": (
        "shops ask more where cards are short, less when they are old",
        "缺货时店价更高，过时后更低",
    ),
    "why_price_ratio_third_party": ("a rough figure of one source", "单一来源的粗略估价"),
}
