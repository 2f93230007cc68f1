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
    "row": ("row", "行"),
    "measured": ("measured", "实测"),
    "told": ("predicted", "预测"),
    "error": ("error", "误差"),
    "source": ("source", "来源"),
    "engine": ("engine", "引擎"),
    "gpu": ("card", "显卡"),
    "worst": ("farthest off: {metric}", "误差最大：{metric}"),
    "refused_rows": ("not predicted:", "未预测："),
    "fault": (
        "{where}: {fault}; mend the row – until then it counts as not predicted",
        "{where}：{fault}；请修正此行，修正前按未预测计",
    ),
    "more_faults": ("… and {num} more rows that cannot be read", "……另有 {num} 行无法读取"),
    "unclaimed": (
        "{path}: {num} row(s) measure nothing that is predicted ({metrics})",
        "{path}：{num} 行没有可预测的量（{metrics}）",
    ),
    "refitting": (
        "{rows} rows: refitting without each of {num} {what}s; all shipped rows take about two minutes",
        "{rows} 行：逐一去掉 {num} 个 {what} 重新拟合；全部随附行约需两分钟",
    ),
    "bound_missed": ("bound not met: {line}", "未达到界限：{line}"),
}
