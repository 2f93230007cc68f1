"""Which ggml format llama.cpp's quantiser gives each tensor of a file type such as Q4_K_M.

A file type is a mix: a base format, better ones for the tensors that suffer most, and another one for a row that is
no multiple of the base format's block.

References
----------
.. [1] ggml-org/llama.cpp, src/llama-quant.cpp at 007dbbf3: `llama_tensor_get_type_impl`, `tensor_type_fallback`,
   `tensor_allows_quantization`, `llama_ftype_get_default_type`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tonnage.model.ggml import types_by_name
from tonnage.nouns import noun

# The base format of each file type; the names are llama-quantize's, in lower case.
BASE_TYPES: Final = {
    "f32": "F32", "f16": "F16", "gguf_bf16": "BF16",
    "q4_0": "Q4_0", "q4_1": "Q4_1", "q5_0": "Q5_0", "q5_1": "Q5_1", "q8_0": "Q8_0",
    "q2_k": "Q2_K", "q2_k_s": "Q2_K", "q3_k_s": "Q3_K", "q3_k_m": "Q3_K", "q3_k_l": "Q3_K",
    "q4_k_s": "Q4_K", "q4_k_m": "Q4_K", "q5_k_s": "Q5_K", "q5_k_m": "Q5_K", "q6_k": "Q6_K",
    "iq1_s": "IQ1_S", "iq1_m": "IQ1_M", "iq2_xxs": "IQ2_XXS", "iq2_xs": "IQ2_XS", "iq2_s": "IQ2_XS", "iq2_m": "IQ2_S",
    "iq3_xxs": "IQ3_XXS", "iq3_xs": "IQ3_S", "iq3_s": "IQ3_S", "iq3_m": "IQ3_S", "iq4_nl": "IQ4_NL", "iq4_xs": "IQ4_XS",
    "tq1_0": "TQ1_0", "tq2_0": "TQ2_0", "mxfp4_moe": "MXFP4",
}  # fmt: skip

_FALLBACKS: Final = {
    "IQ1_S": "IQ4_NL", "IQ1_M": "IQ4_NL", "IQ2_XXS": "IQ4_NL", "IQ2_XS": "IQ4_NL", "IQ2_S": "IQ4_NL",
    "IQ3_XXS": "IQ4_NL", "IQ3_S": "IQ4_NL", "IQ4_XS": "IQ4_NL",
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "TQ1_0": "Q4_0", "TQ2_0": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0",
}  # fmt: skip

_LOW_I: Final = ("iq2_xxs", "iq2_xs", "iq1_s", "iq2_s", "iq2_m", "iq1_m")
_VALUE_LIKE: Final = ("attn_v", "attn_qkv", "attn_kv_b")
_FEED_FORWARD: Final = ("ffn_down", "ffn_gate", "ffn_up")
_UNQUANTIZED: Final = ("ffn_gate_inp", "ssm_conv1d", "ssm_a", "shortconv.conv", "indexer.k_proj", "indexer.q_proj")


@noun
class Mix:
    """One file type applied to one model: what the quantiser knows of the model besides the tensor at hand."""

    file_type: str
    num_layers: int
    num_value_tensors: int  # layers with attn_v, attn_qkv or attn_kv_b
    num_experts: int = 0
    group_ratio: float = 1.0  # attention heads to a key-value head
    is_tied: bool = False
    is_falcon: bool = False
    is_llama_70b: bool = False  # llama, 80 layers, grouped heads
    has_importance_matrix: bool = False

    def tensor_type(
        self, name: str, layer: int, num_columns: int, num_experts: int = 1, *, seen: Counter[str] | None = None
    ) -> str:
        """Return the format of one weight matrix; tensors are asked for in the order of the layers.

        Parameters
        ----------
        name : str
            The tensor's name inside its layer, as `ffn_down_exps`, or `token_embd` and `output`.
        layer : int
            Its layer, from 0.
        num_columns : int
            Length of a row: the inputs of the matrix.
        num_experts : int
            Matrices in it; more than one for experts.
        seen : Counter
            How many tensors of each sort came before; counted on here.

        Returns
        -------
        str
            Name of a ggml format.
        """
        base = BASE_TYPES[self.file_type]
        if name in _UNQUANTIZED:
            return "F32"
        if base in ("F32", "F16", "BF16"):
            return base
        seen = Counter[str]() if seen is None else seen
        chosen = self._special(name, num_columns, num_experts, base) or self._in_layer(name, layer, base, seen)
        return _fallback(chosen, num_columns)

    def _special(self, name: str, num_columns: int, num_experts: int, base: str) -> str | None:
        """Return the format of a tensor outside the layers, and of any in a file whose experts alone are small."""
        is_embedding = name in ("token_embd", "per_layer_token_embd")
        if name == "output" or (is_embedding and self.is_tied):
            return self._output_type(num_columns, base)
        if self.file_type == "mxfp4_moe":
            return "MXFP4" if num_experts > 1 else "Q8_0"
        return self._embedding_type(base) if is_embedding else None

    def _in_layer(self, name: str, layer: int, base: str, seen: Counter[str]) -> str:
        sort = "values" if name in _VALUE_LIKE else next((one for one in _FEED_FORWARD if name.startswith(one)), name)
        index = seen[sort]
        seen[sort] += 1
        if self.file_type in _LOW_I:
            return self._low_i_type(sort, index, base)
        index = layer if self.num_experts > 1 and sort.startswith("ffn") else index
        if sort == "values":
            return self._value_type(index, base)
        if sort in ("attn_k", "attn_q"):
            return self._key_type(sort, base)
        if sort == "ffn_down":
            return self._down_type(index, base)
        if sort == "attn_output":
            return self._attention_output_type(base)
        return self._gate_type(index, base) if sort in ("ffn_gate", "ffn_up") else base

    def _output_type(self, num_columns: int, base: str) -> str:
        if self.file_type == "mxfp4_moe" or self.is_falcon or num_columns % types_by_name()[base].block_weights:
            return "Q8_0"
        if self.file_type in _LOW_I or self.file_type == "iq3_xxs":
            return "Q5_K"
        return base if base == "Q8_0" else "Q6_K"

    def _embedding_type(self, base: str) -> str:
        if self.file_type in ("iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"):
            return "Q2_K"
        if self.file_type in ("iq2_s", "iq2_m", "iq3_xxs"):
            return "IQ3_S"
        return "Q4_K" if self.file_type in ("tq1_0", "tq2_0") else base

    def _low_i_type(self, sort: str, index: int, base: str) -> str:
        is_wider = self.file_type in ("iq2_s", "iq2_m")
        if sort == "values":
            return "Q4_K" if self.group_ratio >= 4 or self.num_experts >= 4 else "IQ3_S" if is_wider else "Q2_K"
        if sort == "attn_k" and self.num_experts == 8:
            return "Q4_K"
        if sort == "ffn_down":
            is_early = index < self.num_layers // 8
            return ("IQ3_S" if is_wider else "Q2_K") if is_early else base
        if sort == "attn_output":
            if self.num_experts == 8:
                return "Q5_K"
            return "IQ2_XXS" if self.file_type in ("iq1_s", "iq1_m") else "IQ3_S" if is_wider else base
        return base

    def _value_type(self, index: int, base: str) -> str:
        kind = self.file_type
        if self.num_experts == 8:
            return "Q8_0"
        chosen = base
        is_grouped = self.group_ratio >= 4
        if kind == "q2_k":
            chosen = "Q4_K" if is_grouped else "Q3_K"
        elif kind == "iq3_xxs":
            chosen = "Q4_K" if is_grouped else "IQ3_XXS" if self.has_importance_matrix else "IQ3_S"
        elif (kind in ("q2_k_s", "iq3_xs", "iq3_s") and is_grouped) or kind == "iq3_m":
            chosen = "Q4_K"
        elif kind == "q3_k_m":
            chosen = "Q5_K" if index < 2 else "Q4_K"
        elif kind == "q3_k_l" or (kind in ("iq4_nl", "iq4_xs") and is_grouped):
            chosen = "Q5_K"
        elif kind in ("q4_k_m", "q5_k_m") and _has_more_bits(index, self.num_value_tensors):
            chosen = "Q6_K"
        elif kind == "q4_k_s" and index < 4:
            chosen = "Q5_K"
        return "Q5_K" if self.is_llama_70b and chosen in ("Q3_K", "Q4_K") else chosen

    def _key_type(self, sort: str, base: str) -> str:
        if sort == "attn_k" and self.num_experts == 8:
            return "Q8_0"
        return {"iq3_xs": "IQ3_XXS", "iq3_xxs": "IQ2_S"}.get(self.file_type, base)

    def _down_type(self, index: int, base: str) -> str:
        num, kind = self.num_layers, self.file_type
        is_early, has_more = index < num // 8, _has_more_bits(index, num)
        if kind == "q2_k":
            return "Q3_K"
        if kind == "q2_k_s":
            return "Q4_K" if is_early else base
        if kind == "iq3_xxs" and not self.has_importance_matrix:
            return "Q4_K" if is_early else "Q3_K"
        if kind == "q3_k_m":
            return "Q5_K" if index < num // 16 else "Q4_K" if has_more or not self.is_falcon else "Q3_K"
        if kind == "iq3_m":
            return "Q4_K" if is_early or (self.num_experts == 8 and has_more) else base
        if kind == "q3_k_l":
            return "Q4_K" if self.is_falcon else "Q5_K"
        if kind == "q4_k_m" and self.is_falcon:
            return "Q6_K" if index < num // 16 else "Q5_K" if has_more else "Q4_K"
        if kind in ("q4_k_m", "q5_k_m"):
            return "Q6_K" if has_more else base
        if is_early and kind in ("iq4_nl", "iq4_xs") and not self.has_importance_matrix:
            return "Q5_K"
        if is_early and kind == "q4_k_s" and not self.is_falcon:
            return "Q5_K"
        if is_early and kind in ("q4_0", "q5_0") and self.has_importance_matrix:
            return "Q4_1" if kind == "q4_0" else "Q5_1"
        return base

    def _attention_output_type(self, base: str) -> str:
        kind = self.file_type
        if self.is_falcon:
            return "Q4_K" if kind == "q3_k_l" else base
        if self.num_experts == 8:
            is_raised = kind in (
                "q2_k", "iq3_xs", "iq3_xxs", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq3_s", "iq3_m", "iq4_xs",
            )  # fmt: skip
            return "Q5_K" if is_raised else base
        raised = {"q2_k": "Q3_K", "iq3_xxs": "IQ3_S", "q3_k_m": "Q4_K", "q3_k_l": "Q5_K", "iq3_m": "Q4_K"}
        return raised.get(kind, base)

    def _gate_type(self, index: int, base: str) -> str:
        is_middle = self.num_layers // 8 <= index < 7 * self.num_layers // 8
        return "IQ3_XXS" if self.file_type == "iq3_xs" and is_middle else base


def _has_more_bits(index: int, num: int) -> bool:
    """Whether a tensor is among the first or last eighth, or every third of the rest."""
    return index < num // 8 or index >= 7 * num // 8 or (index - num // 8) % 3 == 2


def _fallback(chosen: str, num_columns: int) -> str:
    """Return a format whose block divides the row: the chosen one, its stand-in, or F16."""
    known = types_by_name()
    if num_columns % known[chosen].block_weights == 0:
        return chosen
    other = _FALLBACKS.get(chosen, "F16")
    return other if num_columns % known[other].block_weights == 0 else "F16"
