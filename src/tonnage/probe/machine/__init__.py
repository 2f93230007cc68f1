"""One reading of a machine for the doctor: read-only, whatever is asked; measurements only where they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tonnage.diagnose.doctor.types import Readings
from tonnage.probe.machine.gpus import read_gpus
from tonnage.probe.machine.host import has_docker, read_host
from tonnage.probe.machine.measure import measure
from tonnage.probe.machine.software import read_software
from tonnage.probe.machine.world import World, here

__all__ = ["read_machine"]


def read_machine(
    folder: Path, *, world: World | None = None, wanted: Iterable[str] = (), is_measured: bool = False
) -> Readings:
    """Return what a machine says of itself.

    Parameters
    ----------
    folder : Path
        Where weights and checkpoints are to lie.
    world : World
        This machine by default; tests give recorded files and answers.
    wanted : iterable of str
        Packages to look for beside the usual ones.
    is_measured : bool
        Whether memory, disk and cards are measured as well: up to half a minute.

    Returns
    -------
    Readings
        Unknown is None.
    """
    from tonnage.probe.nvml import read_devices  # noqa: PLC0415  only where nvidia-smi is not there

    asked = world or here()
    with ThreadPoolExecutor(max_workers=3) as pool:  # programs that answer slowly do so side by side
        host = pool.submit(read_host, asked, folder)
        cards = pool.submit(read_gpus, asked, read_devices if world is None else _no_devices)
        software = pool.submit(read_software, tuple(wanted))
        toolkit = pool.submit(asked.run, ("nvidia-ctk", "--version"))
        readings = Readings(
            **host.result(),
            **cards.result(),
            software=software.result(),
            has_docker=has_docker(asked),
            has_container_toolkit=toolkit.result() is not None,
        )
    if is_measured:
        measured = measure(asked, folder, readings.available_bytes, len(readings.gpus))
        return replace(readings, measured=measured)
    return readings


def _no_devices() -> tuple[tuple[()], str]:
    return (), ""
