"""Where a service runs: one module a place, each independent of the others. `PLACES` is written out."""

from __future__ import annotations

from collections.abc import Callable

from tonnage.errors import UnknownNameError
from tonnage.render.targets import local, systemd
from tonnage.render.types import Bundle, Service

PLACES: dict[str, Callable[[Service], Bundle]] = {
    "local": local.bundle,
    "systemd": systemd.bundle,
}


def find_place(name: str) -> Callable[[Service], Bundle]:
    """Return what writes a service down for a place."""
    found = PLACES.get(name.strip().lower())
    if found is None:
        raise UnknownNameError(
            f"'{name[:40]}' is no place to deploy to", where="--place", fix=f"known: {', '.join(PLACES)}"
        )
    return found
