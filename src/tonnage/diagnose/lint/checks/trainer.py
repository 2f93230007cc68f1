"""Scripts around the Transformers Trainer: arguments that do not exist, settings that refuse each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tonnage import datafiles
from tonnage.diagnose.lint.checks.launchers import launches_script
from tonnage.diagnose.lint.checks.types import Context, alike
from tonnage.diagnose.lint.python_code import Call, Code, argument_removal, argument_rename, constant, span
from tonnage.diagnose.lint.seen import Seen
from tonnage.diagnose.lint.types import Edit, Hit

__all__ = ["device_maps", "missing_imports", "moved", "trainer_arguments", "visible_late"]

_ARGUMENTS: Final = {
    "TrainingArguments": ("trainer_field",),
    "Seq2SeqTrainingArguments": ("trainer_field", "seq2seq_field"),
}
_PROCESSES: Final = frozenset((
    "devices", "num_processes", "process_index", "num_gpus", "n_gpu", "world_size", "num_nodes", "local_process_index",
    "gpus", "nproc_per_node",
))  # fmt: skip
_FP8: Final = re.compile(r"fp8|float8|e4m3|e5m2", re.IGNORECASE)
_HOMES: Final = {
    "load_dataset": "datasets", "load_from_disk": "datasets", "DataCollatorForLanguageModeling": "transformers",
    "Trainer": "transformers", "TrainingArguments": "transformers", "AutoTokenizer": "transformers",
    "AutoModelForCausalLM": "transformers", "AutoConfig": "transformers", "BitsAndBytesConfig": "transformers",
    "LoraConfig": "peft", "get_peft_model": "peft", "SFTTrainer": "trl", "SFTConfig": "trl", "Accelerator": "accelerate",
}  # fmt: skip


def renamed(group: str) -> dict[str, dict[str, str]]:
    """Return the rows of what was renamed or removed in a group, by the old name."""
    return {row["name"]: row for row in datafiles.rows("lint/renamed.csv") if row["group"] == group}


def trainer_arguments(seen: Seen, context: Context) -> Iterator[Hit]:
    """Look at each TrainingArguments(…): unknown fields, values, and what refuses each other."""
    code = seen.code
    for call in code.calls if code else ():
        if not is_of(call.name, ("transformers", "trl")):
            continue
        if call.tail in _ARGUMENTS and code is not None:
            known = frozenset[str]().union(*(context.known.names.get(g, frozenset()) for g in _ARGUMENTS[call.tail]))
            yield from _fields(call, code, known, context)
            yield from _values(call, code, context)
        elif call.tail in ("SFTConfig", "DPOConfig", "GRPOConfig") and code is not None:
            for name in set(call.keywords) & set(renamed("trainer_field")):
                yield _renamed(call, name, code)
        elif call.tail == "Trainer":
            known = context.known.names.get("trainer_parameter", frozenset())
            for name, keyword in call.keywords.items():
                if known and name not in known | {"tokenizer"}:
                    yield Hit(rule="trainer-unknown-parameter", line=keyword.value.lineno,
                              values={"name": name, "alike": _like(name, known)})  # fmt: skip


def is_of(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a name is a package's own, or stands alone, as in a snippet without its imports."""
    return "." not in name or name.partition(".")[0] in packages


def _like(name: str, known: frozenset[str]) -> str:
    found = alike(name, known)
    return f" ({', '.join(found)}?)" if found else ""


