"""What `tonnage explain` says."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "title": ("{model} with {engine}: {place}", "{model}，{engine}：{place}"),
    "device": ("memory of the fullest device", "最满的一张卡的显存"),
    "host": ("memory of the host", "主机内存"),
    "decode_step": ("one decode step", "一个解码步"),
    "optimizer_step": ("one optimizer step", "一个优化器步"),
    "performance": ("what comes out", "性能"),
    "room": ("how far it reaches, each alone", "还能放多大（各项单独计）"),
    "surely": ("{best} (surely {surely})", "{best}（稳妥 {surely}）"),
    "job": ("the whole job, {num} tokens", "整个任务，{num} 个 token"),
    "constants": ("constants that it hangs on", "影响最大的标定常数"),
    "constant": (
        "{value} ({low} to {high}); its range moves memory by {memory} %, time by {time} %",
        "{value}（{low} 到 {high}）；取值范围使显存变化 {memory}%，时间变化 {time}%",
    ),
    "evidence": (
        "{rows} measured rows, most from {sources}; prior: {basis}",
        "{rows} 条实测数据，主要来自 {sources}；先验：{basis}",
    ),
    "cost": ("money", "费用"),
    "storage": ("storage", "存储"),
    "power": ("power limits (nvidia-smi -pl, needs root)", "功耗上限（nvidia-smi -pl，需要 root）"),
    "cap": (
        "{watts} W: {speed} % of the speed ({low} % at least), {joules} J a token",
        "{watts} W：速度的 {speed}%（至少 {low}%），每 token {joules} J",
    ),
    "cap_own": ("measured on {gpu}", "在 {gpu} 上实测"),
    "cap_borrowed": (
        "no curve of this card: that of {gpu} by share of the limit, the loss may be twice as large",
        "没有该卡的曲线：按上限比例借用 {gpu} 的曲线，损失可能翻倍",
    ),
    "of": ("{used} of {capacity}, {free} left", "{used} / {capacity}，剩余 {free}"),
    "over": ("{used} of {capacity}, {short} short", "{used} / {capacity}，缺 {short}"),
    "interval": ("{best} (80 % interval {low} – {high})", "{best}（80% 区间 {low} – {high}）"),
    "formula": ("formula {formula}", "公式 {formula}"),
    "source": ("source: {source}", "来源：{source}"),
    "assumptions": ("assumed", "假设"),
    "warnings": ("mind", "注意"),
    "sources": ("sources", "来源"),
    "request": ("asked: {command}", "请求：{command}"),
    "written": ("{path}: the page", "{path}：网页已写好"),
    "col_item": ("item", "项目"),
    "col_value": ("how much", "数量"),
    "col_share": ("share", "占比"),
    "col_meaning": ("what it is", "含义"),
}
