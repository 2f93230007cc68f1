"""Signals: SIGTERM asks to stop with a checkpoint, SIGUSR1 writes stacks, SIGUSR2 writes the allocator's memory."""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path
from typing import Any

# Flight recorder of torch 2.13 (libtorch_cpu.so; the NCCL names are read as a fall-back and by older versions).
FLIGHT_RECORDER = {
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
DUMP_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def set_flight_recorder(dumps: Path, attempt: int) -> None:
    """Turn the flight recorder on where the user has not decided; torch adds the rank to the file's name."""
    for name, value in FLIGHT_RECORDER.items():
        os.environ.setdefault(name, value)
    for name in DUMP_FILES:
        os.environ.setdefault(name, str(dumps / f"attempt-{attempt:03d}-flight-"))


class StoppedEarlyError(Exception):
    """SIGTERM came before the first step: there is nothing new to save."""


class Signals:
    """The signals of one rank."""

    def __init__(self) -> None:
        self.stop_signal: str | None = None
        self.wants_snapshot = False
        self._stacks: Any = None

    def install(self, stacks: Path) -> None:
        """Listen; the main thread has to call this."""
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGUSR2, self._ask_for_snapshot)
        self._stacks = stacks.open("a", encoding="utf-8")
        faulthandler.register(signal.SIGUSR1, file=self._stacks, all_threads=True)

    def remove(self) -> None:
        """Listen no longer."""
        faulthandler.unregister(signal.SIGUSR1)
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        if self._stacks is not None:
            self._stacks.close()

    def _ask_to_stop(self, number: int, _frame: object) -> None:
        self.stop_signal = signal.Signals(number).name

    def _ask_for_snapshot(self, _number: int, _frame: object) -> None:
        self.wants_snapshot = True
