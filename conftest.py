"""Where torch and transformers are not installed, the modules of the oracle that import them are not looked at."""

from __future__ import annotations

from importlib.util import find_spec

_NEED_TORCH = ("adapters", "flash", "ledger", "step")
collect_ignore = (
    []
    if find_spec("torch") and find_spec("transformers")
    else [f"src/tonnage/oracle/{name}.py" for name in _NEED_TORCH]
)
