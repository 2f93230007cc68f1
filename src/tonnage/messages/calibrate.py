"""What `calibrate` says."""

from __future__ import annotations

from typing import Final

MESSAGES: Final = {
    "quantity": ("quantity", "项目"),
    "predicted": ("predicted", "预测"),
    "measured": ("measured", "实测"),
    "difference": ("difference", "差异"),
    "teaches": ("teaches", "用于修正"),
    "weights_bytes": ("weights on the fullest device", "最满设备上的权重"),
    "cache_bytes": ("cache", "缓存"),
    "cache_tokens": ("tokens that the cache holds", "缓存可容纳的 token 数"),
    "graph_bytes": ("captured graphs", "已捕获的计算图"),
    "compute_bytes": ("compute buffer", "计算缓冲区"),
    "activation_bytes": ("activations of the start-up profile", "启动剖析的激活值"),
    "non_torch_bytes": ("memory outside torch", "torch 之外的显存"),
    "context_bytes": ("memory outside the engine's buffers", "引擎缓冲区之外的显存"),
    "decode_tps_single": ("decoding, tokens/s of one request", "单请求解码 token/s"),
    "prefill_tps": ("prompt, tokens/s", "预填充 token/s"),
    "throughput_tps": ("throughput, tokens/s", "吞吐 token/s"),
    "ttft_seconds": ("time to the first token", "首 token 时间"),
    "tpot_seconds": ("time per output token", "每 token 时间"),
    "ttft_ms": ("time to the first token, ms", "首 token 时间（毫秒）"),
    "tpot_ms": ("time per output token, ms", "每 token 时间（毫秒）"),
    "weights_gib": ("weights, GiB", "权重（GiB）"),
    "kv_cache_gib": ("cache, GiB", "缓存（GiB）"),
    "kv_cache_tokens": ("tokens that the cache holds", "缓存可容纳的 token 数"),
    "total_used_mib": ("memory taken, MiB", "已用显存（MiB）"),
    "peak_mem_gib": ("peak memory, GiB", "显存峰值（GiB）"),
    "tokens_per_s_per_gpu": ("tokens/s of a card", "单卡 token/s"),
    "step_time_s": ("time of a step, s", "每步时间（秒）"),
    "kind_start_up_log": ("start-up log", "启动日志"),
    "kind_serving_benchmark": ("serving benchmark", "服务压测"),
    "kind_measured_run": ("measured run", "实测运行"),
    "title": ("{file}: {kind}, {engine}, {model}", "{file}：{kind}，{engine}，{model}"),
    "nothing": ("the file tells nothing that the plan predicts", "文件中没有计划所预测的项目"),
    "other_model": (
        "warning: the file is of {theirs}, the plan of {ours}",
        "注意：文件来自 {theirs}，计划是 {ours}",
    ),
    "used_by": ("later plans take it: {command}", "之后的计划会采用：{command}"),
}
