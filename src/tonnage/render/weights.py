"""Where the weights that a plan assumes come from: the checkpoint itself, one that is known, or a conversion.

Conversions as in llm-compressor 0.14 (`jobs/quantize.py`); ggml-org/llama.cpp convert_hf_to_gguf.py and
tools/quantize/quantize.cpp; kt-kernel 0.7.2 kt_kernel/cli/commands/quant.py. Their options stand in `data/conversions.csv`.
Needs of a conversion are derived: the source is read once and held in host memory.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tonnage.estimate.types import Candidate
from tonnage.estimate.weights import checkpoint_format, is_gguf_file, weights_bytes
from tonnage.messages import say
from tonnage.model import catalogue
from tonnage.model.types import Model
from tonnage.nouns import noun
from tonnage.render.build import build_of
from tonnage.render.quote import shell_words
from tonnage.render.scripts import comment
from tonnage.units import Bytes, Seconds, format_bytes, format_seconds
from tonnage.workload.types import Serving

__all__ = ["Weights", "known_checkpoint", "weights_of"]

FOLDER: Final = "weights"
# Formats that are plain numbers: the engine casts while it loads.
_PLAIN: Final = frozenset(("bf16", "fp16", "fp32"))
# What an engine makes itself while it loads, from plain weights (vllm 0.33.0 --quantization, transformers serve).
_ONLINE: Final = {
    "vllm": frozenset(("fp8", "fp8_tensor", "fp8_channel")),
    "sglang": frozenset(("fp8", "fp8_tensor", "fp8_channel", "nf4", "nf4_double")),
    "transformers": frozenset(("nf4", "nf4_double", "int8")),
}
# Names of this tool's formats as `jobs/quantize.py` takes them.
_SCHEMES: Final = {
    "awq": "awq", "gptq": "gptq", "int4": "gptq", "fp8": "fp8", "fp8_tensor": "fp8_channel",
    "fp8_channel": "fp8_channel", "int8": "int8", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "mxfp8": "mxfp8",
}  # fmt: skip
_WIDE: Final = {"BF16": "bf16", "F16": "f16", "F32": "f32"}  # GGUF without blocks, as --outtype names it
_KT_INPUTS: Final = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}  # choices of --input-type
_READ_BYTES_PER_S: Final = 500e6  # a SATA SSD; the slower of disk and network is what a conversion waits for
_GPTQ_SECONDS_PER_PARAMETER: Final = 2e-7  # order of magnitude: an hour for 20 billion parameters on one card


@noun
class Weights:
    """What the launch names as its model, how it comes to be there, and what that takes."""

    name: str
    lines: tuple[str, ...] = ()  # of a shell script; none: the engine fetches the checkpoint itself
    note: str = ""
    disk_bytes: Bytes = 0.0
    host_bytes: Bytes = 0.0
    seconds: Seconds = 0.0
    host_name: str = ""  # of the experts on the host, where an engine reads them from a place of their own

    @property
    def is_made(self) -> bool:
        """Whether the weights have to be converted first."""
        return bool(self.lines)


def known_checkpoint(model: Model, weights: str) -> str | None:
    """Return a checkpoint of the catalogue that holds a model in a format, or None.

    Parameters
    ----------
    model : Model
        The model that was planned.
    weights : str
        A name of `estimate.weights.FORMATS`.

    Returns
    -------
    str or None
        A repository whose name goes on from the model's own, whose layers have the same number and width, and whose
        weights are stored so.
    """
    tail = model.name.rsplit("/", 1)[-1].lower()
    for name in catalogue.names():
        if name == model.name or not name.rsplit("/", 1)[-1].lower().startswith(tail):
            continue
        found = catalogue.find(name)
        if (
            checkpoint_format(found) == weights
            and (found.num_layers, found.hidden_size, found.vocab_size)
            == (model.num_layers, model.hidden_size, model.vocab_size)
            and found.is_moe == model.is_moe
        ):
            return name
    return None


def weights_of(candidate: Candidate) -> Weights:
    """Return where a candidate's weights come from.

    Parameters
    ----------
    candidate : Candidate
        Model, engine and the format of the weights.

    Returns
    -------
    Weights
        The name that the launch gives to the engine; a script's lines where a conversion is needed.
    """
    model, weights, engine = candidate.model, candidate.precision.weights, candidate.engine
    if not isinstance(candidate.workload, Serving):
        return Weights(name=model.name)
    if is_gguf_file(model):
        return Weights(name=model.name)
    if engine in ("llama.cpp", "ik_llama.cpp", "ollama"):
        return _gguf(candidate)
    if engine == "ktransformers":
        return _host_experts(candidate)
    if checkpoint_format(model) == weights:
        return Weights(name=model.name)
    own = checkpoint_format(model)
    if weights in _PLAIN and own in _PLAIN:
        return Weights(name=model.name)
    known = known_checkpoint(model, weights)
    if known is not None:
        return Weights(name=known, note=say("deploy.known_checkpoint", name=known, weights=weights))
    if weights in _ONLINE.get(engine, ()):
        return Weights(name=model.name)
    if weights not in _SCHEMES or own not in _PLAIN:
        note = say("deploy.no_conversion", name=model.name, weights=weights, own=own)
        return Weights(name=model.name, note=note)
    return _compressed(candidate)


def _tail(model: Model) -> str:
    """Return the model's own name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model.name.rstrip("/").rsplit("/", 1)[-1]).strip("-.") or "model"


