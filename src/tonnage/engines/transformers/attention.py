"""Which attention transformers is asked for: what the device can run, of what its installation brings.

Names as in transformers 5.24.0 src/transformers/modeling_utils.py (`attn_implementation`); packages as in its
utils/import_utils.py (`is_flash_attn_2_available`: flash-attn, `is_flash_attn_3_available`: flash-attn-3). FlashAttention-2
runs on Ampere and newer, FlashAttention-3 on Hopper (Dao-AILab/flash-attention, README.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable


def attention_implementation(
    compute_capability: float | None, packages: Iterable[str], *, has_flash_attention: bool = True
) -> str:
    """Return the value of `attn_implementation`.

    Parameters
    ----------
    compute_capability : float
        Of an NVIDIA device; None for another one. [1]
    packages : iterable of str
        Pip requirements of the installation.
    has_flash_attention : bool
        Whether the plan counts on scores that are never held whole.

    Returns
    -------
    str
        eager, sdpa (PyTorch's own, which takes its flash kernels from Ampere on and memory-efficient ones before),
        flash_attention_2 or flash_attention_3.

    Examples
    --------
    >>> attention_implementation(8.9, ["torch"]), attention_implementation(9.0, ["flash-attn==2.8.3"])
    ('sdpa', 'flash_attention_2')
    """
    if not has_flash_attention:
        return "eager"
    names = {re.split(r"[\[<>=!~; ]", one)[0].lower().replace("_", "-") for one in packages}
    capability = compute_capability or 0.0
    if "flash-attn-3" in names and 9.0 <= capability < 10.0:
        return "flash_attention_3"
    return "flash_attention_2" if "flash-attn" in names and capability >= 8.0 else "sdpa"
