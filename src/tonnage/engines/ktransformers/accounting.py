"""KTransformers' memory: SGLang's on the device, the routed experts in host memory."""

from __future__ import annotations

from tonnage.engines.facts import constants_of
from tonnage.engines.sglang.accounting import Accounting

ACCOUNTING = Accounting("ktransformers", constants_of("ktransformers"))
