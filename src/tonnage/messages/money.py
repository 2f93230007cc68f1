"""What is said of money: assumptions with their reasoning, prices with their age, routes, power caps."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "title": ("money, in US dollars", "费用（美元）"),
    "title_in": ("money, in {code} (1 USD = {rate} {code})", "费用（{code}，1 美元 = {rate} {code}）"),
    "col_buy_usd": ("to buy, USD", "整机购入（美元）"),
    "col_rank": ("#", "#"),
    "col_rent": ("rent, an hour", "租金/小时"),
    "col_million": ("a million tokens", "每百万 token"),
    "col_job": ("the job", "整个任务"),
    "col_buy": ("to buy, whole", "整机购入"),
    "col_own_hour": ("owning, an hour in use", "自有：每使用小时"),
    "col_own_million": ("owning, a million tokens", "自有：每百万 token"),
    "col_even": ("owning pays from", "自有划算起点"),
    "never": ("never", "始终租更省"),
    "no_spot": ("#{rank}: nobody on record offers these as spot machines", "#{rank}：没有该机型的竞价实例报价"),
    "spot_never": (
        "#{rank}: so many machines are taken away so often that the job would not finish on spot",
        "#{rank}：所需机器太多、回收太频繁，用竞价实例无法完成任务",
    ),
    "spot_job": (
        "#{rank}: done after {wall} on spot machines, at worst {latest}; held for {held}; save every {every}",
        "#{rank}：用竞价实例 {wall} 完成，最坏 {latest}；占用 {held}；每 {every} 保存一次",
    ),
    "spot_saves": (
        "#{rank}: spot saves {best} % ({low} to {high} %) against on demand, interruptions counted",
        "#{rank}：计入中断后，竞价实例比按需节省 {best}%（{low} 至 {high}%）",
    ),
    # the ways side by side
    "routes": ("ways to have it, side by side", "各种路线对比"),
    "unpriced": (
        "price unknown, within the budget below so many {code} each (--price)",
        "价格未知，单价低于以下 {code} 数即在预算内（--price）",
    ),
    "more": ("{list} and {num} more, slower (--json lists all)", "{list}，另有 {num} 种更慢的（--json 列出全部）"),
    "col_way": ("way", "路线"),
    "col_gpu": ("hardware", "硬件"),
    "col_rate": ("tokens/s", "token/s"),
    "way_consumer": ("consumer card", "消费级显卡"),
    "way_datacentre": ("data-centre card in a workstation", "工作站装数据中心卡"),
    "way_hybrid": ("CPU and GPU together", "CPU–GPU 混合"),
    "way_professional": ("professional card", "专业卡"),
    "way_unified": ("machine with unified memory", "统一内存整机"),
    "way_rent": ("rent", "租用"),
    "way_api": ("call an API, buy nothing", "调用 API，不买硬件"),
    "of_way": ("{way}: {text}", "{way}：{text}"),
    "route_none": ("nothing found", "没有找到"),
    "route_unpriced": ("price unknown", "价格未知"),
    "route_unofficial": (
        "an unofficial board: no warranty, altered firmware, hardly sold again",
        "非官方改装卡：无质保、固件经修改、难以转售",
    ),
    "route_adapter": (
        "on adapters: {slot} GB/s between boards instead of {fabric} over NVLink, {lost} % less; memory stays at {memory} GB/s",
        "使用转接卡：卡间 {slot} GB/s，而 NVLink 为 {fabric}，减少 {lost}%；显存带宽仍为 {memory} GB/s",
    ),
    "route_adapter_one": (
        (
            "on an adapter: its memory stays at {memory} GB/s; a second board would meet it at {slot} GB/s over PCIe "
            "instead of {fabric} over NVLink, {lost} % less"
        ),
        "使用转接卡：显存带宽仍为 {memory} GB/s；若加第二块，卡间走 PCIe {slot} GB/s，而 NVLink 为 {fabric}，减少 {lost}%",
    ),
    "route_below": (
        "of unknown price: {num} x {gpu}, {rate} tokens/s, within the budget below {most} each (--price)",
        "价格未知：{num} 张 {gpu}，{rate} token/s，单价低于 {most} 即在预算内（--price）",
    ),
    "route_adapter_plain": (
        "on adapters: boards meet over PCIe; memory is as fast as ever",
        "使用转接卡：卡间走 PCIe；显存带宽不受影响",
    ),
    "route_api": (
        "cheaper where it asks less than {usd} a million tokens, input and output alike",
        "若其价格低于每百万 token {usd}（输入输出同价计）则更省",
    ),
    "route_api_unknown": ("no price to hold it against", "没有可比价格"),
    # whose prices, and how old
    "sxm_board": (
        "{name}: such boards are sold four or eight to a baseboard; fewer can be rented, hardly bought",
        "{name}：这类板卡通常按 4 或 8 块整套出售；少量只能租，很难单买",
    ),
    "rent": (
        "{name}: rent as {provider} asked in {day} ({instance}, {num} of it)",
        "{name}：租金取自 {provider}，{day}（{instance} × {num}）",
    ),
    "rent_spot": (
        "{name}: spot price as {provider} asked in {day} ({instance}, {num} of it)",
        "{name}：竞价实例价格取自 {provider}，{day}（{instance} × {num}）",
    ),
    "rent_apart": (
        "nobody on record rents {num} x {name} in one machine, {most} at most: work that splits a layer over them will not run so",
        "记录中没有单机 {num} 张 {name} 的出租，最多 {most} 张：需要跨卡切分的任务不能这样运行",
    ),
    "rent_mixed": (
        "nobody rents such a mix of cards: the sum of their rents",
        "没有这种混合显卡的出租：按各自租金相加",
    ),
    "buy_given": ("{name}: the price you gave", "{name}：按您给的价格"),
    "buy_own": ("{name}: your own price of {day}", "{name}：您记录的价格，{day}"),
    "buy_launch": ("{name}: price at launch, {day} (--price)", "{name}：首发价，{day}（--price）"),
    "buy_third_party": ("{name}: a third party's estimate of {day} (--price)", "{name}：第三方估价，{day}（--price）"),
    "buy_unknown": ("{name}: price unknown (--price {slug}=...)", "{name}：价格未知（--price {slug}=...）"),
    "old_rents": (
        "rents more than 60 days old: {list} (`tonnage prices refresh` fetches today's)",
        "租金数据已超过 60 天：{list}（`tonnage prices refresh` 可更新）",
    ),
    "old_purchases": (
        "prices to buy more than 60 days old: {list} (--price gives today's)",
        "购买价格已超过 60 天：{list}（用 --price 给出当前价）",
    ),
    "rate": (
        "1 USD = {value} {currency}, reference rate of {day} (--rate)",
        "1 USD = {value} {currency}，{day} 参考汇率（--rate）",
    ),
    "rate_given": ("1 USD = {value} {currency}, as you say", "1 USD = {value} {currency}，由您给定"),
    "assumed": (
        "{name} {value} ({low} to {high}): {why} (--assume {key}=...)",
        "{name} {value}（{low} 至 {high}）：{why}（--assume {key}=...）",
    ),
    "given": ("{name} {value}, as you say", "{name} {value}，由您给定"),
    "name_tariff": ("electricity", "电价"),
    "name_pue": ("cooling and losses of the building, a factor of", "机房能效系数（PUE）"),
    "name_kept_per_year": ("share of its value that is kept in a year", "每年保值比例"),
    "name_failures_per_year": ("failures in a year", "年故障率"),
    "name_repair_ratio": ("share of the price that a failure costs", "每次故障损失占价格的比例"),
    "name_stops_per_year": ("stops by faults in a year, a device", "每卡每年因故障中断次数"),
    "name_horizon": ("from purchase to sale", "从购入到转售"),
    "name_use_per_day": ("use", "使用时长"),
    "name_idle_ratio": ("share of the paid time without work", "空闲时间占比"),
    "name_spot_stops_per_day": ("spot machines are taken away", "竞价实例被回收"),
    "name_spot_available_ratio": ("share of the time in which spot machines can be had", "竞价实例可获得的时间比例"),
    "name_save_rate": ("a machine writes a checkpoint at", "每台机器写检查点的速率"),
    "name_restart": ("starting again takes", "重新启动耗时"),
    "name_load_time": ("loading the weights may take", "加载权重允许的时间"),
    "name_host_usd": ("machine around the cards", "主机（不含显卡）"),
    "name_memory_usd": ("host memory", "主机内存"),
    "name_supply_usd": ("power supply", "电源"),
    "name_adapter_usd": ("adapter and cooler, each", "转接卡和散热器，每块"),
    "name_host_power": ("the machine without its cards draws", "主机（不含显卡）功耗"),
    "name_draw_ratio": ("share of its power limit that a card draws", "显卡实际功耗占上限的比例"),
    "name_price_ratio": ("price paid over the price on record", "成交价与记录价之比"),
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
