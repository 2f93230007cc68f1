"""NVIDIA accelerators of this machine: through nvidia-ml-py where it is installed, else from what nvidia-smi prints."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from tonnage.errors import OutsideError
from tonnage.hardware.sample import DeviceSample
from tonnage.units import MIB

_FIELDS: Final = (
    "index", "name", "uuid", "memory.total", "memory.free", "driver_version", "compute_cap", "display_active",
    "driver_model.current", "pcie.link.gen.max", "pcie.link.width.max",
)  # fmt: skip
_WDDM: Final = 0
_TIMEOUT_SECONDS: Final = 20.0
_UNKNOWN: Final = ("", "n/a", "[n/a]", "[not supported]", "not supported", "unknown", "[unknown error]")


def read_devices() -> tuple[tuple[DeviceSample, ...], str]:
    """Return the accelerators and what they were read with.

    Raises
    ------
    OutsideError
        There is a driver, but it does not answer.
    """
    nvml = _import_nvml()
    if nvml is not None:
        return read_with_nvml(nvml), "nvidia-ml-py"
    program = shutil.which("nvidia-smi")
    return (read_with_smi(program), "nvidia-smi") if program else ((), "")


def _import_nvml() -> ModuleType | None:
    try:
        import pynvml  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  an extra
    except ImportError:
        return None
    return pynvml


def read_with_nvml(nvml: Any) -> tuple[DeviceSample, ...]:
    """Read every accelerator through a module with nvidia-ml-py's functions; no driver is no accelerator."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if getattr(error, "value", None) == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return ()
        fix = "see what nvidia-smi says; a driver that was updated needs a restart of the machine"
        raise OutsideError(f"the NVIDIA driver does not answer: {error}", where="NVML", fix=fix) from error
    try:
        return tuple(_read_one(nvml, i) for i in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        raise OutsideError(
            f"the NVIDIA driver stopped answering: {error}", where="NVML", fix="see dmesg for Xid"
        ) from error
    finally:
        nvml.nvmlShutdown()


def _read_one(nvml: Any, index: int) -> DeviceSample:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: Any) -> Any:
        """Return None for what this card or driver does not tell."""
        function: Callable[..., Any] | None = getattr(nvml, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except nvml.NVMLError:
            return None

    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    capability = ask("nvmlDeviceGetCudaComputeCapability", handle)
    display = ask("nvmlDeviceGetDisplayActive", handle)
    model = ask("nvmlDeviceGetCurrentDriverModel", handle)
    return DeviceSample(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(memory.total),
        free_bytes=int(memory.free),
        uuid=_text(ask("nvmlDeviceGetUUID", handle)) or None,
        driver=_text(ask("nvmlSystemGetDriverVersion")) or None,
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        drives_display=None if display is None else bool(display),
        is_wddm=None if model is None else model == _WDDM,
        pcie_generation=ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_lanes=ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
    )


def _text(value: Any) -> str:
    """Return text that older bindings give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def read_with_smi(program: str) -> tuple[DeviceSample, ...]:
    """Read every accelerator from what nvidia-smi prints."""
    fields: list[str] = list(_FIELDS)
    asked = _run([program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
    if asked.returncode == 2:
        fields = fields[:6]
        asked = _run([program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
    said = (asked.stdout + asked.stderr).strip()
    if asked.returncode and "no devices were found" not in said.lower():
        what = said.splitlines()[0][:200] if said else f"exit code {asked.returncode}"
        raise OutsideError(
            f"the NVIDIA driver does not answer: {what}", where="nvidia-smi", fix="mend the driver first"
        )
    return parse_smi(asked.stdout, fields)


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS)  # noqa: S603  our own arguments
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OutsideError(f"cannot be run: {error}", where="nvidia-smi", fix="see whether the driver hangs") from error


def parse_smi(text: str, fields: list[str] | None = None) -> tuple[DeviceSample, ...]:
    """Read the table that nvidia-smi prints for `--query-gpu`; a row without its memory is left out.

    >>> parse_smi("0, NVIDIA GeForce RTX 4080, GPU-1, 16376, 15000, 580.95.05")[0].taken_bytes // 2**20
    1376
    """
    samples: list[DeviceSample] = []
    for cells in csv.reader(text.splitlines(), skipinitialspace=True):
        row = dict(zip(fields or _FIELDS, (_known(cell) for cell in cells), strict=False))
        total, free = _whole(row.get("memory.total")), _whole(row.get("memory.free"))
        if total is None or not row.get("name"):
            continue
        samples.append(
            DeviceSample(
                index=_whole(row.get("index")) or 0,
                name=row["name"] or "",
                memory_bytes=total * MIB,
                free_bytes=(total if free is None else free) * MIB,
                uuid=row.get("uuid"),
                driver=row.get("driver_version"),
                compute_capability=row.get("compute_cap"),
                drives_display={"Enabled": True, "Disabled": False}.get(row.get("display_active") or ""),
                is_wddm={"WDDM": True, "TCC": False, "MCDM": False}.get(row.get("driver_model.current") or ""),
                pcie_generation=_whole(row.get("pcie.link.gen.max")),
                pcie_lanes=_whole(row.get("pcie.link.width.max")),
            )
        )
    return tuple(samples)


def _known(cell: str) -> str | None:
    return None if cell.strip().lower() in _UNKNOWN else cell.strip()


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
