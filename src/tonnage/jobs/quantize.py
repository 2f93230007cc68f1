"""Quantises a checkpoint with llm-compressor and saves it beside: python quantize.py MODEL SCHEME FOLDER.

SCHEME is one of awq, gptq, fp8 (blocks), fp8_channel, int8, nvfp4, mxfp4, mxfp8. Head and routers stay as they are.
As the examples of llm-compressor 0.14: awq, quantization_w4a16, quantization_w8a8_fp8, quantization_w4a4_fp4.
"""

from __future__ import annotations

import sys
from typing import Any

from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.utils import load_context
from transformers import AutoModelForCausalLM, AutoTokenizer

KEPT = ["lm_head", "re:.*mlp.gate$", "re:.*block_sparse_moe.gate$", "re:.*router$", "re:.*visual.*", "re:.*vision.*"]
CALIBRATION: dict[str, Any] = {
    "dataset": "perfectblend",
    "splits": "train[:512]",
    "max_seq_length": 2048,
    "num_calibration_samples": 256,
}


def recipe_of(scheme: str) -> tuple[list[Any], bool]:
    """Return the modifiers of a scheme, and whether they look at text."""
    plain = {
        "fp8": "FP8_BLOCK",
        "fp8_channel": "FP8_DYNAMIC",
        "nvfp4": "NVFP4",
        "mxfp4": "MXFP4",
        "mxfp8": "MXFP8",
        "int8": "W8A8",
    }
    if scheme == "awq":
        return [AWQModifier(), QuantizationModifier(targets=["Linear"], scheme="W4A16", ignore=KEPT)], True
    if scheme == "gptq":
        return [GPTQModifier(targets="Linear", scheme="W4A16", ignore=KEPT)], True
    if scheme in plain:
        made = QuantizationModifier(targets="Linear", scheme=plain[scheme], ignore=KEPT)
        return [made], scheme in ("nvfp4", "int8")
    sys.exit(f"quantize: {scheme} is not a scheme; awq, gptq, {', '.join(plain)}")


def main(source: str, scheme: str, folder: str) -> None:
    """Quantise and save."""
    recipe, needs_text = recipe_of(scheme)
    with load_context():
        model = AutoModelForCausalLM.from_pretrained(source)
    tokenizer = AutoTokenizer.from_pretrained(source)
    oneshot(model=model, recipe=recipe, **(CALIBRATION if needs_text else {}))
    model.save_pretrained(folder, save_compressed=True)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("quantize: give the model, the scheme and a folder: python quantize.py Qwen/Qwen3-8B awq weights/out")
    main(*sys.argv[1:])
