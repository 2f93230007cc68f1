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
    "searching": ("looking at every way to do it …", "正在考察所有方案……"),
    "looked": (
        "{num} candidates looked at; out before any estimate, most of all: {reasons}",
        "共考察 {num} 个候选；估算前排除的主要原因：{reasons}",
    ),
    "took": ("{num} because {reason} ({name})", "{num} 个因为{reason}（{name}）"),
    "kv_heads": (
        "{heads} key-value heads cannot be split {tp} ways",
        "{heads} 个键值头不能被 {tp} 整除",
    ),
    "tensor_nodes": (
        "tensor parallel {tp} would reach over machines of {num} cards (--tp {tp} asks for it all the same)",
        "张量并行 {tp} 会跨越每台 {num} 张卡的机器（可用 --tp {tp} 强制）",
    ),
    "states": (
        "{name} does not split recurrent layers over the context",
        "{name} 不支持对循环层做上下文并行",
    ),
    "tokens": (
        "sequences of {tokens} tokens cannot be split into {num} parts",
        "长度 {tokens} 的序列不能分成 {num} 份",
    ),
    "uneven": (
        "{layers} layers cannot be split into {stages} equal stages, embedding and loss counted or not",
        "{layers} 层不能均分为 {stages} 个阶段（计不计嵌入和损失都不行）",
    ),
    "uneven_rest": (
        "{layers} layers are left for {stages} equal stages beside layout.first_stage_layers and last_stage_layers",
        "除 layout.first_stage_layers 和 layout.last_stage_layers 外，余下 {layers} 层不能均分为 {stages} 个阶段",
    ),
    "zero_pipeline": (
        "{name} does not combine ZeRO stage {stage} with a pipeline",
        "{name} 不支持 ZeRO 阶段 {stage} 与流水线并行同用",
    ),
    "interleaved": (
        "interleaving takes micro-batches in multiples of {pp} pipeline ranks",
        "交错流水线要求微批次数是 {pp} 个流水线进程的整数倍",
    ),
    "unfilled": (
        "{name} starts no pipeline with fewer micro-batches than stages",
        "{name} 要求微批次数不少于流水线阶段数",
    ),
    "groups": (
        "the layers of a stage are no multiple of {num}, so inputs of every {num} layers cannot be kept",
        "每阶段的层数不是 {num} 的整数倍，不能每 {num} 层保留一次输入",
    ),
    "no_groups": ("{name} recomputes every layer or none", "{name} 只能逐层重计算或不重计算"),
    "no_way": ("{name} has no {way}", "{name} 不支持 {way}"),
    "no_interleaving": ("{name} does not interleave stages", "{name} 不支持交错流水线"),
    "no_zero": ("{name} has no ZeRO stage {stage}", "{name} 没有 ZeRO 阶段 {stage}"),
    "no_mode": ("{name} has no recomputation '{mode}'", "{name} 没有 “{mode}” 重计算"),
    "no_offload": ("{name} keeps no {what} on the host", "{name} 不能把 {what} 放到主机内存"),
    "unpredicted_offload": (
        "{name} keeps {what} on the host in a way of its own that is not predicted",
        "{name} 用自己的方式把 {what} 放到主机内存，其用量尚不能预测",
    ),
    "offload_devices": (
        "{name} keeps quantised weights in host memory only on {num} cards or more: FSDP loads them whole onto one card",
        "{name} 至少要 {num} 张卡才能把量化权重放到主机内存：单卡时 FSDP 会把它们整个载入显存",
    ),
    "offload_zero": (
        "{name} moves weights to the host only where they are sharded (ZeRO 3), or on one card",
        "{name} 只在权重分片（ZeRO 3）或单卡时才能把权重卸载到主机",
    ),
    "no_nvme": ("{name} swaps nothing with a drive", "{name} 不能与 NVMe 盘交换数据"),
    "nvme_zero": (
        "{name} swaps with a drive at ZeRO 3 only; at 1 and 2 it keeps in host memory what it should swap",
        "{name} 只在 ZeRO 3 与 NVMe 盘交换；阶段 1 和 2 会把数据留在主机内存",
    ),
    "host_optimizer": (
        "{name} steps {known} in host memory, not {optimizer}",
        "{name} 在主机内存中只能更新 {known}，不支持 {optimizer}",
    ),
    "no_optimizer": (
        "{name} has no {optimizer}, only {known}",
        "{name} 没有 {optimizer}，只有 {known}",
    ),
    "no_drive": (
        "no drive is named: write it to the machine, as --host '64 GiB ddr5-5600 x2, nvme 2 TB 7/5 GB/s'",
        "没有指明 NVMe 盘：请写进主机，例如 --host '64 GiB ddr5-5600 x2, nvme 2 TB 7/5 GB/s'",
    ),
    "small_drive": (
        "{needed} would lie on a machine's drive, which has {free}",
        "每台机器要在盘上放 {needed}，而盘只有 {free}",
    ),
    "no_method": ("{name} does not do {method}", "{name} 不支持 {method}"),
    "no_weights": (
        "{name} does not train on {weights} weights, only on {known}",
        "{name} 不能在 {weights} 权重上训练，只支持 {known}",
    ),
    "frozen_only": (
        "{weights} weights cannot be trained, only frozen below adapters (--finetune lora)",
        "{weights} 权重不能被训练，只能冻结后加适配器（--finetune lora）",
    ),
    "nothing": ("{path} says nothing without {without}", "没有 {without} 时 {path} 不起作用"),
    "no_vendor": ("{name} does not run on {device}", "{name} 不支持 {device}"),
    "lacks": ("{name} has no {feature}, or does not say so", "{name} 没有（或未标明）{feature}"),
}
