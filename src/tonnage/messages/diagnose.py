"""What `diagnose` says beside the rules' own texts."""

from __future__ import annotations

from typing import Final

MESSAGES: Final = {
    "cause": ("cause", "原因"),
    "also_found": ("also found", "另外发现"),
    "evidence": ("evidence", "证据"),
    "cures": ("what to do", "处理办法"),
    "against": ("against it", "不支持此结论的情况"),
    "followed": ("consequences", "后果"),
    "critical": ("critical", "严重"),
    "warning": ("warning", "警告"),
    "info": ("for information", "提示"),
    "confidence": ("confidence {value:.0%}", "置信度 {value:.0%}"),
    "ranks": ("rank {ranks}", "rank {ranks}"),
    "times": ("{num} lines", "{num} 行"),
    "nothing": ("No known failure was found.", "未发现已知故障。"),
    "looked_at": ("looked at", "已检查"),
    "looked_line": ("{file}: {kind}, {lines} lines, {size}", "{file}：{kind}，{lines} 行，{size}"),
    "more_files": ("… and {num} more", "……另有 {num} 个"),
    "last_error": ("its last error, which no rule knows: {text}", "最后一个错误，尚无规则识别：{text}"),
    "would_help": ("what would help", "以下材料会有帮助"),
    "help_earlier": (
        "the log from its beginning, of every rank: the first error is often far above the last line",
        "每个 rank 的完整日志：最早的错误往往远在最后一行之前",
    ),
    "help_kernel": (
        "the kernel's log of that time: `dmesg -T` or `journalctl -k`, for kills, Xid errors and lost devices",
        "当时的内核日志：`dmesg -T` 或 `journalctl -k`，可见被杀进程、Xid 错误与掉卡",
    ),
    "help_record": (
        "torchrun's error files: decorate the entry point with `@record` and name `--log-dir`",
        "torchrun 的错误文件：入口函数加 `@record`，并指定 `--log-dir`",
    ),
    "help_recorder": (
        "for a hang: flight-recorder dumps (`TORCH_FR_BUFFER_SIZE=2000`, `TORCH_NCCL_DUMP_ON_TIMEOUT=1`)",
        "若为挂起：flight recorder 转储（`TORCH_FR_BUFFER_SIZE=2000`、`TORCH_NCCL_DUMP_ON_TIMEOUT=1`）",
    ),
    "effects": ("by the plan", "按计划重算"),
    "effect_fits": (
        "{setting} {before} → {after} frees {freed}: fits",
        "{setting} {before} → {after} 释放 {freed}：可放下",
    ),
    "effect_short": (
        "{setting} {before} → {after} frees {freed}: still short by {short}",
        "{setting} {before} → {after} 释放 {freed}：仍缺 {short}",
    ),
    "hang_behind": (
        "Rank {late} never came: its last enqueued collective is number {low}, that of the others {high} ({op}), and their watchdogs ran out of time.",
        "rank {late} 没有到达：它最后入队的集合通信序号为 {low}，其余为 {high}（{op}），因而 watchdog 超时。",
    ),
    "hang_all": (
        "A collective ({op}) ran out of time with all ranks that tell it at the same number ({high}): none of them is missing, so the transport stalled, or one of them still computes or waits before it on its device.",
        "集合通信（{op}）超时，所有记录的 rank 序号相同（{high}）：无人缺席，因此是传输停滞，或某个 rank 的设备仍在计算或等待。",
    ),
    "chunk_it": (
        "split that one tensor: smaller batch or sequence, chunked loss, or keep it on the host",
        "拆小这一个张量：减小批量或序列长度，分块计算损失，或放在主机内存",
    ),
    "oom_full": (
        "The job itself fills the card: {allocated} of {capacity} hold tensors and {asked} more were asked for, with {free} free and {unused} reserved but unused.",
        "作业本身占满显存：{capacity} 中 {allocated} 为张量，又申请 {asked}，仅余 {free} 空闲、{unused} 已保留未用。",
    ),
    "oom_too_large": (
        "One request alone is larger than the card: {asked} asked for, {capacity} in all. Nothing else matters before that tensor is smaller.",
        "单次申请就超过整张卡：申请 {asked}，总共 {capacity}。先减小这个张量，其他都无关紧要。",
    ),
    "oom_fragmented": (
        "Fragmentation: {unused} of {capacity} are reserved by torch but in pieces too small for {asked}; {allocated} hold tensors.",
        "显存碎片：{capacity} 中 {unused} 已被 torch 保留但碎成小块，放不下 {asked}；张量占 {allocated}。",
    ),
    "oom_no_segment": (
        "{free} of {capacity} are free, yet a request of {asked} failed: the allocator or the driver could not give one whole segment (fragmentation, a limit on this process, or memory that was taken a moment before).",
        "{capacity} 中尚有 {free} 空闲，却无法满足 {asked}：分配器或驱动给不出一整段（碎片、进程限额，或刚被占用）。",
    ),
    "oom_other_process": (
        "Another process holds the card: {others} of {capacity} are not ours, and {asked} were asked for with {free} free; this process has {allocated} in tensors.",
        "显存被其他进程占用：{capacity} 中 {others} 不属于本进程，申请 {asked} 时仅余 {free}；本进程张量只占 {allocated}。",
    ),
    "oom_spilled": (
        "{allocated} were allocated on a card of {capacity}: Windows had lent host memory to it (slow), until that ended too. The job is far too large for this card.",
        "在 {capacity} 的卡上已分配 {allocated}：Windows 先借用了主机内存（很慢），直到也用尽。作业对这张卡而言太大。",
    ),
}
