"""Where the model of a plan lies on this machine: scripts run in a folder of their own, where its own words lead nowhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tonnage.model import catalogue
from tonnage.plan.types import Plan
from tonnage.probe import files

__all__ = ["located"]


def located(plan: Plan, beside: Path) -> tuple[Plan, bool]:
    """Return a plan whose model is named by its full path where it lies here, and whether a path leads nowhere.

    Parameters
    ----------
    plan : Plan
        Any plan.
    beside : Path
        Where its file lies: a relative path may be meant from there.

    Returns
    -------
    tuple of Plan and bool
        The plan itself where the model has a name of the catalogue or of a hub.
    """
    spec = plan.request.model
    if catalogue.has(spec):
        return plan, False
    found = files.existing_path(spec) or files.existing_path(str(beside / spec))
    if found is None:
        return plan, files.looks_like_path(spec)
    place = found if found.is_dir() or found.suffix == ".gguf" else found.parent
    estimate = plan.estimate
    model = replace(estimate.candidate.model, name=str(place.resolve()), source=str(found.resolve()))
    candidate = replace(estimate.candidate, model=model)
    return replace(plan, estimate=replace(estimate, candidate=candidate)), False
