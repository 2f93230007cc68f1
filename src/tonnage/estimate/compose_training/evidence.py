"""How near measured runs are to a training job: what its intervals widen by where there are none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Final

from tonnage import datafiles
from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.sums import layer_sums
from tonnage.hardware.siblings import memory_kind

EVIDENCE: Final = "calibration/training_evidence.csv"
FEATURES: Final = ("device", "software", "pair", "kind", "compute", "far")
_FARTHEST: Final = 3.0  # of `far`: beyond a factor of twenty an estimate is no further off


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What measured runs have in common, as far as errors of an estimate are likely to be the same."""

    device: str  # generation and memory
    compute: str
    software: str
    is_adapter: bool
    is_moe: bool
    num_parameters: float  # of the layers
    seq_len: float


def setup_of(case: TrainingCase, seq_len: float) -> Setup:
    """Return the set-up of a training case."""
    generation = case.device.architecture.lower().partition(" ")[0]
    return Setup(
        device=f"{generation}.{memory_kind(case.device.memory_type)}",
        compute=case.compute,
        software=case.software.name,
        is_adapter=not case.trains_all,
        is_moe=case.model.is_moe,
        num_parameters=sum(sum(layer_sums(case, layer).parameters) * n for layer, n in case.model.groups()),
        seq_len=seq_len,
    )


def _beyond(value: float, seen: tuple[float, float]) -> float:
    """Return by which factor a value lies outside what was seen, in natural logarithm."""
    return max(0.0, log(value / seen[1]), log(seen[0] / value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Set-ups of the runs that constants were fitted to."""

    devices: frozenset[str]
    software: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    kinds: frozenset[tuple[str, bool, bool]]
    computes: frozenset[tuple[str, str]]
    num_parameters: tuple[float, float] | None  # least and most
    seq_len: tuple[float, float] | None

    @staticmethod
    def of(measured: Iterable[Setup]) -> Evidence:
        """Return the evidence of measured runs."""
        found = set(measured)
        sizes, lengths = [s.num_parameters for s in found], [s.seq_len for s in found]
        return Evidence(
            devices=frozenset(s.device for s in found),
            software=frozenset(s.software for s in found),
            pairs=frozenset((s.device, s.software) for s in found),
            kinds=frozenset((s.software, s.is_adapter, s.is_moe) for s in found),
            computes=frozenset((s.device, s.compute) for s in found),
            num_parameters=(min(sizes), max(sizes)) if sizes else None,
            seq_len=(min(lengths), max(lengths)) if lengths else None,
        )

    def missing(self, setup: Setup) -> dict[str, float]:
        """Return what of a set-up was never measured: 1 for each of FEATURES that holds, else 0; `far` is a logarithm.

        Parameters
        ----------
        setup : Setup
            The job's.

        Returns
        -------
        dict of str to float
            device: no run on its generation and memory; software: none with its software; pair: both, but never
            together; kind: its software never trained such a model or adapters; compute: its device never in this
            number format; far: how far size and length lie outside all that was measured.

        Examples
        --------
        >>> seen = Setup(device="hopper.hbm", compute="bf16", software="megatron", is_adapter=False, is_moe=False,
        ...              num_parameters=7e9, seq_len=4096)
        >>> evidence = Evidence.of([seen])
        >>> sum(evidence.missing(seen).values())
        0.0
        """
        has_device, has_software = setup.device in self.devices, setup.software in self.software
        larger = _beyond(setup.num_parameters, self.num_parameters) if self.num_parameters else 0.0
        longer = _beyond(setup.seq_len, self.seq_len) if self.seq_len else 0.0
        return {
            "device": float(not has_device),
            "software": float(not has_software),
            "pair": float(has_device and has_software and (setup.device, setup.software) not in self.pairs),
            "kind": float(has_software and (setup.software, setup.is_adapter, setup.is_moe) not in self.kinds),
            "compute": float(has_device and (setup.device, setup.compute) not in self.computes),
            "far": min(larger + longer, _FARTHEST),
        }


@cache
def shipped_evidence(part: str) -> Evidence:
    """Return the evidence that the shipped constants of a part, memory or time, rest on."""
    return Evidence.of(
        Setup(
            device=row["device"],
            compute=row["compute"],
            software=row["software"],
            is_adapter=row["trained"] == "adapters",
            is_moe=row["model"] == "experts",
            num_parameters=float(row[f"{end}_parameters"]),
            seq_len=float(row[f"{end}_tokens"]),
        )
        for row in datafiles.rows(EVIDENCE)
        if row["part"] == part
        for end in ("least", "most")
    )
