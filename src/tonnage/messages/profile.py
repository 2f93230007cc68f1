"""What is said of a machine's own measurements."""

from __future__ import annotations

from typing import Final

MESSAGES: Final = {
    "used": (
        "machine '{machine}' taught, in {num} file(s) until {day}: {quantities} (--no-profile leaves it out)",
        "采用机器“{machine}”截至 {day} 的 {num} 个文件的实测：{quantities}（--no-profile 可不用）",
    ),
    "non_torch_bytes": ("memory outside torch", "torch 之外的显存"),
    "context_bytes": ("memory outside the engine's buffers", "引擎缓冲区之外的显存"),
    "pool_bytes": ("what the cache pool loses", "缓存池的额外损失"),
    "weights_bytes": ("weights as loaded", "实际加载的权重"),
    "compute_buffer_bytes": ("compute buffer", "计算缓冲区"),
    "bandwidth_ratio": ("achieved memory bandwidth", "实际显存带宽"),
    "compute_ratio": ("achieved matrix rate", "实际矩阵算力"),
    "batch_ratio": ("time of a steady load", "稳定负载的耗时"),
    "host_bandwidth_ratio": ("achieved host bandwidth", "实际内存带宽"),
    "pcie_ratio": ("achieved PCIe rate", "实际 PCIe 速率"),
    "training_speed_ratio": ("achieved speed of training", "训练实际速度"),
    "col_number": ("no.", "编号"),
    "col_machine": ("machine", "机器"),
    "col_card": ("card", "显卡"),
    "col_engine": ("engine", "引擎"),
    "col_quantity": ("quantity", "项目"),
    "col_model": ("model", "模型"),
    "col_expected": ("expected", "预期"),
    "col_achieved": ("measured", "实测"),
    "col_believed": ("believed", "采信"),
    "col_evidence": ("evidence", "依据"),
    "not_believed": ("far off alone: not counted until another agrees", "单次偏差过大：有第二次印证前不采用"),
    "empty": (
        "nothing was taught yet: tonnage calibrate LOG… --plan plan.toml (or --model and --gpu) does",
        "尚无实测：可用 tonnage calibrate LOG… --plan plan.toml（或 --model 与 --gpu）",
    ),
    "kept": ("kept in {path}: {num} lesson(s)", "已写入 {path}：{num} 条"),
    "forgotten": ("forgotten: {num} lesson(s), {rest} left", "已忘记 {num} 条，剩 {rest} 条"),
    "not_kept": ("nothing was kept (--check)", "未写入（--check）"),
    "nothing_taught": ("{file}: agrees with nothing that can be taught", "{file}：没有可学习的项目"),
}
