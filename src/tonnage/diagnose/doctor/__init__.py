"""A machine held against what a plan needs: readings and needs in, verdicts out; `probe.machine` reads the machine."""

from __future__ import annotations

from tonnage.diagnose.doctor.checks import CHECKS, examine, is_passed
from tonnage.diagnose.doctor.needs import needs_of

__all__ = ["CHECKS", "examine", "is_passed", "needs_of"]
