"""ollama's memory: llama.cpp's buffers."""

from __future__ import annotations

from tonnage.engines.llama_cpp.accounting import Accounting

ACCOUNTING = Accounting("ollama", "ollama")
