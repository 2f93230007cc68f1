"""What `tonnage model` says."""

from typing import Final

MESSAGES: Final = {
    "shape": (
        "{layers} layers · hidden size {hidden:,} · vocabulary {vocabulary:,}",
        "{layers} 层 · 隐藏维度 {hidden:,} · 词表 {vocabulary:,}",
    ),
    "context": ("context up to {tokens:,} tokens", "上下文最长 {tokens:,} 个 token"),
    "source_catalogue": ("from the built-in catalogue; configuration: {source}", "来自内置目录；配置出处：{source}"),
    "source_reconstructed": (
        "from the built-in catalogue, reconstructed from published figures: {source}",
        "来自内置目录，按公开数据重建：{source}",
    ),
    "source_config": ("from the configuration {source}", "来自配置文件 {source}"),
    "source_header": ("counted from the header of the weights: {source}", "按权重文件头统计：{source}"),
    "kind_attention": (
        "{times} × attention, {heads} heads, {kv_heads} for keys and values",
        "{times} × 注意力，{heads} 个头，键值 {kv_heads} 个头",
    ),
    "kind_window": (
        "{times} × attention over a window of {window:,} tokens, {heads} heads, {kv_heads} for keys and values",
        "{times} × 滑动窗口注意力（{window:,} 个 token），{heads} 个头，键值 {kv_heads} 个头",
    ),
    "kind_latent": (
        "{times} × latent attention (MLA), rank {rank}, {heads} heads",
        "{times} × 潜在注意力（MLA），秩 {rank}，{heads} 个头",
    ),
    "kind_delta": ("{times} × linear attention (gated delta net)", "{times} × 线性注意力（门控 DeltaNet）"),
    "kind_mamba": ("{times} × state space (Mamba)", "{times} × 状态空间（Mamba）"),
    "kind_convolution": ("{times} × short convolution", "{times} × 短卷积"),
    "kind_lightning": ("{times} × linear attention (lightning)", "{times} × 线性注意力（Lightning）"),
    "kind_mlp": ("{times} × dense feed-forward of {width:,}", "{times} × 稠密前馈，宽 {width:,}"),
    "kind_moe": (
        "{times} × {experts} experts, {top_k} of them for a token",
        "{times} × {experts} 个专家，每个 token 用 {top_k} 个",
    ),
    "kind_moe_shared": (
        "{times} × {experts} experts, {top_k} of them and a shared one for a token",
        "{times} × {experts} 个专家，每个 token 用 {top_k} 个，另有共享专家",
    ),
    "parameters": ("Parameters", "参数量"),
    "total": ("total", "总计"),
    "active": ("active, a token", "每 token 激活"),
    "active_without_embedding": ("  without embedding", "  不含词嵌入"),
    "active_unknown": ("not known from a header", "仅凭文件头无法得知"),
    "moe": (
        (
            "A mixture of experts: all {total} parameters have to be in memory, on the card or on the host. The {active} "
            "active ones are only what one token touches: they set the speed, not the size."
        ),
        "混合专家模型：全部 {total} 参数都必须驻留内存（显存或主存）。激活的 {active} 只是单个 token 用到的部分：它决定速度，不决定占用。",
    ),
    "embedding": ("embedding", "词嵌入"),
    "attention": ("attention", "注意力"),
    "linear_attn_ssm": ("linear attention, state space", "线性注意力、状态空间"),
    "router": ("router", "路由"),
    "experts": ("routed experts", "路由专家"),
    "shared_experts": ("shared experts", "共享专家"),
    "shared_expert_gate": ("shared experts' gate", "共享专家门控"),
    "mlp": ("feed-forward", "前馈"),
    "norm": ("norms", "归一化"),
    "lm_head": ("head", "输出头"),
    "vision_audio": ("vision and audio", "视觉与音频"),
    "other": ("other", "其他"),
    "tied": ("head and embedding are the same weights, counted once", "输出头与词嵌入共用权重，只计一次"),
    "cache": ("Cache of one sequence, 2 bytes a number", "单条序列的缓存（每个数 2 字节）"),
    "cache_growing": ("{size} a token", "每个 token {size}"),
    "cache_window": (
        "{size} a token, of the last {window:,} tokens only",
        "每个 token {size}，只保留最近 {window:,} 个 token",
    ),
    "cache_state": ("{size} of fixed state", "固定状态 {size}"),
    "cache_at": ("at {tokens:,} tokens", "{tokens:,} 个 token"),
    "unknown_cache": (
        "not known: the header names the tensors, not how many heads share them",
        "未知：文件头只列出张量，没有说明头数",
    ),
    "flops": ("Operations", "计算量"),
    "flops_forward": (
        "{flop} forward for a token of a sequence of {tokens:,} (causal)",
        "长度 {tokens:,} 的序列中每个 token 前向 {flop}（因果）",
    ),
    "weights": ("Weights", "权重"),
    "format": ("format", "格式"),
    "bits": ("bits", "位宽"),
    "gib": ("GiB", "GiB"),
    "is_checkpoint": ("this checkpoint", "当前检查点"),
    "gguf_note": (
        "GGUF formats are llama.cpp's mixes of the text model; the encoder is a file of its own, {size} in f16.",
        "GGUF 各格式是 llama.cpp 的混合量化，只含文本模型；编码器是单独的文件，f16 为 {size}。",
    ),
    "warning": ("note: {text}", "注意：{text}"),
    "no_model": ("name a model: `tonnage model Qwen/Qwen3.5-27B`", "请给出模型：`tonnage model Qwen/Qwen3.5-27B`"),
}
