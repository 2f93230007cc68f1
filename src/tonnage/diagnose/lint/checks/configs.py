"""DeepSpeed and accelerate configurations: keys that do not exist, sums that do not add up, stages that cannot hold a model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tonnage.diagnose.lint.checks.launchers import Launch, launch_of
from tonnage.diagnose.lint.checks.trainer import renamed
from tonnage.diagnose.lint.checks.types import Context, alike, basename
from tonnage.diagnose.lint.python_code import constant
from tonnage.diagnose.lint.seen import Seen
from tonnage.diagnose.lint.types import Edit, Hit
from tonnage.diagnose.lint.yaml_text import Table, at, line_of
from tonnage.errors import TonnageError

__all__ = ["accelerate_keys", "batch_sums", "deepspeed_keys", "stage_memory"]

# Keys below which the user's own names stand.
_FREE: Final = ("params", "compression_training", "autotuning", "data_efficiency", "curriculum_learning", "monitor_config",
                "elasticity", "tensor_parallel", "compile", "hybrid_engine", "wandb", "comet", "quantize_training")  # fmt: skip
_LARGEST_BYTES: Final = 80e9  # what an 80 GB card is sold as; its driver reports less
_BYTES_HALF: Final = 2  # weights and gradients in 16 bit
_BYTES_STATES: Final = 12  # fp32 master copy and two moments of Adam (Rajbhandari et al., ZeRO, 2020, section 3.1)
_IN_NAME: Final = re.compile(
    r"(?<![A-Za-z0-9])(\d{1,4}(?:[._]\d{1,2})?)[bB](?![A-Za-z0-9])|(?<![A-Za-z0-9])(\d{1,4})[bB]_", re.ASCII
)


def _table(seen: Seen) -> Table | None:
    return next((t for t in seen.tables if isinstance(t, Table)), None)


def deepspeed_keys(seen: Seen, context: Context) -> Iterator[Hit]:
    """Hold every key against those that DeepSpeed defines; some were renamed or removed."""
    table = _table(seen)
    if table is None:
        return
    old = renamed("deepspeed_key")
    known = context.known.names.get("deepspeed_key", frozenset()) | context.known.names.get(
        "deepspeed_zero_key", frozenset()
    )
    yield from _keys(seen, table, "", known, old, 0)


def _keys(
    seen: Seen, table: Table, path: str, known: frozenset[str], old: Mapping[str, Mapping[str, str]], depth: int
) -> Iterator[Hit]:
    for key, value in table.items():
        line = table.lines[key]
        row = old.get(f"{path}{key}") or (old.get(f"*.{key}") if path else None)
        if row is not None:
            edit = _key_edit(seen, line, key, row["today"]) if row["fix"] == "rename" else None
            yield Hit(rule="deepspeed-renamed-key", line=line, edit=edit,
                      values={"name": key, "today": row["today"], "since": row["since"]})  # fmt: skip
        elif key not in known and not key.startswith(("_", "comment")) and (near := alike(key, known)):
            yield Hit(rule="deepspeed-unknown-key", line=line, values={"name": key, "alike": ", ".join(near)},
                      edit=_key_edit(seen, line, key, near[0]) if len(near) == 1 else None)  # fmt: skip
        if isinstance(value, Table) and key not in _FREE and depth < 6:
            yield from _keys(seen, value, f"{path}{key}.", known, old, depth + 1)


def _key_edit(seen: Seen, line: int, old: str, new: str) -> Edit | None:
    text = seen.document.lines[line - 1]
    place = text.find(old)
    is_name = re.fullmatch(r"\w+", new) is not None
    return (
        Edit(line=line, start=place, end_line=line, end=place + len(old), text=new) if place >= 0 and is_name else None
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def batch_sums(seen: Seen, context: Context) -> Iterator[Hit]:
    """Check train_batch_size = micro-batch × accumulation × ranks: DeepSpeed refuses to start otherwise."""
    table = _table(seen)
    if table is None:
        return
    total, micro, steps = (
        _whole(table.get(name))
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    line = table.lines.get("train_batch_size", table.lines.get("train_micro_batch_size_per_gpu", 1))
    for name, value in (
        ("train_batch_size", total),
        ("train_micro_batch_size_per_gpu", micro),
        ("gradient_accumulation_steps", steps),
    ):
        if value is not None and value <= 0:
            yield Hit(rule="deepspeed-batch", line=table.lines[name], values={"sum": f"{name} = {value}"})
            return
    ranks = _ranks(seen, context)
    if total is None:
        return
    part = (micro or 1) * (steps or 1)
    if total % part:
        yield Hit(rule="deepspeed-batch", line=line,
                  values={"sum": f"{total} is not a multiple of {micro or 1} × {steps or 1}"})  # fmt: skip
    elif ranks is not None and micro is not None and steps is not None and part * ranks != total:
        yield Hit(rule="deepspeed-batch", line=line,
                  values={"sum": f"{micro} × {steps} × {ranks} = {part * ranks}, not {total}"})  # fmt: skip
    elif ranks is not None and total % (part * ranks):
        yield Hit(rule="deepspeed-batch", line=line,
                  values={"sum": f"{total} is not a multiple of {part} × {ranks}"})  # fmt: skip


def _launches(seen: Seen, context: Context) -> Iterator[Launch]:
    """Yield the launch lines that name this configuration."""
    name = basename(seen.document.file)
    for place, command in context.commands():
        launch = launch_of(command)
        if launch is None:
            continue
        words = [w.partition("=")[2] or w for w in (*launch.flags, *launch.script_words)]
        own = place.document.file == seen.document.file
        if any(basename(w) == name for w in words) or (own and any(w.endswith(".json") for w in words)):
            yield launch


def _ranks(seen: Seen, context: Context) -> int | None:
    """Return how many ranks the one launch line that names this file starts; None where none or several do."""
    numbers = set[int]()
    for launch in _launches(seen, context):
        nodes = launch.values.get("--num_nodes") or launch.values.get("--nnodes") or "1"
        if launch.num_processes is None or not nodes.isdigit():
            return None
        each = launch.num_processes
        numbers.add(each if launch.program == "accelerate" else each * int(nodes))
    return numbers.pop() if len(numbers) == 1 else None


def stage_memory(seen: Seen, context: Context) -> Iterator[Hit]:
    """Hold what a ZeRO stage keeps on every card against one of 80 GB, where the launch line names the model.

    Weights 2 B, gradients 2 B, states of Adam in fp32 12 B a parameter; stage 1 splits the states over the ranks, stage 2
    the gradients too, stage 3 the weights too (Rajbhandari et al., ZeRO: Memory Optimizations, 2020, figure 1).
    """
    table = _table(seen)
    if table is None:
        return
    stage = _whole(at(table, "zero_optimization.stage")) or 0
    if stage > 2:
        return
    states_away = at(table, "zero_optimization.offload_optimizer.device") in ("cpu", "nvme") or bool(
        at(table, "zero_optimization.cpu_offload")
    )
    for launch in _launches(seen, context):
        named = _model_of(launch, context)
        if named is None:
            continue
        model, num_parameters = named
        ranks = _ranks(seen, context) or 1
        states = 0.0 if states_away else _BYTES_STATES / (ranks if stage >= 1 else 1)
        gradients = 0.0 if states_away and stage == 2 else _BYTES_HALF / (ranks if stage >= 2 else 1)
        held = num_parameters * (_BYTES_HALF + gradients + states)
        if held > _LARGEST_BYTES or num_parameters * _BYTES_HALF > 0.8 * _LARGEST_BYTES:
            values = {
                "stage": stage, "model": model, "weights": f"{num_parameters * _BYTES_HALF / 1e9:.0f}",
                "held": f"{held / 1e9:.0f}",
            }  # fmt: skip
            yield Hit(rule="zero-stage-memory", line=line_of(table, "zero_optimization.stage"), values=values)
            return


def _model_of(launch: Launch, context: Context) -> tuple[str, float] | None:
    """Return the model that a launch line or its script names with its parameters: by the catalogue, else by its name."""
    for i, word in enumerate(launch.script_words):
        name, equals, value = word.partition("=")
        if name in ("--model_name_or_path", "--model", "--model_name", "--model-path", "--model_path"):
            given = value if equals else (launch.script_words[i + 1] if i + 1 < len(launch.script_words) else "")
            return _size_of(given)
    for script in context.named(launch.script):
        for call in script.code.calls if script.code else ():
            if call.tail == "from_pretrained" and "Model" in call.name and call.node.args:
                given = constant(call.node.args[0])
                return _size_of(given) if isinstance(given, str) else None
    return None


def _size_of(name: str) -> tuple[str, float] | None:
    from tonnage.estimate.summary import summarize  # noqa: PLC0415  few configurations come with their model
    from tonnage.model import catalogue  # noqa: PLC0415

    if not name or name.startswith(("$", "-")):
        return None
    try:
        return name, float(summarize(catalogue.find(name)).parameters.total)
    except (TonnageError, AttributeError):
        match = max(
            _IN_NAME.finditer(basename(name)), key=lambda m: float((m[1] or m[2]).replace("_", ".")), default=None
        )
        if match is None:
            return None
        number = float((match[1] or match[2]).replace("_", "."))
        return (name, number * 1e9) if math.isfinite(number) and number > 0 else None


def accelerate_keys(seen: Seen, context: Context) -> Iterator[Hit]:
    """Hold an accelerate configuration against the fields that `accelerate launch` takes."""
    table = _table(seen)
    if table is None:
        return
    known = context.known.names.get("accelerate_key", frozenset())
    flags = frozenset(f.lstrip("-").replace("-", "_") for f in context.known.names.get("accelerate_flag", frozenset()))
    is_sagemaker = table.get("compute_environment") == "AMAZON_SAGEMAKER"
    for key in table:
        if known and not is_sagemaker and key not in known and key not in ("fp16", "dynamo_backend"):
            near = alike(key, known)
            yield Hit(rule="accelerate-unknown-key", line=table.lines[key],
                      values={"name": key, "alike": f" ({', '.join(near)}?)" if near else ""})  # fmt: skip
    yield from _fsdp(table, flags)
    yield from _accelerate_sums(table)


def _fsdp(table: Table, flags: frozenset[str]) -> Iterator[Hit]:
    fsdp = table.get("fsdp_config")
    if not isinstance(fsdp, Table):
        return
    version = _whole(fsdp.get("fsdp_version")) or 1
    if version == 1 and str(table.get("distributed_type", "")).upper() == "FSDP":
        yield Hit(rule="fsdp-version-1", line=fsdp.lines.get("fsdp_version", table.lines["fsdp_config"]))
    old = renamed("fsdp_key")
    for key in fsdp:
        if version == 2 and key in old:
            yield Hit(rule="fsdp2-old-key", line=fsdp.lines[key], values={"name": key, "today": old[key]["today"]})
        elif key.startswith("fsdp_") and key not in flags and key not in old and (near := alike(key, flags)):
            yield Hit(rule="accelerate-unknown-key", line=fsdp.lines[key],
                      values={"name": key, "alike": f" ({', '.join(near)}?)"})  # fmt: skip


def _accelerate_sums(table: Table) -> Iterator[Hit]:
    """num_processes counts all machines; every one of them has the same number of cards."""
    processes, machines = _whole(table.get("num_processes")), _whole(table.get("num_machines"))
    if processes and machines and machines > 0 and processes % machines:
        yield Hit(rule="accelerate-processes", line=table.lines["num_processes"],
                  values={"processes": processes, "machines": machines})  # fmt: skip
    rank = _whole(table.get("machine_rank"))
    if rank is not None and machines and rank >= machines:
        yield Hit(rule="accelerate-rank", line=table.lines["machine_rank"], values={"rank": rank, "machines": machines})
