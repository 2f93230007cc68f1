"""What `tonnage plan --oracle` says."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "head": (
        "trace: {family} by transformers {transformers} on torch {torch}, {layers} of {num_layers} layers without data, {attention} attention, one device",
        "追踪：{family}，transformers {transformers}，torch {torch}；无数据运行 {layers} / {num_layers} 层，{attention} 注意力，单卡",
    ),
    "all_layers": ("all", "全部"),
    "and": (" and ", " 和 "),
    "load": (
        "{kind}, {num} x {seq_len:,} tokens, {weights} weights, {recompute}",
        "{kind}，{num} x {seq_len:,} 个 token，{weights} 权重，{recompute}",
    ),
    "recompute_none": ("nothing recomputed", "不重算"),
    "recompute_full": ("layers recomputed", "逐层重算"),
    "pool": ("pool", "项目"),
    "formula": ("formula", "公式"),
    "traced": ("traced", "追踪"),
    "apart": ("formula over trace", "公式相对追踪"),
    "row_weights": ("weights", "权重"),
    "row_gradients": ("gradients", "梯度"),
    "row_optimizer_states": ("optimizer states, masters", "优化器状态与主权重"),
    "row_kept_activations": ("activations kept for backward", "为反向保留的激活"),
    "row_logits": ("logits and loss at their fullest", "logits 与损失的峰值"),
    "row_allocated_peak": ("peak of tensors", "张量峰值"),
    "peak_in": ("the traced peak falls into: {phase}", "追踪到的峰值出现在：{phase}"),
    "not_stepped": (
        "this optimizer, or fp32 masters, are not traced: its states are the formulae's",
        "该优化器或 fp32 主权重不在追踪之列：其状态取自公式",
    ),
    "allocator": (
        "PyTorch's allocator, replayed: {allocated} allocated, {reserved} reserved ({ratio:.1%} unused; {expandable} with expandable_segments)",
        "PyTorch 分配器重放：已分配 {allocated}，已保留 {reserved}（{ratio:.1%} 未用；开启 expandable_segments 后为 {expandable}）",
    ),
    "unknown": (
        "no formula covers the family '{family}': what follows is traced, without step time or cost",
        "没有公式覆盖系列 '{family}'：以下为追踪结果，不含步时与成本",
    ),
    "fits": ("{model} on {where}: yes", "{model} 在 {where} 上：可以"),
    "short": ("{model} on {where}: no – {short} short", "{model} 在 {where} 上：不行——缺 {short}"),
    "recompute": ("recompute", "重算"),
    "micro_batch": ("micro-batch", "微批"),
    "memory": ("device memory", "显存"),
    "fullest": ("fullest in", "峰值阶段"),
    "none_fits": ("none", "无"),
    "parameters": (
        "{total} parameters, {trained} trained; weights, gradients and states shared by {num} devices",
        "{total} 参数，训练 {trained}；权重、梯度与状态由 {num} 张卡分担",
    ),
    "phase_start": ("start", "开始"),
    "phase_forward": ("forward", "前向"),
    "phase_backward_of_head_and_loss": ("backward of head and loss", "输出层与损失的反向"),
    "phase_backward_of_the_last_layer": ("backward of the last layer", "最后一层的反向"),
    "phase_backward_of_inner_layers": ("backward of inner layers", "中间层的反向"),
    "phase_backward_of_the_first_layer": ("backward of the first layer", "第一层的反向"),
    "phase_backward_of_the_embedding": ("backward of the embedding", "嵌入层的反向"),
    "phase_optimizer_step": ("optimizer step", "优化器更新"),
}
