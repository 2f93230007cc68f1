"""Why a way is ruled out before it is estimated."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "too_few_devices": (
        "the layout needs {needed} devices, there are {there}",
        "该布局需要 {needed} 张卡，只有 {there} 张",
    ),
    "heads": ("{heads} heads cannot be split {tp} ways", "{heads} 个注意力头不能被 {tp} 整除"),
    "layers": ("{layers} layers are fewer than {stages} pipeline stages", "{layers} 层少于 {stages} 个流水线阶段"),
    "no_experts": ("a dense model has no experts to split {ep} ways", "稠密模型没有可分成 {ep} 份的专家"),
    "experts": ("{experts} experts cannot be split {ep} ways", "{experts} 个专家不能被 {ep} 整除"),
    "expert_group": (
        "{ranks} ranks that share a stage cannot hold {ep} expert groups",
        "同一阶段的 {ranks} 个进程不能组成 {ep} 路专家并行",
    ),
    "no_experts_to_move": ("a dense model has no experts to keep on the host", "稠密模型没有可放到主机内存的专家"),
    "compute": ("{name} does not compute in {compute}", "{name} 不支持 {compute} 计算"),
    "batch": (
        "a global batch of {total} is no multiple of {one} (micro-batch x data parallel)",
        "全局批量 {total} 不是 {one}（微批量 x 数据并行）的整数倍",
    ),
    "no_gguf": ("{name} does not run this GGUF file ({own})", "{name} 不能运行这个 GGUF 文件（{own}）"),
    "no_method": ("{name} does not do {method}", "{name} 不支持 {method}"),
    "no_vendor": ("{name} does not run on {device}", "{name} 不支持 {device}"),
    "lacks": ("{name} has no {feature}, or does not say so", "{name} 没有（或未标明）{feature}"),
}
