"""What Python finds installed, read from its files: nothing is imported, so that a broken PyTorch cannot break the doctor."""

from __future__ import annotations

import mmap
import platform
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

from tonnage.diagnose.doctor.types import Software

__all__ = ["read_software", "torch_build"]

_ARCHITECTURES: Final = re.compile(rb"(?:sm|compute)_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?)+")
# The list of `torch._C._cuda_getArchFlags`; the small library holds it, the large one is looked at where it does not.
_LIBRARIES: Final = ("libtorch_python.so", "libtorch_cuda.so")
_LARGEST_SCANNED_BYTES: Final = 1 << 30
_NAMES: Final = (
    "torch", "transformers", "accelerate", "deepspeed", "vllm", "sglang", "kt-kernel", "ktransformers", "tensorrt-llm",
    "flash-attn", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "bitsandbytes", "peft",
)  # fmt: skip


def read_software(wanted: Iterable[str] = ()) -> Software:
    """Return the versions of the packages that matter, and what PyTorch was built for."""
    names = dict.fromkeys([*_NAMES, *(re.split(r"[=<>\[ ]", w)[0].lower().replace("_", "-") for w in wanted)])
    versions: dict[str, str] = {}
    for name in names:
        if not name:
            continue
        try:
            versions[name] = metadata.version(name)
        except (metadata.PackageNotFoundError, ValueError):
            continue
    cuda, architectures = None, ()
    if "torch" in versions:
        place = _folder("torch")
        if place is not None:
            cuda, architectures = torch_build(place)
    return Software(
        python=platform.python_version(), packages=versions, torch_cuda=cuda, torch_architectures=architectures
    )


def _folder(package: str) -> Path | None:
    try:
        held = metadata.distribution(package)
        return Path(str(held.locate_file(package)))
    except (metadata.PackageNotFoundError, OSError):
        return None


def torch_build(folder: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the CUDA release of a PyTorch in a folder and the architectures compiled into it."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None, ()
    match = re.search(r"^cuda\b[^=\n]*=\s*'([\d.]+)'", text, re.MULTILINE)
    if match is None:
        return None, ()
    for name in _LIBRARIES:
        found = _architectures(folder / "lib" / name)
        if found:
            return match[1], found
    return match[1], ()


def _architectures(path: Path) -> tuple[str, ...]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            match = _ARCHITECTURES.search(held, 0, min(len(held), _LARGEST_SCANNED_BYTES))
            return tuple(match[0].decode().split()) if match else ()
    except (OSError, ValueError):
        return ()
