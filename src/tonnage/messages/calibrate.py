"""What `calibrate` says."""

from __future__ import annotations

from typing import Final

MESSAGES: Final = {
    "quantity": ("quantity", "项目"),
    "predicted": ("predicted", "预测"),
    "measured": ("in the log", "日志"),
    "difference": ("difference", "差异"),
    "weights_bytes": ("weights on the fullest device", "最满设备上的权重"),
    "cache_bytes": ("cache", "缓存"),
    "cache_tokens": ("tokens that the cache holds", "缓存可容纳的 token 数"),
    "graph_bytes": ("captured graphs", "已捕获的计算图"),
    "compute_bytes": ("compute buffer", "计算缓冲区"),
    "nothing": ("the log tells nothing that the plan predicts", "日志中没有计划所预测的项目"),
}