def _needs(model: Model, weights: str) -> tuple[float, float]:
    """Return the bytes of the source and of what is made of it."""
    return float(sum(weights_bytes(model, "bf16").values())), float(sum(weights_bytes(model, weights).values()))


def _compressed(candidate: Candidate) -> Weights:
    model, weights = candidate.model, candidate.precision.weights
    place = f"{FOLDER}/{_tail(model)}-{weights}"
    source, made = _needs(model, weights)
    scheme = _SCHEMES[weights]
    looks = scheme in ("awq", "gptq")
    seconds = 2 * (source + made) / _READ_BYTES_PER_S + looks * _GPTQ_SECONDS_PER_PARAMETER * source / 2
    return _with_head(
        Weights(
            name=place,
            lines=(
                f"test -e {shell_words([place])}/config.json && exit 0",
                "test -x .quantize/bin/python || python3 -m venv .quantize",
                ".quantize/bin/python -m pip install 'llmcompressor==0.14.0.1'",
                f".quantize/bin/python quantize.py {shell_words([model.name, scheme, place + '.part'])}",
                f"mv {shell_words([place + '.part', place])}",
            ),
            disk_bytes=source + made,
            host_bytes=source * 1.1,
            seconds=seconds,
        ),
        model,
        weights,
    )


def _gguf(candidate: Candidate) -> Weights:
    model, weights, engine = candidate.model, candidate.precision.weights, candidate.engine
    kind = {"bf16": "BF16", "fp16": "F16", "fp32": "F32", "gguf_bf16": "BF16", "mxfp4": "MXFP4_MOE"}.get(
        weights, weights.upper()
    )
    place = f"{FOLDER}/{_tail(model)}-{kind}.gguf"
    source, made = _needs(model, weights)
    wide = kind if kind in _WIDE else "BF16"
    middle = f"{FOLDER}/{_tail(model)}-{wide}.gguf"
    build = build_of("ik_llama.cpp" if engine == "ik_llama.cpp" else "llama.cpp")
    is_here = model.name.startswith("/")
    folder = shell_words([model.name]) if is_here else f"{FOLDER}/source"
    hf = ".convert/bin/hf download"
    maker = candidate.cluster.node.devices[0].vendor.lower() if candidate.cluster.node.devices else "cpu"
    part, middle_part = f"{place}.part", f"{middle}.part"  # a run that was cut short leaves no file that looks whole
    quantize = (
        f"{build.folder}/build/bin/llama-quantize {shell_words([middle, part, kind])}\nmv {shell_words([part, place])}"
    )
    lines = (
        f"mkdir -p {FOLDER}; test -e {shell_words([place])} && exit 0",
        "test -x .convert/bin/python || python3 -m venv .convert",
        ".convert/bin/python -m pip install huggingface_hub",
        comment(say("deploy.gguf_repository", kind=kind)),
        'if [ -n "${GGUF_REPO:-}" ]; then',
        f"  {hf} \"$GGUF_REPO\" --include '*{kind}*.gguf' --local-dir {FOLDER}",
        f"  first=$(find {FOLDER} -iname '*{kind}*.gguf' | sort | head -n 1)",
        f'  ln -s "${{first#{FOLDER}/}}" {shell_words([place])}; exit 0',
        "fi",
        *(build.lines(maker) if kind not in _WIDE else build.source_lines),
        f".convert/bin/python -m pip install -r {build.folder}/requirements/requirements-convert_hf_to_gguf.txt",
        *(() if is_here else (f"{hf} {shell_words([model.name])} --local-dir {folder}",)),
        (
            f"test -e {shell_words([middle])} || {{ .convert/bin/python {build.folder}/convert_hf_to_gguf.py {folder} "
            f"--outtype {_WIDE[wide]} --outfile {shell_words([middle_part])}; mv {shell_words([middle_part, middle])}; }}"
        ),
        *(() if kind in _WIDE else (quantize,)),
    )
    made_weights = Weights(
        name=place,
        lines=lines,
        disk_bytes=2 * source + made,
        host_bytes=4e9 + source / max(model.num_layers, 1) * 4,  # a few tensors at a time
        seconds=(2 * source + 2 * made) / _READ_BYTES_PER_S,
    )
    return _with_head(made_weights, model, weights)


