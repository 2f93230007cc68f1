"""Whether a server answers, asked at its own health address."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import Final

from tonnage.render.types import Probe

__all__ = ["health_url", "is_healthy"]

_TIMEOUT_SECONDS: Final = 1.0
_PORT: Final = re.compile(r"--port[ =]['\"]?(\d{1,5})\b")


def health_url(probe: Probe | None, start: str) -> str | None:
    """Return where a server that a script starts tells that it is there; None where the script does not say its port.

    >>> health_url(Probe(port=8000, health_path="/health"), "exec vllm serve m --port 8123")
    'http://127.0.0.1:8123/health'
    """
    if probe is None:
        return None
    told = _PORT.search(start)
    port = told[1] if told else str(probe.port) if re.search(rf"\b{probe.port}\b", start) else None
    return None if port is None else f"http://127.0.0.1:{port}{probe.health_path}"


def is_healthy(url: str) -> bool:
    """Whether a server answers with success, past any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as answer:
            return 200 <= answer.status < 300
    except (OSError, ValueError):
        return False
