"""Secrets that stand in a file; what is shown of them is masked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tonnage.diagnose.lint.checks.types import Context
from tonnage.diagnose.lint.seen import Seen
from tonnage.diagnose.lint.types import Hit

__all__ = ["secrets"]

# Prefixes that the issuers document: Hugging Face, GitHub, AWS, OpenAI, Slack, Google, private keys.
_TOKENS: Final = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,64}|gh[pousr]_[A-Za-z0-9]{30,64}|github_pat_\w{30,90}|AKIA[A-Z0-9]{16}|sk-(?:proj-)?[A-Za-z0-9_-]{24,120}"
    r"|xox[bp]-[A-Za-z0-9-]{20,80}|AIza[A-Za-z0-9_-]{35}|nvapi-[A-Za-z0-9_-]{30,90})|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"
)
_NAMES: Final = re.compile(
    r"(?:^|_)(?:TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_KEY|SECRET_KEY|PRIVATE_KEY)$|^(?:WANDB_API_KEY|AWS_SECRET_ACCESS_KEY)$"
)
_NO_SECRET: Final = re.compile(
    r"|\$.*|\{.*|<.*|%.*|(?:your|my|the|change|x{3,}|\*{3,}|\.{3}|none|null|true|false|empty|dummy|EMPTY|test|example|placeholder|token-?abc|abc-?123|sk-?x).*|.{0,3}",
    re.IGNORECASE | re.DOTALL,
)
_FLAGS: Final = re.compile(r"--(?:api-key|token|password|hf-token)[= ]([^\s\"'$<{-][^\s\"']{7,})")


def secrets(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find tokens by their form, and values of variables that are named as secrets."""
    del context
    lines = set[int]()
    for number, line in enumerate(seen.document.lines, 1):
        match = _TOKENS.search(line[: 1 << 14]) or _FLAGS.search(line[: 1 << 14])
        if match and not _is_placeholder(match[match.lastindex or 0]):
            lines.add(number)
            yield Hit(rule="secret-in-file", line=number, values={"what": _masked(match[match.lastindex or 0])})
    for setting in seen.settings:
        if setting.line in lines or not _NAMES.search(setting.name) or not setting.value:
            continue
        if not _is_placeholder(setting.value) and "/" not in setting.value[:1]:
            yield Hit(rule="secret-in-file", line=setting.line,
                      values={"what": f"{setting.name}={_masked(setting.value)}"})  # fmt: skip


def _is_placeholder(text: str) -> bool:
    """Whether a token only stands for one: `hf_xxxx…`, `sk-...`, an example of a manual."""
    body = re.split(r"[_-]", text)[-1]
    return bool(_NO_SECRET.fullmatch(text)) or len(set(body.lower())) < 4 or "xxx" in body.lower()


def _masked(text: str) -> str:
    return text[:3] + "…" if len(text) > 8 else "…"
