"""Writes `data/conversions.csv`: what the programs that convert weights take, read in their own sources.

Facts only: program, name, choices where they are literal, version, and the file. The sources are parsed, never run.

    python validation/conversion_options.py LLMCOMPRESSOR COMPRESSED_TENSORS LLAMA_CPP KT_KERNEL

each a folder of the released source: llmcompressor 0.14.0.1, compressed-tensors 0.19.0, llama.cpp, kt-kernel 0.7.2.
"""

from __future__ import annotations

import ast
import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent.parent / "src" / "tonnage" / "data" / "conversions.csv"


class Row(NamedTuple):
    """One argument."""

    program: str
    name: str
    choices: str
    version: str
    where: str


def _tree(root: Path, file: str) -> ast.Module:
    return ast.parse((root / file).read_text(encoding="utf-8"))


def oneshot(root: Path) -> Iterator[Row]:
    """Parameters of llm-compressor's `oneshot`, and the fields of its modifiers."""
    file = "src/llmcompressor/entrypoints/oneshot.py"
    for node in ast.walk(_tree(root, file)):
        if isinstance(node, ast.FunctionDef) and node.name == "oneshot":
            for one in node.args.args:
                yield Row("llmcompressor.oneshot", one.arg, "", "0.14.0.1", file)
    for name, file in (
        ("GPTQModifier", "src/llmcompressor/modifiers/gptq/base.py"),
        ("AWQModifier", "src/llmcompressor/modifiers/transform/awq/base.py"),
        ("QuantizationMixin", "src/llmcompressor/modifiers/quantization/quantization/mixin.py"),
    ):
        for node in ast.walk(_tree(root, file)):
            if isinstance(node, ast.ClassDef) and node.name == name:
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        yield Row(f"llmcompressor.{name}", one.target.id, "", "0.14.0.1", file)


def schemes(root: Path) -> Iterator[Row]:
    """Names that `scheme=` takes."""
    file = "compressed_tensors/quantization/quant_scheme.py"
    for node in ast.walk(_tree(root, file)):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PRESET_SCHEMES":
            assert isinstance(node.value, ast.Dict)
            names = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
            yield Row("compressed_tensors", "scheme", " ".join(map(str, names)), "0.19.0", file)


def _arguments(root: Path, file: str, program: str, version: str, call: str) -> Iterator[Row]:
    for node in ast.walk(_tree(root, file)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(call):
            choices = next((k.value for k in node.keywords if k.arg == "choices"), None)
            allowed = [str(e.value) for e in getattr(choices, "elts", []) if isinstance(e, ast.Constant)]
            for one in node.args:
                if isinstance(one, ast.Constant) and str(one.value).startswith("--"):
                    yield Row(program, str(one.value), " ".join(allowed), version, file)


def llama_cpp(root: Path) -> Iterator[Row]:
    """Options of the converter, and the types that llama-quantize makes."""
    yield from _arguments(
        root, "convert_hf_to_gguf.py", "convert_hf_to_gguf.py", "llama_cpp_python 0.3.36", "add_argument"
    )
    file = "tools/quantize/quantize.cpp"
    table = (root / file).read_text(encoding="utf-8").partition("QUANT_OPTIONS = {")[2].partition("};")[0]
    names = re.findall(r'^\s*\{\s*"([A-Z0-9_]+)"', table, re.MULTILINE)
    yield Row("llama-quantize", "type", " ".join(names), "llama_cpp_python 0.3.36", file)


def kt_kernel(root: Path) -> Iterator[Row]:
    """Options of `kt quant`."""
    file = "kt_kernel/cli/commands/quant.py"
    yield from _arguments(root, file, "kt quant", "0.7.2", "Option")
    for node in ast.walk(_tree(root, file)):
        if isinstance(node, ast.ClassDef) and node.name == "QuantMethod":
            values = [str(ast.literal_eval(one.value)) for one in node.body if isinstance(one, ast.Assign)]
            yield Row("kt quant", "QuantMethod", " ".join(values), "0.7.2", file)


def main(compressor: Path, tensors: Path, llama: Path, kernel: Path) -> None:
    """Write the table."""
    rows = [*oneshot(compressor), *schemes(tensors), *llama_cpp(llama), *kt_kernel(kernel)]
    with DATA.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(dict.fromkeys(rows))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(f"give four folders: {(__doc__ or '').strip().splitlines()[-3].strip()}")
    main(*map(Path, sys.argv[1:]))
