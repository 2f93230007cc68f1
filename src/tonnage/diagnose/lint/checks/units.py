"""systemd units: restarts of runs that have finished, limits on starts that never bite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tonnage.diagnose.lint.checks.launchers import launch_of
from tonnage.diagnose.lint.checks.types import Context
from tonnage.diagnose.lint.seen import Entry, Seen
from tonnage.diagnose.lint.types import Command, Edit, Hit

__all__ = ["nouveau", "restart_policies"]

_SERVERS: Final = ("vllm", "sglang", "llama_cpp")
_TRAINERS: Final = ("torchrun", "accelerate", "deepspeed", "horovodrun", "megatron")
_TRAINS: Final = re.compile(r"(?:^|[\s/_-])(?:train|finetune|pretrain|sft|run_clm)[\w-]*\.(?:py|sh)\b")
_DEFAULT_INTERVAL_SECONDS: Final = 10.0  # DefaultStartLimitIntervalSec=, systemd-system.conf(5)
_DEFAULT_BURST: Final = 5
_UNITS: Final = {"": 1, "s": 1, "sec": 1, "second": 1, "seconds": 1, "ms": 0.001, "m": 60, "min": 60, "minutes": 60,
                 "minute": 60, "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400}  # fmt: skip


def restart_policies(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find a training unit that starts again after it finished, and starts without an end."""
    held = {f"{e.section}.{e.key}": e for e in seen.entries}
    restart = held.get("Service.Restart")
    if restart is None or restart.value in ("no", ""):
        return
    role = _role(seen, context)
    if restart.value in ("always", "on-success") and role in ("job", "unsaid"):
        line = seen.document.lines[restart.line - 1]
        place = line.find(restart.value)
        edit = None
        if place >= 0 and role == "job":
            edit = Edit(
                line=restart.line, start=place, end_line=restart.line, end=place + len(restart.value), text="on-failure"
            )
        yield Hit(
            rule="restart-always-job", line=restart.line, values={"policy": f"Restart={restart.value}"}, edit=edit
        )
    yield from _limit(held, restart)
    if role == "job" and "Service.TimeoutStopSec" not in held:
        yield Hit(rule="stop-without-time", line=restart.line)


def _limit(held: dict[str, Entry], restart: Entry) -> Iterator[Hit]:
    """Compare the wait between starts with the interval that starts are counted in."""
    interval = held.get("Unit.StartLimitIntervalSec") or held.get("Unit.StartLimitInterval")
    counted = _DEFAULT_INTERVAL_SECONDS if interval is None else _seconds(interval.value)
    burst_entry = held.get("Unit.StartLimitBurst")
    burst = int(burst_entry.value) if burst_entry and burst_entry.value.isdigit() else _DEFAULT_BURST
    wait = _seconds(held["Service.RestartSec"].value) if "Service.RestartSec" in held else 0.1
    if counted is None or wait is None or counted == 0 or wait * burst <= counted:
        return
    yield Hit(rule="start-limit-never-bites", line=restart.line,
              values={"wait": f"{wait:g}", "burst": burst, "interval": f"{counted:g}"})  # fmt: skip


def _seconds(text: str) -> float | None:
    if text in ("infinity", ""):
        return None
    total = 0.0
    for number, unit in re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.lower()):
        if unit not in _UNITS:
            return None
        total += float(number) * _UNITS[unit]
    return total


def _role(seen: Seen, context: Context) -> str:
    """Return what a unit starts: a server, a job, something unknown, or nothing that is said."""
    starts = [e for e in seen.entries if e.key == "ExecStart"]
    if not starts:
        return "unsaid"
    words = [c for c in seen.commands if c.line in {e.line for e in starts}]
    for command in (*words, *_inner(words, seen, context)):
        launch = launch_of(command)
        program = launch.program if launch else ""
        text = command.text
        if program in _SERVERS or re.search(r"\b(?:ollama serve|prometheus|grafana|exporter|serve\b)", text):
            return "server"
        if program in _TRAINERS or _TRAINS.search(text):
            return "job"
    return "unknown"


def _inner(commands: list[Command], seen: Seen, context: Context) -> Iterator[Command]:
    """Yield the commands of the scripts that a unit starts, where they lie beside it."""
    folder = seen.document.file.rpartition("/")[0]
    for command in commands:
        for word in command.words:
            if word.endswith(".sh"):
                for script in context.named(word):
                    if script.document.file.rpartition("/")[0] == folder:
                        yield from script.commands


def nouveau(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find a blacklist of nouveau that is not the whole of it: mode setting, the initial RAM disk."""
    del context
    text = seen.document.text
    for number, line in enumerate(seen.document.lines, 1):
        if not re.search(r"\bblacklist\s+nouveau\b", line) or line.lstrip().startswith("#"):
            continue
        lacks = [] if re.search(r"nouveau\s+modeset=0", text) else ["options nouveau modeset=0"]
        if seen.kind.value == "shell" and not re.search(r"update-initramfs|dracut|mkinitcpio|mkinitrd", text):
            lacks.append("update-initramfs -u (dracut -f)")
        if lacks:
            yield Hit(rule="nouveau-half-blacklisted", line=number, values={"lacks": ", ".join(lacks)})
        return
