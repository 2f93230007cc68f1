"""Where a service runs: one module a place, each independent of the others. `PLACES` is written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tonnage.errors import UnknownNameError
from tonnage.nouns import noun
from tonnage.render.targets import compose, kubernetes, local, skypilot, slurm, systemd
from tonnage.render.types import Bundle, Service

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  inside a container, or where a router has to reach it
LOOPBACK: Final = "127.0.0.1"


@noun
class Place:
    """Where a service can run: what writes it down, and the address that a server listens on there."""

    bundle: Callable[[Service], Bundle]
    host: str = LOOPBACK


PLACES: dict[str, Place] = {
    "local": Place(bundle=local.bundle),
    "compose": Place(bundle=compose.bundle, host=ANY_ADDRESS),
    "systemd": Place(bundle=systemd.bundle),
    "kubernetes": Place(bundle=kubernetes.bundle, host=ANY_ADDRESS),
    "slurm": Place(bundle=slurm.bundle, host=ANY_ADDRESS),
    "skypilot": Place(bundle=skypilot.bundle, host=ANY_ADDRESS),
}


def find_place(name: str) -> Place:
    """Return a place by its name."""
    found = PLACES.get(name.strip().lower())
    if found is None:
        raise UnknownNameError(
            f"'{name[:40]}' is no place to deploy to", where="--place", fix=f"known: {', '.join(PLACES)}"
        )
    return found
