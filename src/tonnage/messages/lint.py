"""What `tonnage lint` says; what each rule says stands with the rule, in `data/lint/`."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "today": ("today: {today}", "现在：{today}"),
    "source": ("source: {source}", "来源：{source}"),
    "severity_error": ("error", "错误"),
    "severity_warning": ("warning", "警告"),
    "severity_note": ("note", "提示"),
    "summary": (
        "{documents} documents: {errors} errors, {warnings} warnings, {notes} notes; {fixable} can be corrected with --fix",
        "{documents} 个文档：{errors} 个错误，{warnings} 个警告，{notes} 个提示；{fixable} 处可用 --fix 更正",
    ),
    "clean": ("{documents} documents: nothing found", "{documents} 个文档：未发现问题"),
    "nothing": ("nothing of a kind that is read was given", "没有可读取的文件"),
    "unread": ("{file}: not read: {reason}", "{file}：未读取：{reason}"),
    "unread_part": ("{file}:{line}: not read further: {reason}", "{file}:{line}：未继续读取：{reason}"),
    "fixed": ("{path}: {num} changes written", "{path}：写入 {num} 处更改"),
    "unfixed": ("{path}: no change is certain, nothing written", "{path}：没有确定的更改，未写入"),
    "rule": ("{id} ({severity}): {what}", "{id}（{severity}）：{what}"),
    "example_bad": ("found in:", "可在此例中发现："),
    "example_good": ("not in:", "此例没有问题："),
}
