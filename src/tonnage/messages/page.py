"""What the page of an answer says."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "title": ("Ways to have {model}", "{model} 的可行方案"),
    "plans": ("the plans", "方案"),
    "apart": ("where #{rank} spends its memory and time", "#{rank} 的显存和时间花在哪里"),
    "money": ("whose prices, and what is assumed of money", "价格来源与假设"),
    "warnings": ("notes", "注意"),
    "chart_price": ("speed against the price of the whole machine", "速度与整机价格"),
    "chart_rent": ("speed against rent", "速度与租金"),
    "chart_bits": ("speed against bits of a weight", "速度与权重位数"),
    "chart_memory": ("speed against device memory", "速度与显存"),
    "chart_key": (
        "numbered: the plans below; filled: what nothing beats in both respects; point at one for its name",
        "带编号：下表中的方案；实心：在两个方面都没有更优的；将指针移到点上可看名称",
    ),
    "axis_price": ("to buy, the whole machine (USD)", "整机价格（美元）"),
    "axis_rent": ("rent of an hour (USD)", "每小时租金（美元）"),
    "axis_bits": ("bits of a weight", "每权重位数"),
    "axis_memory": ("memory of the fullest device (GiB)", "最满一张卡的显存（GiB）"),
    "axis_rate": ("tokens a second", "token/s"),
    "col_rank": ("#", "#"),
    "col_gpu": ("hardware", "硬件"),
    "col_engine": ("engine", "引擎"),
    "col_software": ("software", "软件"),
    "col_weights": ("weights", "权重"),
    "col_place": ("where it lives", "放置"),
    "col_device": ("device memory", "显存"),
    "col_rate": ("tokens/s", "token/s"),
    "col_ttft": ("first token", "首 token"),
    "col_step": ("step", "每步"),
    "col_buy": ("to buy, whole", "整机价格"),
    "col_rent": ("rent, an hour", "每小时租金"),
    "written": ("{path}: a page of {num} plans", "{path}：{num} 个方案的页面"),
    "sheet": ("{path}: a table of {num} plans", "{path}：{num} 个方案的表格"),
}
