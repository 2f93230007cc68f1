"""How a plan stands: the limit that binds, the next best, what speaks against it."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "binds": ("nearest limit: {what} {percent} %", "最接近的限制：{what} {percent}%"),
    "binds_upper": (
        "nearest limit: {what} {percent} % at the upper end of the estimate",
        "最接近的限制：{what} {percent}%（按误差上限）",
    ),
    "limit_device": ("device memory", "显存"),
    "limit_host": ("host memory", "主机内存"),
    "limit_ttft": ("--ttft", "--ttft"),
    "limit_tpot": ("--tpot", "--tpot"),
    "limit_deadline": ("--deadline", "--deadline"),
    "limit_budget": ("--budget", "--budget"),
    "limit_rent": ("--rent", "--rent"),
    "limit_spend": ("--spend", "--spend"),
    "limit_power": ("--max-power", "--max-power"),
    "rival": ("next best: {name}", "次优：{name}"),
    "rival_behind": ("next best: {name}, {percent} % behind", "次优：{name}，差 {percent}%"),
    "no_rival": ("nothing else fits behind it", "没有其他可行方案"),
    "not_listed": (
        "{name} is not on the list of cards that {engine} supports",
        "{name} 不在 {engine} 官方支持的显卡列表中",
    ),
    "beyond": (
        "{way} {value} is wider than any layout that was measured ({most}): its speed is extrapolated",
        "{way} {value} 超出已测量的范围（{most}）：速度为外推值",
    ),
    "beyond_offload": (
        "what is moved to hosts was measured on up to {most} cards only: its speed is extrapolated",
        "卸载到主机的方案最多只在 {most} 张卡上测量过：速度为外推值",
    ),
    "beyond_devices": (
        "{num} cards are more than any measured job had ({most}): its speed is extrapolated",
        "{num} 张卡超过已测量的最大规模（{most}）：速度为外推值",
    ),
    "small_cache": (
        "a cache in {kv}: what lies far back in a long context is remembered less exactly",
        "缓存为 {kv}：长上下文中较早的内容会记得不准确",
    ),
    "narrow": (
        "multiplies in {compute}: hold the loss against a 16-bit run before a long one",
        "以 {compute} 计算：长时间训练前请先与 16 位训练的损失对比",
    ),
    "loses_updates": (
        "pure {weights} weights and states: small updates are lost to rounding (arXiv:2010.06192)",
        "权重和优化器状态全为 {weights}：较小的更新会因舍入而丢失（arXiv:2010.06192）",
    ),
    "moe_serve": (
        "a mixture of experts: fewer engines and formats support it than a dense model, and its speed falls as batches touch more experts",
        "混合专家模型：支持的引擎和格式比稠密模型少，批量增大时触及更多专家，速度下降",
    ),
    "moe_train": (
        "a mixture of experts: the router needs a balancing loss and its own recipe; a dense model's does not carry over",
        "混合专家模型：路由需要均衡损失和专门的训练配方，稠密模型的配方不能照搬",
    ),
    "spot": ("spot machines may be taken away at any time", "竞价实例可能随时被收回"),
    "all": ("all of them: {text}", "以上全部：{text}"),
}
