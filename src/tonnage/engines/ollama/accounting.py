"""ollama's memory: llama.cpp's buffers."""

from __future__ import annotations

from tonnage.engines.facts import constants_of
from tonnage.engines.llama_cpp.accounting import Accounting

ACCOUNTING = Accounting("ollama", constants_of("ollama"))