def _fields(call: Call, code: Code, known: frozenset[str], context: Context) -> Iterator[Hit]:
    release = context.known.installed.get("trainer_field") or context.known.releases.get("trainer_field", "")
    old = renamed("trainer_field")
    for name, keyword in call.keywords.items():
        if name in known:
            continue
        line = keyword.lineno
        if name in old:
            yield _renamed(call, name, code)
        elif _FP8.search(name):
            yield Hit(rule="trainer-fp8-argument", line=line, values={"name": name},
                      edit=argument_removal(code.text, keyword))  # fmt: skip
        elif name in _PROCESSES:
            yield Hit(rule="trainer-process-argument", line=line, values={"name": name},
                      edit=argument_removal(code.text, keyword))  # fmt: skip
        elif name == "optimizer":
            yield Hit(rule="trainer-optimizer-argument", line=line, values={"value": ast.unparse(keyword.value)},
                      edit=_optimizer_edit(code, keyword, context))  # fmt: skip
        else:
            yield Hit(rule="trainer-unknown-argument", line=line,
                      values={"name": name, "alike": _like(name, known), "release": release})  # fmt: skip


def _renamed(call: Call, name: str, code: Code) -> Hit:
    row, keyword = renamed("trainer_field")[name], call.keywords[name]
    edit = None
    if row["fix"] == "rename" and row["today"] not in call.keywords:
        edit = argument_rename(code.text, keyword, row["today"])
    elif row["fix"] == "remove":
        edit = argument_removal(code.text, keyword)
    return Hit(rule="trainer-renamed-argument", line=keyword.lineno, edit=edit,
               values={"name": name, "today": row["today"], "since": row["since"]})  # fmt: skip


def _optimizer_edit(code: Code, keyword: ast.keyword, context: Context) -> Edit | None:
    value = constant(keyword.value)
    known = context.known.names.get("optimizer", frozenset())
    if isinstance(value, str):
        return span(code.text, keyword, f'optim="{value if value in known else "adamw_torch_fused"}"')
    return None


def _values(call: Call, code: Code, context: Context) -> Iterator[Hit]:
    held = {name: constant(k.value) for name, k in call.keywords.items()}
    optimizers = context.known.names.get("optimizer", frozenset())
    for name in ("optim", "optimizer"):
        value = held.get(name)
        if isinstance(value, str) and optimizers and value not in optimizers:
            keyword = call.keywords[name]
            edit = (
                span(code.text, keyword.value, '"adamw_torch_fused"')
                if value == "adamw_hf" and name == "optim"
                else None
            )
            yield Hit(rule="trainer-optim-value", line=keyword.value.lineno, edit=edit,
                      values={"value": value, "alike": _like(value, optimizers)})  # fmt: skip
    if held.get("fp16") is False and held.get("bf16") is not True and "bf16" not in _open(call):
        yield Hit(rule="trainer-full-precision", line=call.keywords["fp16"].lineno)
    if held.get("fp16") is True and held.get("bf16") is True:
        yield Hit(rule="trainer-two-precisions", line=call.keywords["fp16"].lineno)
    if held.get("load_best_model_at_end") is True:
        yield from _best(call, held, code)


def _open(call: Call) -> set[str]:
    """Return the arguments whose value is no literal: nothing is said of them."""
    return {name for name, k in call.keywords.items() if constant(k.value) is None}


def _best(call: Call, held: dict[str, object], code: Code) -> Iterator[Hit]:
    """Hold the evaluation strategy against the saving one, as TrainingArguments itself does."""
    if {"eval_strategy", "evaluation_strategy", "save_strategy"} & _open(call) or len(call.keywords) < len(
        call.node.keywords
    ):
        return
    keyword = call.keywords["load_best_model_at_end"]
    evaluation = held.get("eval_strategy", held.get("evaluation_strategy", "no"))
    saving = held.get("save_strategy", "steps")
    if saving not in ("best", evaluation):
        edit = None
        if "eval_strategy" not in held and "evaluation_strategy" not in held and saving != "no":
            steps = (
                f", eval_steps={held['save_steps']}"
                if saving == "steps" and isinstance(held.get("save_steps"), int)
                else ""
            )
            edit = span(code.text, keyword, f'eval_strategy="{saving}"{steps}, load_best_model_at_end=True')
        yield Hit(rule="trainer-load-best", line=keyword.lineno, edit=edit,
                  values={"evaluation": evaluation, "saving": saving})  # fmt: skip
        return
    every, saved = held.get("eval_steps", held.get("logging_steps", 500)), held.get("save_steps", 500)
    if evaluation == "steps" and isinstance(every, int) and isinstance(saved, int) and every > 0 and saved % every:
        yield Hit(rule="trainer-load-best-steps", line=keyword.lineno, values={"eval": every, "save": saved})


