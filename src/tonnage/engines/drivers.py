"""Whether a machine's driver starts an engine: the CUDA runtime that a release brings has a floor, and so has the card."""

from __future__ import annotations

import re
from typing import Final

from tonnage import datafiles
from tonnage.engines.facts import version_key
from tonnage.hardware.ecosystem import driver_class
from tonnage.hardware.types import Device
from tonnage.messages import say
from tonnage.nouns import noun

_RELEASES: Final = "engines/cuda.csv"
_FLOORS: Final = "hardware/cuda_drivers.csv"
_VERSION: Final = re.compile(r"[Rr]?(\d{3,4})(?:\.\d{1,4}){0,3}(?:\.x)?", re.ASCII)


@noun
class Floor:
    """The oldest branch of drivers that starts a release, and those that do with CUDA's compatibility libraries."""

    version: str
    branch: int
    forward_branches: tuple[int, ...] = ()
    source: str = ""


def branch_of(driver: str) -> int | None:
    """Return the branch of a driver's version, None where it is none.

    >>> branch_of("535.154.05"), branch_of("R580"), branch_of("12.8")
    (535, 580, None)
    """
    found = _VERSION.fullmatch(driver.strip())
    return int(found[1]) if found else None


def floors(engine: str) -> tuple[Floor, ...]:
    """Return the floors of the releases of an engine that are on record, the oldest first."""
    runtimes = {row["cuda_major"]: row for row in datafiles.rows(_FLOORS)}
    found: list[Floor] = []
    for row in datafiles.rows(_RELEASES):
        if row["engine"] == engine:
            runtime = runtimes.get(row["cuda_major"])
            branch = row["min_driver_branch"] or (runtime["min_driver_branch"] if runtime else "0")
            forward = runtime["forward_branches"].split() if runtime and not row["min_driver_branch"] else ()
            found.append(
                Floor(
                    version=row["version"],
                    branch=int(branch),
                    forward_branches=tuple(int(one) for one in forward),
                    source=row["source"],
                )
            )
    return tuple(sorted(found, key=lambda one: version_key(one.version)))


def floor_of(engine: str, version: str) -> Floor | None:
    """Return the floor of a release: that of the newest on record that is no newer; None where none is."""
    found = [one for one in floors(engine) if version_key(one.version) <= version_key(version)]
    return found[-1] if found else None


def newest_for(engine: str, branch: int) -> str | None:
    """Return the newest release on record that a branch of drivers starts."""
    found = [one.version for one in floors(engine) if one.branch <= branch]
    return found[-1] if found else None


def newest_torch(device: Device, driver: str) -> tuple[str, int] | None:
    """Return the newest torch on record that a card and a driver start, if that is not the newest, and the newest's floor.

    A card that CUDA 13 has dropped has no code in wheels that bring it.
    """
    branch, newest = branch_of(driver), floors("torch")[-1]
    most = newest.branch if branch is None else branch
    if device.max_cuda and int(device.max_cuda.partition(".")[0]) < _NEWEST_CUDA:
        most = min(most, newest.branch - 1)
    version = newest_for("torch", most)
    return None if device.vendor != "NVIDIA" or most >= newest.branch or version is None else (version, newest.branch)


_NEWEST_CUDA: Final = 13  # of the newest torch on record


def why_card_cannot(device: Device, driver: str) -> str | None:
    """Return why a driver does not drive a card, or None; what is not known is no reason."""
    branch = branch_of(driver)
    if device.vendor != "NVIDIA" or branch is None:
        return None
    least, last = (branch_of(one or "") for one in (device.min_driver_branch, device.last_driver_branch))
    if least and branch < least:
        return say("today.driver_old", driver=driver, name=device.name, least=device.min_driver_branch)
    if last and branch > last:
        return say("today.driver_new", driver=driver, name=device.name, last=device.last_driver_branch)
    return None


def why_engine_cannot(engine: str, title: str, version: str, device: Device, driver: str) -> str | None:
    """Return why a driver does not start an engine, with the cures, or None; what is not known is no reason."""
    branch, floor = branch_of(driver), floor_of(engine, version)
    if device.vendor != "NVIDIA" or branch is None or floor is None or branch >= floor.branch:
        return None
    older = newest_for(engine, branch)
    cures = [say("today.driver_update", branch=floor.branch)]
    if older is not None:
        cures.append(say("today.driver_older", title=title, version=older))
    if branch in floor.forward_branches and driver_class(device) == "datacenter":
        cures.append(say("today.driver_forward"))
    return say(
        "today.driver_engine", driver=driver, title=title, version=version, branch=floor.branch,
        cures=say("today.or").join(cures),
    )  # fmt: skip
