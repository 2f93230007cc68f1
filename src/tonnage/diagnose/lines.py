"""What a line tells beside its message: the rank that printed it and when; and what of it must not be shown."""

from __future__ import annotations

import re
from typing import Final

_RANK: Final = re.compile(
    r"\[rank(\d+)\]|\[Rank (\d+)\]|\[default(\d+)\]|\[trainer(\d+)\]|\bTP(\d+)\]|\bTP(\d+) |\brank[ :=](\d+)\b|\[R(\d+)\]"
)
_FILE_RANK: Final = re.compile(r"rank[-_.]?(\d+)|(?:^|/)(\d+)/(?:stderr|stdout|error)\b")
_ISO: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_SHORT: Final = re.compile(r"\b[A-Z]*\s?(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
_GLOG: Final = re.compile(r"\b[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
_SYSLOG: Final = re.compile(r"^([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HEAD: Final = 200

_KEYS: Final = (
    r"(?:api[_-]?key|access[_-]?key|secret[_-]?access[_-]?key|secret(?:[_-]?key)?|client[_-]?secret|auth[_-]?token|"
    r"access[_-]?token|refresh[_-]?token|hf[_-]?token|hub[_-]?token|wandb[_-]?api[_-]?key|token|passwd|password|pwd|"
    r"passphrase|credentials?)"
)
_SECRETS: Final = (
    (re.compile(r"\b(?:hf|ghp|gho|ghs|ghu|glpat|xox[bapr]|npm|pypi|nvapi|sk|rk|pk)[_-][A-Za-z0-9_\-]{12,}"), "***"),
    (re.compile(r"\bgithub_pat_\w{20,}"), "***"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), "***"),
    (re.compile(r"\bAIza[A-Za-z0-9_\-]{20,}"), "***"),
    (re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]+)?"), "***"),
    (re.compile(r"(?i)\b(authorization\W{1,4}(?:bearer|basic|token)?\s*)[^\s'\",;]{6,}"), r"\1***"),
    (re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/\-]{8,}=*"), r"\1***"),
    (re.compile(r"(?i)(\b\w{0,40}" + _KEYS + r"[\"']?\s*[=:]\s*[\"']?)(?!None\b|null\b|True\b|False\b|\d{1,6}\b)[^\s'\",;&)\]}]{4,}"), r"\1***"),
    (re.compile(r"(?i)(--\w{0,30}-?" + _KEYS + r"[ =])[^\s'\"]{4,}"), r"\1***"),
    (re.compile(r"(://)[^/\s:@]{1,80}:[^/\s@]{1,200}@"), r"\1***:***@"),
    (re.compile(r"(://)[^/\s:@]{16,200}@"), r"\1***@"),
    (re.compile(r"([?&](?:X-Amz-Signature|X-Amz-Credential|Signature|sig|token|key)=)[^&\s'\"]{6,}"), r"\1***"),
)  # fmt: skip
_ADDRESSES: Final = (
    (re.compile(r"\b[\w.+\-]{1,64}@[\w\-]{1,64}(?:\.[\w\-]{1,64}){0,4}"), "<user>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "<address>"),
    (re.compile(r"(?<![\w:.])(?=[0-9a-fA-F:]*::|(?:[0-9a-fA-F]{1,4}:){5})[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,8}(?:\d{1,3}(?:\.\d{1,3}){3})?"), "<address>"),
    (re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"), "<address>"),
    (re.compile(r"(?i)\b(?:[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?\.)+(?:com|net|org|io|ai|cn|local|internal|lan|corp|cloud|edu|gov|dev|svc|home|intra)\b"), "<host>"),
    (re.compile(r"^([A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d )\S+ "), r"\1<host> "),
    (re.compile(r"^[\w.\-]{1,80}(:\d+:\d+ \[\d+\])"), r"<host>\1"),
    (re.compile(r"(?i)\b(host(?:name)?\s*[:=]\s*)[\w.\-]{1,120}"), r"\1<host>"),
    (re.compile(r"(?i)\b(node(?:name)?[ =:/]+)(?=[\w.\-]*\d)[\w.\-]{2,120}"), r"\1<host>"),
    (re.compile(r"(/(?:home|Users)/)[^/\s:'\"]{1,64}"), r"\1<user>"),
)  # fmt: skip


def mask(text: str) -> str:
    """Return a text with tokens, keys and passwords made unreadable.

    >>> mask("HF_TOKEN=abcdefghijkl loaded; https://me:pass@host/x")
    'HF_TOKEN=*** loaded; https://***:***@host/x'
    """
    for pattern, put in _SECRETS:
        text = pattern.sub(put, text)
    return text


def redact(text: str) -> str:
    """Return a text without host names, addresses and user names as well.

    >>> redact("connect to 10.0.0.2<4567> of gpu7.example.com")
    'connect to <address><4567> of <host>'
    """
    text = mask(text)
    for pattern, put in _ADDRESSES:
        text = pattern.sub(put, text)
    return text


def rank_of(text: str) -> int | None:
    """Return the rank that a line says printed it.

    >>> rank_of("[rank3]: torch.OutOfMemoryError: CUDA out of memory.")
    3
    """
    match = _RANK.search(text[:_HEAD])
    return int(next(group for group in match.groups() if group)) if match else None


def rank_of_file(name: str) -> int | None:
    """Return the rank whose log a file is, by its name.

    >>> rank_of_file("logs/attempt-0/rank-3.log")
    3
    """
    found = _FILE_RANK.findall(name)
    return int(next(group for group in found[-1] if group)) if found else None


def seconds_of(text: str) -> float | None:
    """Return when a line was printed, as seconds of a year, where it begins with a time that can be read.

    Only differences mean something, and only between logs of one job; the year is left out as many forms lack it.

    >>> seconds_of("2026-01-01 00:00:05,250 INFO x"), seconds_of("no time")
    (5.25, None)
    """
    head = text[:_HEAD]
    if match := _ISO.search(head):
        _, month, day, *clock = match.groups()
    elif match := _GLOG.search(head):
        month, day, *clock = match.groups()
    elif match := _SYSLOG.match(head):
        name, day, *clock = match.groups()
        month = _MONTHS.index(name) + 1 if name in _MONTHS else 1
        clock = [*clock, None]
    elif match := _SHORT.search(head):
        month, day, *clock = match.groups()
    else:
        return None
    hour, minute, second, fraction = clock
    days = (int(month) - 1) * 31 + int(day) - 1
    return days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second) + float(f"0.{fraction or 0}")