def device_maps(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find a model that is spread over cards by device_map and trained by several processes."""
    code = seen.code
    if code is None:
        return
    loads = [
        c for c in code.calls if "device_map" in c.keywords and constant(c.keywords["device_map"].value) is not None
    ]
    loads = [
        c
        for c in loads
        if constant(c.keywords["device_map"].value) in ("auto", "balanced", "balanced_low_0", "sequential")
    ]
    if not loads:
        return
    launcher = launches_script(seen, context) or _own_processes(code)
    if launcher:
        for call in loads:
            keyword = call.keywords["device_map"]
            yield Hit(rule="device-map-distributed", line=keyword.value.lineno, edit=argument_removal(code.text, keyword),
                      values={"value": ast.unparse(keyword.value), "launcher": launcher})  # fmt: skip


def _own_processes(code: Code) -> str:
    """Return what in the script itself says that several processes train."""
    for call in code.calls:
        if call.name.endswith(("init_process_group", "DistributedDataParallel", "Accelerator", "deepspeed.initialize")):
            return call.tail
        if call.tail == "TrainingArguments":
            number = next(
                (constant(call.keywords[n].value) for n in ("num_processes", "devices") if n in call.keywords), None
            )
            if isinstance(number, int) and number > 1:
                return f"{number} processes"
            if {"deepspeed", "fsdp", "ddp_backend"} & set(call.keywords):
                return "deepspeed" if "deepspeed" in call.keywords else "distributed arguments"
    return ""


def moved(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find .to(…) and .cuda() of a model that device_map has placed."""
    del context
    code = seen.code
    if code is None:
        return
    placed: dict[str, int] = {}
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Assign) and _is_placed(node.value):
            placed |= {t.id: node.lineno for t in node.targets if isinstance(t, ast.Name)}
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda"):
            if node.func.attr == "to" and not _is_place(node):
                continue
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else ""
            if _is_placed(owner) or (name in placed and node.lineno > placed[name]):
                edit = span(code.text, node, "")
                inner = span(code.text, owner, "")
                yield Hit(
                    rule="moved-after-device-map", line=edit.end_line, values={"verb": node.func.attr},
                    edit=Edit(line=inner.end_line, start=inner.end, end_line=edit.end_line, end=edit.end, text=""),
                )  # fmt: skip


def _is_place(node: ast.Call) -> bool:
    """Whether .to(…) moves to a device: .to(dtype) does not."""
    text = " ".join(ast.unparse(a) for a in (*node.args, *(k.value for k in node.keywords)))
    return not re.search(r"float|half|int8|dtype", text) or "cuda" in text


def _is_placed(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda", "eval", "train"):
        return _is_placed(node.func.value)
    return any(k.arg == "device_map" and constant(k.value) != "cpu" for k in node.keywords)


def missing_imports(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find well-known names that a script uses and never imports."""
    del context
    code = seen.code
    if code is None or "*" in code.bound:
        return
    for name, home in _HOMES.items():
        if (
            name in code.used
            and name not in code.bound
            and any(b in code.bound for b in ("Trainer", "torch", "transformers"))
        ):
            yield Hit(rule="missing-import", line=code.used[name], values={"name": name, "home": home})


def visible_late(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find CUDA_VISIBLE_DEVICES set after CUDA was already asked."""
    del context
    code = seen.code
    if code is None:
        return
    first = min((c.line for c in code.calls if c.name.startswith("torch.cuda.") or c.tail == "cuda"), default=None)
    for setting in code.settings:
        if setting.name == "CUDA_VISIBLE_DEVICES" and first is not None and setting.line > first:
            yield Hit(rule="visible-devices-late", line=setting.line, values={"line": first})
