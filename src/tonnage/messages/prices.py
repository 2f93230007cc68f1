"""What `tonnage prices` says."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "buy": ("to buy, one device, US dollars", "购入单价（美元）"),
    "rent": ("to rent, US dollars an hour", "租用（美元/小时）"),
    "col_gpu": ("gpu", "显卡"),
    "col_buy": ("price", "价格"),
    "col_kind": ("by", "来源"),
    "col_day": ("day", "日期"),
    "col_num": ("num", "数量"),
    "col_hour": ("machine", "整机"),
    "col_each": ("each", "每卡"),
    "col_spot": ("spot", "竞价"),
    "col_provider": ("provider", "提供商"),
    "col_instance": ("instance", "实例"),
    "col_region": ("region", "区域"),
    "kind_given": ("you", "您"),
    "kind_own": ("you", "您"),
    "kind_launch": ("the maker, at launch", "厂商首发价"),
    "kind_third_party": ("a third party's estimate", "第三方估价"),
    "none": (
        "no price on record; `--price GPU=AMOUNT` gives a plan one, `tonnage prices import FILE` keeps it",
        "没有价格记录；可用 `--price GPU=金额` 为单次规划指定，或用 `tonnage prices import FILE` 保存",
    ),
    "rates": ("1 USD = {list}, {day}", "1 USD = {list}，{day}"),
    "old": (
        "! older than 60 days: `tonnage prices refresh` fetches today's rents, --price and `import` set prices to buy",
        "! 已超过 60 天：`tonnage prices refresh` 更新租金，--price 或 `import` 更新购买价",
    ),
    "file": ("your own prices: {path}", "您的价格文件：{path}"),
    "fetched": (
        "{source} {provider}: {num} prices, {left_out} rows left out",
        "{source} {provider}：{num} 条价格，略过 {left_out} 行",
    ),
    "failed": ("{source} {provider}: {reason}", "{source} {provider}：{reason}"),
    "refreshed": ("{num} prices in {path}", "已写入 {num} 条价格：{path}"),
    "imported": ("{num} prices added to {path}", "已添加 {num} 条价格：{path}"),
}
