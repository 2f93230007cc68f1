"""What `score` says."""

from __future__ import annotations

from typing import Final

MESSAGES: Final = {
    "metric": ("metric", "指标"),
    "rows": ("rows", "行数"),
    "predicted": ("predicted", "已预测"),
    "median": ("median error", "误差中位数"),
    "p90": ("90th pct", "90 分位"),
    "bias": ("bias", "偏差"),
    "inside": ("in interval", "落入区间"),
    "width": ("width", "区间宽度"),
    "oom_line": (
        "oom: {n} rows, balanced accuracy {accuracy}, OOM rows said to fit {false_fit}, fitting rows refused {false_oom}",
        "oom：{n} 行，平衡准确率 {accuracy}，OOM 行被判为可放下 {false_fit}，可放下的行被拒 {false_oom}",
    ),
    "bound_missed": ("bound not met: {line}", "未达到界限：{line}"),
}