def _host_experts(candidate: Candidate) -> Weights:
    """Return a folder with the checkpoint, which kt-kernel reads itself, and one with experts for the host's AMX units."""
    model, weights = candidate.model, candidate.precision.weights
    own = checkpoint_format(model)
    is_here = model.name.startswith("/")
    folder = model.name if is_here else f"{FOLDER}/{_tail(model)}"
    source = float(sum(weights_bytes(model, own if own in _PLAIN else weights).values()))
    fetch = (
        "test -x .convert/bin/python || python3 -m venv .convert",
        ".convert/bin/python -m pip install huggingface_hub",
        f".convert/bin/hf download {shell_words([model.name])} --local-dir {shell_words([folder])}",
    )
    lines = (
        () if is_here else (f"test -e {shell_words([folder])}/config.json || {{", *(f"  {one}" for one in fetch), "}")
    )
    method = next((one for one in ("int4", "int8") if weights.startswith(one)), None)
    if method is None or own not in _KT_INPUTS:
        found = Weights(
            name=folder, host_name=folder, lines=lines, disk_bytes=source, seconds=source / _READ_BYTES_PER_S
        )
        return _with_head(found, model, weights) if lines else found
    experts = f"{FOLDER}/{_tail(model)}-{method}"
    made = float(sum(weights_bytes(model, weights).values()))
    host = candidate.cluster.node.host
    words = ["kt", "quant", folder, "--method", method, "--output", f"{experts}.part", "--input-type", _KT_INPUTS[own],
             "--cpu-threads", str(host.num_cores), "--numa-nodes", "1", "--yes"]  # fmt: skip
    found = Weights(
        name=folder,
        host_name=experts,
        lines=(
            *lines,
            f"test -e {shell_words([experts])} && exit 0",
            f".venv/bin/{shell_words(words)}",
            f"mv {shell_words([f'{experts}.part', experts])}",
        ),
        disk_bytes=source + made,
        host_bytes=2 * source / max(model.num_layers, 1) + made,
        seconds=2 * (source + made) / _READ_BYTES_PER_S,
    )
    return _with_head(found, model, weights)


def _with_head(found: Weights, model: Model, weights: str) -> Weights:
    """Say what the conversion takes, in the script and in the bundle's notes."""
    note = say(
        "deploy.conversion",
        name=model.name,
        weights=weights,
        disk=format_bytes(found.disk_bytes),
        host=format_bytes(found.host_bytes),
        time=format_seconds(found.seconds),
    )
    return replace(found, note=note, lines=(comment(note), *found.lines))
