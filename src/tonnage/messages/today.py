"""What is said of today's stack under a plan."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "carries": ("carries over: {text}", "可沿用：{text}"),
    "changes": ("changes: {text}", "需更换：{text}"),
    "unknown": ("not known: {text}", "未知：{text}"),
    "driver_ok": ("driver {driver} serves {name}", "驱动 {driver} 支持 {name}"),
    "driver_old": (
        "driver {driver} is too old for {name}: {least} or newer",
        "驱动 {driver} 对 {name} 太旧：需要 {least} 或更新",
    ),
    "driver_new": ("driver {driver} has dropped {name}: {last} at most", "驱动 {driver} 已不支持 {name}：最高 {last}"),
    "driver_engine": (
        "driver {driver} is too old for {title} {version}, which needs R{branch}: {cures}",
        "驱动 {driver} 对 {title} {version} 太旧，后者需要 R{branch}：{cures}",
    ),
    "driver_update": ("install R{branch} or newer", "安装 R{branch} 或更新的驱动"),
    "driver_older": ("take {title} {version}", "改用 {title} {version}"),
    "driver_forward": (
        "start it with CUDA's compatibility libraries (package cuda-compat; data-centre cards only)",
        "使用 CUDA 兼容库启动（cuda-compat 包，仅限数据中心卡）",
    ),
    "driver_torch": (
        "torch {version} is the newest whose wheels driver {driver} starts; newer ones need R{branch}",
        "驱动 {driver} 能启动的最新 torch 是 {version}；更新的需要 R{branch}",
    ),
    "card_torch": (
        "torch {version} is the newest whose wheels hold code for {name}",
        "wheel 中仍含 {name} 代码的最新 torch 是 {version}",
    ),
    "or": (", or ", "，或"),
    "driver_other": ("{name} is served by another driver ({kind})", "{name} 使用另一种驱动（{kind}）"),
    "cuda_ok": ("CUDA {cuda} runs on {name}", "CUDA {cuda} 可在 {name} 上运行"),
    "cuda_old": (
        "CUDA {cuda} has no code for {name}: {least} or newer",
        "CUDA {cuda} 不含 {name} 的代码：需要 {least} 或更新",
    ),
    "cuda_new": ("CUDA {cuda} has dropped {name}: {last} at most", "CUDA {cuda} 已不支持 {name}：最高 {last}"),
    "cuda_other": ("no CUDA version of {name} is known", "没有 {name} 的 CUDA 版本记录"),
    "engine_ok": ("{name} stays", "{name} 保持不变"),
    "engine_also": (
        "{new} instead of {old}, which is supported on {name} as well",
        "用 {new} 代替 {old}（后者也支持 {name}）",
    ),
    "engine_new": ("{new} instead of {old}, which does not list {name}", "用 {new} 代替 {old}，后者未列出 {name}"),
    "precision_ok": ("{name} computes in {precision}", "{name} 支持 {precision} 计算"),
    "precision_no": ("{name} does not compute in {precision}: {formats}", "{name} 不支持 {precision} 计算：{formats}"),
    "strategy_ok": ("split as before: {names}", "并行方式不变：{names}"),
    "strategy_new": ("split by {new} instead of {old}", "并行方式由 {old} 改为 {new}"),
    "monitoring_ok": ("{tools} watch it as before", "{tools} 可继续使用"),
    "monitoring_foreign": ("{tools} do not see {name}", "{tools} 不支持 {name}"),
    "monitoring_dcgm": (
        "DCGM reads little of {name}: profiling and health checks are for data-centre cards, NVML has the rest",
        "DCGM 对 {name} 支持有限：性能剖析和健康检查仅限数据中心卡，其余用 NVML",
    ),
    "stages": ("in two stages: {now} now, {later} later", "分两步：现在 {now}，以后 {later}"),
}
