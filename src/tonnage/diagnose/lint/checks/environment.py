"""Environment variables that nobody reads, have no effect, or refuse each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tonnage.diagnose.lint.checks.trainer import renamed
from tonnage.diagnose.lint.checks.types import Context, alike
from tonnage.diagnose.lint.seen import Seen
from tonnage.diagnose.lint.types import Hit

__all__ = ["sockets", "variables"]

_PREFIXES: Final = {"NCCL_": "nccl_variable", "VLLM_": "vllm_variable"}
# People name variables of their own VLLM_…: only a slip of the pen is told. Nobody names one NCCL_….
_LIKENESS: Final = {"nccl_variable": 0.75, "vllm_variable": 0.92}
# Read by torch, MPI wrappers and cloud plugins, not by NCCL itself.
_OTHERS: Final = frozenset((
    "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING", "NCCL_HOME", "NCCL_ROOT",
    "NCCL_VERSION", "NCCL_INCLUDE_DIR", "NCCL_LIB_DIR", "NCCL_ROOT_DIR", "NCCL_LIBRARY", "NCCL_TESTS", "NCCL_TESTS_DIR",
    "NCCL_PATH", "NCCL_INC", "NCCL_LIB", "NCCL_SRC", "NCCL_LIB_SUFFIX", "NCCL_CONF_FILE", "NCCL_TUNER_CONFIG_FILE",
    "VLLM_VERSION", "VLLM_IMAGE", "VLLM_PORT", "VLLM_TAG", "VLLM_URL", "VLLM_MODEL", "VLLM_ARGS", "VLLM_PID", "VLLM_TEST",
))  # fmt: skip


def variables(seen: Seen, context: Context) -> Iterator[Hit]:
    """Hold variables of NCCL and vLLM against the names that their own sources read."""
    old = context.known.names.get("nccl_removed", frozenset())
    gone = renamed("vllm_variable")
    for setting in seen.settings:
        group = next((g for p, g in _PREFIXES.items() if setting.name.startswith(p)), None)
        known = context.known.names.get(group or "", frozenset())
        row = gone.get(setting.name)
        if row is not None:
            yield Hit(
                rule="vllm-removed-variable", line=setting.line, values={"name": setting.name, "today": row["today"]}
            )
        elif setting.name in old:
            yield Hit(rule="nccl-removed-variable", line=setting.line, values={"name": setting.name}, edit=setting.edit)
        elif (
            group
            and known
            and setting.name not in known | _OTHERS
            and (near := alike(setting.name, known, _LIKENESS[group]))
        ):
            yield Hit(rule="unknown-variable", line=setting.line,
                      values={"name": setting.name, "alike": ", ".join(near[:2]),
                              "release": context.known.releases[group]})  # fmt: skip


def sockets(seen: Seen, context: Context) -> Iterator[Hit]:
    """Look at NCCL_NSOCKS_PERTHREAD with its partner: both count, their product is at most 64."""
    del context
    held = {s.name: s for s in seen.settings if s.name in ("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS")}
    each, threads = held.get("NCCL_NSOCKS_PERTHREAD"), held.get("NCCL_SOCKET_NTHREADS")
    if each is None:
        return
    if threads is None:
        yield Hit(rule="nccl-sockets-alone", line=each.line, values={"value": each.value or ""})
        return
    numbers = [s.value for s in (each, threads)]
    if all(n and re.fullmatch(r"\d{1,5}", n) for n in numbers):
        product = int(numbers[0] or 0) * int(numbers[1] or 0)
        if product > 64:
            yield Hit(rule="nccl-sockets-product", line=each.line, values={"product": product})
