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
    "oom_none": ("oom: {n} rows, none predicted", "oom：{n} 行，均未预测"),
    "no_kind": ("kind '{kind}' is not modelled", "不支持的 kind“{kind}”"),
    "no_shape": (
        "the model's shape is not stated, and its name is not in the catalogue",
        "未给出模型结构，目录中也没有该模型",
    ),
    "no_device": ("the device is not named: its bandwidth is not known", "未给出设备，带宽未知"),
    "no_model": ("the model's shape is not known", "模型结构未知"),
    "no_context": (
        "the context is not stated, and the cache is as long as it is",
        "未给出上下文长度，而缓存取决于它",
    ),
    "no_memory": ("the device's memory is not known", "设备显存未知"),
    "no_figure": ("the engine prints no such figure", "该引擎不输出此项"),
    "wanted": ("{name} is {value}, {what}", "{name} 是 {value}，{what}"),
    "a_number": ("a number is wanted", "应为数字"),
    "cannot_be": ("it cannot be so", "不可能"),
    "an_object": ("an object is wanted", "应为对象"),
    "a_switch": ("true or false is wanted", "应为 true 或 false"),
    "a_text": ("a text is wanted", "应为文本"),
    "no_format": ("no format of weights is called so", "没有这样的权重格式"),
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
