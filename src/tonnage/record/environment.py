"""What of the environment a run folder may tell: names on a list, never a value that could be a secret."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tonnage.record.files import replace_text

__all__ = ["environment", "hide", "hide_in_files", "is_secret", "secrets"]

_TOLD: Final = re.compile(
    r"(CUDA|NVIDIA|NCCL|GLOO|TORCH|PYTORCH|OMP|MKL|KMP|PET|ACCELERATE|FSDP|DS|HIP|ROCR|RCCL|TRITON|XLA|TF|SLURM"
    r"|TOKENIZERS|MALLOC|PYTHON)_\w+"
    r"|CUDA_HOME|LD_LIBRARY_PATH|LD_PRELOAD|HF_HOME|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE|HF_ENDPOINT|LANG|LC_ALL"
    r"|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|OMP_NUM_THREADS"
)
_SECRET: Final = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|AUTH|COOKIE", re.IGNORECASE
)
_PACKAGES: Final = (
    "torch",
    "transformers",
    "accelerate",
    "deepspeed",
    "peft",
    "datasets",
    "safetensors",
    "bitsandbytes",
)
_SHORTEST: Final = 8  # a shorter value is no secret, and masking it would spoil words
_IN_ADDRESS: Final = re.compile(r"://[^/@\s]*@")


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is a secret.

    >>> is_secret("HF_TOKEN"), is_secret("TOKENIZERS_PARALLELISM"), is_secret("AWS_SECRET_ACCESS_KEY")
    (True, False, True)
    """
    return _SECRET.search(name) is not None


def secrets(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that must not be seen in a log, the longest first."""
    found = {value for name, value in variables.items() if is_secret(name) and len(value) >= _SHORTEST}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def environment(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a run folder tells of where it ran: versions, and variables by an allow-list of names."""
    variables = os.environ if variables is None else variables
    hidden = secrets(variables)
    told = {name: _clean(value, hidden) for name, value in sorted(variables.items()) if _is_told(name)}
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "num_cpus": os.cpu_count(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "variables": told,
    }


def hide(text: str, hidden: tuple[str, ...]) -> str:
    """Return a text with the values of `secrets` masked.

    >>> hide("401 for hf_abcdefgh", ("hf_abcdefgh",))
    '401 for ***'
    """
    for secret in hidden:
        text = text.replace(secret, "***")
    return text


def hide_in_files(paths: Iterable[Path], hidden: tuple[str, ...]) -> None:
    """Mask secrets in files that nobody writes any more, such as an error that names its request."""
    for path in paths if hidden else ():
        with contextlib.suppress(OSError):
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            if any(secret in text for secret in hidden):
                replace_text(path, hide(text, hidden))


def _is_told(name: str) -> bool:
    return _TOLD.fullmatch(name) is not None and not is_secret(name)


def _clean(value: str, hidden: tuple[str, ...]) -> str:
    """Return a value without secrets of other variables and without a password in an address."""
    return _IN_ADDRESS.sub("://***@", hide(value, hidden))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
