"""An existing configuration or launch line, read into the words of a request.

Read are DeepSpeed, accelerate and torchtitan configurations, and launch lines of vLLM, SGLang, TensorRT-LLM, llama.cpp,
torchrun, deepspeed, Megatron-LM and torchtitan. Which flag means which field stands in `data/adopt/flags.csv`, with the source in which
it was read in `data/adopt/programs.csv`. What does not bear on memory or time is left aside; what does but has no
field here is named in `Adopted.ignored`, so that nobody believes it was counted.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tonnage import datafiles
from tonnage.errors import BadFileError, UnknownNameError
from tonnage.plan.pins import OWN

LARGEST_BYTES: Final = 1 << 20
_ENGINE_FIELDS: Final = ("--override-tensor", "-ot", "--cpu-offload-gb", "--swap-space")
_MOST_UNREAD: Final = 12
_LLAMA_UBATCH: Final = 512
_DTYPES: Final = {
    "bfloat16": "bf16", "bf16": "bf16", "half": "fp16", "float16": "fp16", "fp16": "fp16", "float": "fp32",
    "float32": "fp32", "fp32": "fp32", "no": "fp32", "fp8": "fp8",
}  # fmt: skip
_CACHES: Final = {
    "auto": None, "f16": "fp16", "fp16": "fp16", "bf16": "bf16", "bfloat16": "bf16", "f32": "fp32",
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
}  # fmt: skip
_FORMATS: Final = {
    "awq_marlin": "awq", "gptq_marlin": "gptq", "bitsandbytes": "nf4", "modelopt_fp4": "nvfp4", "modelopt": "fp8",
    "modelopt_fp8": "fp8", "fp8_per_tensor": "fp8_tensor", "fp8_per_block": "fp8", "fp8_per_channel": "fp8_channel",
    "auto_awq": "awq", "auto_gptq": "gptq", "gguf": None, "compressed-tensors": None, "unquant": None,
}  # fmt: skip
_OPTIMIZERS: Final = {
    "adam": "adamw", "adamw": "adamw", "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit", "adamw_torch_8bit": "adamw_8bit", "paged_adamw_8bit": "paged_adamw_8bit",
    "adafactor": "adafactor", "muon": "muon", "dist_muon": "muon", "sgd": "sgd",
}  # fmt: skip
_SHARDING: Final = {
    "FULL_SHARD": 3, "HYBRID_SHARD": 3, "SHARD_GRAD_OP": 2, "HYBRID_SHARD_ZERO2": 2, "NO_SHARD": 0,
    "1": 3, "2": 2, "3": 0, "4": 3, "5": 2, "TRUE": 3, "FALSE": 2,
    "OPTIM_GRADS_PARAMS": 3, "OPTIM_GRADS": 2, "OPTIM": 1,
}  # fmt: skip
_NOT_NAME: Final = re.compile(r"[-_.]?gguf$|[-_. ]", re.ASCII)
_ALL_EXPERTS: Final = re.compile(
    r"[^0-9,=]*?(?<!gate_)(?<!up_)(?<!down_)exps[^0-9A-Za-z,=]*=CPU"
)  # no layer, no one matrix
_QUANT_IN_NAME: Final = re.compile(
    r"(?:^|[-._/])((?:i?q[1-8](?:_[0-9a-z]{1,4}){1,2})|bf16|f16|f32|mxfp4)(?:-[0-9]{5}-of-[0-9]{5})?\.gguf$",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What a file said, in the words that `make_request` takes; `ignored` bears on the answer but has no field."""

    kind: str
    goal: str | None = None
    model: str | None = None
    engine: str | None = None
    num_devices: int | None = None
    num_nodes: int | None = None
    load: Mapping[str, str] = field(default_factory=dict[str, str])
    pins: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])  # pins of what the line leaves to the engine
    ignored: tuple[str, ...] = ()


class _Found:
    """What has been read so far."""

    def __init__(self, kind: str, where: str) -> None:
        self.kind = kind
        self.where = where
        self.values: dict[str, str] = {}
        self.defaults: dict[str, str] = {}
        self.ignored: list[str] = []

    def put(self, target: str, value: object) -> None:
        """Keep a value, unless the file leaves it open."""
        if value is None or str(value).lower() in ("auto", ""):
            return
        self.values[target] = str(value).lower() if isinstance(value, bool) else str(value)

    def take(self, target: str) -> str | None:
        """Take out a value that is no field of its own."""
        return self.values.pop(target, None)

    def number(self, target: str) -> int | None:
        """Take out a whole number."""
        text = self.take(target)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) < 1 << 31):
            raise BadFileError(f"'{text[:40]}' is not a number of {target}", where=self.where, fix="mend the file")
        return int(text)

    def adopted(self, *, goal: str | None, engine: str | None = None) -> Adopted:
        """Return everything as words of a request."""
        model, devices, nodes = self.take("model"), self.number("devices"), self.number("nodes")
        load = {n.removeprefix("load."): v for n, v in self.values.items() if n.startswith("load.")}
        pins = {n: v for n, v in self.values.items() if not n.startswith("load.")}
        return Adopted(
            kind=self.kind,
            goal=goal,
            model=model,
            engine=engine,
            num_devices=devices,
            num_nodes=nodes,
            load=load,
            pins=pins,
            defaults={n: v for n, v in self.defaults.items() if n not in pins},
            ignored=tuple(self.ignored),
        )


def is_same_model(one: str, other: str) -> bool:
    """Whether two names may mean one model: the last part of one, without format and ending, begins the other's.

    >>> is_same_model("Qwen/Qwen3-8B", "/models/qwen3-8b-Q4_K_M.gguf"), is_same_model("Qwen/Qwen3-8B", "Qwen/Qwen3-32B")
    (True, False)
    """
    a, b = (_NOT_NAME.sub("", _QUANT_IN_NAME.sub("", n.rstrip("/").rpartition("/")[2]).lower()) for n in (one, other))
    return a.startswith(b) or b.startswith(a)


def adopt(text: str, name: str) -> Adopted:
    """Read a configuration or a launch line.

    Parameters
    ----------
    text : str
        The file's text.
    name : str
        Its name; the ending says what it is.

    Returns
    -------
    Adopted
        Words for `make_request`.

    Raises
    ------
    BadFileError
        Not a file of a kind that is read here.

    Examples
    --------
    >>> dict(adopt("vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 32768", "run.sh").pins)
    {'layout.tp': '2'}
    """
    if len(text) > LARGEST_BYTES:
        raise BadFileError("larger than any configuration", where=name, fix="give the configuration itself")
    ending = name.lower().rpartition(".")[2]
    if ending == "json" or text.lstrip().startswith("{"):
        return _from_json(_load(text, name, json.loads), name)
    if ending == "toml":
        return _from_torchtitan(_load(text, name, tomllib.loads), name)
    if ending in ("yaml", "yml"):
        return _from_accelerate(read_flat_yaml(text, name), name)
    return _from_launch(text, name)


def _load(text: str, name: str, load: Callable[[str], Any]) -> dict[str, Any]:
    try:
        table = load(text)
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"cannot be read: {error}", where=name, fix="mend the file") from None
    if not isinstance(table, dict):
        raise BadFileError("is not a table of settings", where=name, fix="give the configuration itself")
    return table


def _at(table: Mapping[str, Any], path: str) -> Any:
    """Return what stands at a dotted path, None where nothing does."""
    value: Any = table
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _from_json(table: dict[str, Any], name: str) -> Adopted:
    if "distributed_type" in table or "compute_environment" in table:
        return _from_accelerate(table, name)
    known = {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "bf16", "fp16", "optimizer"}
    if not known & set(table):
        fix = "give a DeepSpeed, accelerate or torchtitan configuration, or a launch line"
        raise BadFileError("not a configuration that is known", where=name, fix=fix)
    return _from_deepspeed(table, name)


def _from_deepspeed(table: dict[str, Any], name: str) -> Adopted:
    found = _Found("DeepSpeed", name)
    found.put("micro_batch_size", table.get("train_micro_batch_size_per_gpu"))
    found.put("load.global_batch", table.get("train_batch_size"))
    found.put("layout.zero_stage", _at(table, "zero_optimization.stage"))
    for part, target in (("optimizer", "offload.optimizer"), ("param", "offload.parameters")):
        place = _at(table, f"zero_optimization.offload_{part}.device")
        is_old = bool(_at(table, f"zero_optimization.cpu_offload{'_param' if part == 'param' else ''}"))
        _put_place(found, target, "cpu" if is_old else place, _at(table, "zero_optimization.stage"))
    _put_optimizer(found, _at(table, "optimizer.type"))
    halves = [half for half in ("bf16", "fp16") if str(_at(table, f"{half}.enabled")).lower() == "true"]
    is_open = any(_at(table, f"{half}.enabled") == "auto" for half in ("bf16", "fp16"))
    found.put("precision.compute", None if is_open and not halves else (halves or ["fp32"])[0])
    ratio = _at(table, "zero_optimization.offload_optimizer.ratio")
    if isinstance(ratio, float) and ratio < 1:
        found.ignored.append(f"zero_optimization.offload_optimizer.ratio = {ratio}")
    return found.adopted(goal=None, engine="deepspeed")


def _put_place(found: _Found, target: str, place: object, stage: object) -> None:
    """Read where DeepSpeed keeps something; below stage 3 it takes a drive for host memory (0.19.8, stage_1_and_2.py)."""
    found.put(target, True if place in ("cpu", "nvme") else None)
    found.put(f"{target}_nvme", True if place == "nvme" and str(stage) == "3" else None)


def _put_optimizer(found: _Found, name: object) -> None:
    if name is None:
        return
    known = _OPTIMIZERS.get(str(name).lower())
    found.put("optimizer", known)
    if known is None:
        found.ignored.append(f"optimizer {str(name)[:40]}")


def read_flat_yaml(text: str, name: str) -> dict[str, Any]:
    """Read the YAML that `accelerate config` writes: `key: value`, and one level of tables below a key.

    >>> read_flat_yaml("num_processes: 8\\nfsdp_config:\\n  fsdp_version: 2\\n", "a.yaml")
    {'num_processes': '8', 'fsdp_config': {'fsdp_version': '2'}}
    """
    table: dict[str, Any] = {}
    inner: dict[str, Any] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", line).rstrip()  # noqa: PLW2901  the line without its comment
        if not line or line == "---":
            continue
        match = re.fullmatch(r"( *)([A-Za-z_][\w.-]*):(?: +(.*))?", line)
        value = (match[3] or "").strip() if match else ""
        if match is None or value[:1] in ("[", "&", "*", "|", ">", "!") or (match[1] and inner is None):
            fix = "keep to key: value and one level below, as accelerate config writes it"
            raise BadFileError("this YAML is more than a flat table", where=f"{name}:{number}", fix=fix)
        value = value.strip("'\"")
        if match[1] and inner is not None:
            inner[match[2]] = value
        elif value and value != "{}":
            table[match[2]], inner = value, None
        else:
            inner = table[match[2]] = {}
    return table


def _from_accelerate(table: dict[str, Any], name: str) -> Adopted:
    if "distributed_type" not in table:
        fix = "give what accelerate config wrote"
        raise BadFileError("not an accelerate configuration: no distributed_type", where=name, fix=fix)
    found = _Found("accelerate", name)
    found.put("devices", table.get("num_processes"))
    found.put("nodes", table.get("num_machines"))
    precision = str(table.get("mixed_precision", "no")).lower()
    found.put("precision.compute", _DTYPES.get(precision))
    kind = str(table["distributed_type"]).upper()
    if kind == "DEEPSPEED":
        _put_accelerate_deepspeed(found, table)
    elif kind == "FSDP":
        _put_fsdp(found, table)
    elif kind == "MEGATRON_LM":
        _put_accelerate_megatron(found, table)
    elif kind in ("MULTI_GPU", "NO"):  # every rank holds the whole model
        found.put("layout.zero_stage", 0)
    engine = {"DEEPSPEED": "deepspeed", "MEGATRON_LM": "megatron"}.get(kind)
    adopted = found.adopted(goal=None, engine=engine)
    if adopted.num_devices and adopted.num_nodes:
        return replace(adopted, num_devices=max(1, adopted.num_devices // adopted.num_nodes))
    return adopted


def _put_accelerate_deepspeed(found: _Found, table: Mapping[str, Any]) -> None:
    found.put("layout.zero_stage", _at(table, "deepspeed_config.zero_stage"))
    for part, target in (("optimizer", "offload.optimizer"), ("param", "offload.parameters")):
        place = _at(table, f"deepspeed_config.offload_{part}_device")
        _put_place(found, target, place, _at(table, "deepspeed_config.zero_stage"))
    if path := _at(table, "deepspeed_config.deepspeed_config_file"):
        found.ignored.append(f"deepspeed_config_file {str(path)[:80]} (import that file itself)")


def _put_fsdp(found: _Found, table: Mapping[str, Any]) -> None:
    strategy = _at(table, "fsdp_config.fsdp_reshard_after_forward")
    strategy = _at(table, "fsdp_config.fsdp_sharding_strategy") if strategy in (None, "") else strategy
    found.put("layout.zero_stage", 3 if strategy is None else _SHARDING.get(str(strategy).upper()))
    if _is_true(_at(table, "fsdp_config.fsdp_offload_params")):
        found.put("offload.parameters", True)
        found.put("offload.optimizer", True)
    if _is_true(_at(table, "fsdp_config.fsdp_activation_checkpointing")):
        found.put("recompute", "full")
    for field_name, target in (("tp", "layout.tp"), ("cp", "layout.cp")):
        found.put(target, _at(table, f"parallelism_config.parallelism_config_{field_name}_size"))


def _put_accelerate_megatron(found: _Found, table: Mapping[str, Any]) -> None:
    for field_name, target in (("tp_degree", "layout.tp"), ("pp_degree", "layout.pp")):
        found.put(target, _at(table, f"megatron_lm_config.megatron_lm_{field_name}"))
    if _is_true(_at(table, "megatron_lm_config.megatron_lm_sequence_parallelism")):
        found.put("layout.has_sequence_parallel", True)
    if _is_true(_at(table, "megatron_lm_config.megatron_lm_recompute_activations")):
        found.put("recompute", "selective")
    if _is_true(_at(table, "megatron_lm_config.megatron_lm_use_distributed_optimizer")):
        found.put("layout.zero_stage", 1)


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "1", "yes")


def _from_torchtitan(table: dict[str, Any], name: str) -> Adopted:
    if "training" not in table or not isinstance(table["training"], dict):
        fix = "give a torchtitan job configuration"
        raise BadFileError("not a torchtitan configuration: no [training]", where=name, fix=fix)
    found = _Found("torchtitan", name)
    batch = _at(table, "training.local_batch_size") or _at(table, "training.batch_size")
    stages = _at(table, "parallelism.pipeline_parallel_degree") or 1
    in_pipeline = _at(table, "parallelism.pipeline_parallel_microbatch_size") or 1
    found.put("micro_batch_size", in_pipeline if stages != 1 else batch)
    total = _at(table, "training.global_batch_size")
    found.put("load.global_batch", total if isinstance(total, int) and total > 0 else None)
    found.put("load.seq_len", _at(table, "training.seq_len"))
    for degree, target in (("tensor", "tp"), ("pipeline", "pp"), ("context", "cp"), ("expert", "ep")):
        found.put(f"layout.{target}", _at(table, f"parallelism.{degree}_parallel_degree"))
    shard = _at(table, "parallelism.data_parallel_shard_degree")
    reshard = _at(table, "parallelism.fsdp_reshard_after_forward")
    found.put("layout.zero_stage", 0 if shard == 1 else 2 if reshard == "never" else 3)
    _put_torchtitan_recompute(found, table)
    if _is_true(_at(table, "training.enable_cpu_offload")):
        found.put("offload.parameters", True)
        found.put("offload.optimizer", True)
    has_compile = _at(table, "training.compile") or _at(table, "compile.enable")
    found.put("settings.has_compile", True if _is_true(has_compile) else None)
    converters = _at(table, "model.converters") or []
    precision = _DTYPES.get(str(_at(table, "training.mixed_precision_param") or "bfloat16"))
    found.put("precision.compute", "fp8" if "float8" in converters else precision)
    _put_optimizer(found, _at(table, "optimizer.name"))
    return found.adopted(goal="pretrain", engine="torchtitan")


def _put_torchtitan_recompute(found: _Found, table: Mapping[str, Any]) -> None:
    """Read the mode: `selective` with a number is every n-th layer whole, with "op" chosen operations of every layer."""
    mode = _at(table, "activation_checkpoint.mode")
    option = str(_at(table, "activation_checkpoint.selective_ac_option") or "2")
    if mode == "selective" and option.isdigit():
        found.put("recompute", "full")
        found.put("recompute_every", option)
    else:
        found.put("recompute", mode)


def _from_launch(text: str, name: str) -> Adopted:
    words = _words(text, name)
    programs = {row["program"]: row for row in datafiles.rows("adopt/programs.csv")}
    program, place = _program(words, programs, name)
    row = programs[program]
    found = _Found(program, name)
    flags = {r["flag"]: r for r in datafiles.rows("adopt/flags.csv") if r["program"] == program}
    if program in ("megatron", "torchtitan"):
        flags |= {r["flag"]: r for r in datafiles.rows("adopt/flags.csv") if r["program"] == "torchrun"} | flags
        place = 0
    _read_flags(found, words[place + 1 :], flags)
    _settle(found, words, place, program)
    goal = None if row["goal"] == "train" else row["goal"]
    return found.adopted(goal=goal, engine=row["engine"] or None)


def _words(text: str, name: str) -> list[str]:
    """Split a script into words: line ends escaped by a backslash are joined, comments left out."""
    try:
        words = shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise BadFileError(
            f"not a launch line: {error}", where=name, fix="give one command, as a shell reads it"
        ) from None
    return words


def _program(words: list[str], programs: Mapping[str, Mapping[str, str]], name: str) -> tuple[str, int]:
    """Find which program is started, and where its name stands; `command -v NAME` only asks whether it is there."""
    for program, row in programs.items():
        marks = row["words"].split()
        for place, word in enumerate(words):
            last = word.rpartition("/")[2]
            if words[max(0, place - 2) : place] == ["command", "-v"]:
                continue
            if word in marks or last in marks or any("/" in m and m in word for m in marks):
                return program, place
    known = "vLLM, SGLang, TensorRT-LLM, llama.cpp, torchrun, deepspeed, Megatron-LM or torchtitan"
    raise BadFileError("starts no program that is known", where=name, fix=f"give a launch line of {known}")


def _read_flags(found: _Found, words: list[str], flags: Mapping[str, Mapping[str, str]]) -> None:
    """Walk over the words, `--flag value` and `--flag=value` alike; a dash and an underscore are one."""
    i = 0
    unread: list[str] = []
    while i < len(words):
        flag, equals, value = words[i].partition("=")
        row = flags.get(flag) or (flags.get("--" + flag[2:].replace("_", "-")) if flag.startswith("--") else None)
        following = words[i + 1] if i + 1 < len(words) else ""
        if row is None:
            if flag in ("-ot", "--override-tensor") and _ALL_EXPERTS.fullmatch(value or following):
                found.put("all_experts", True)
            elif flag in _ENGINE_FIELDS:
                found.ignored.append(f"{flag} {value or following}"[:80])
            elif re.fullmatch(r"--?[A-Za-z][\w.-]*", flag) and flag not in unread:
                unread.append(flag[:40])
            i += 1
            continue
        takes = not row["kind"].startswith("present")
        has_value = bool(equals) or (bool(following) and not following.startswith("--"))
        if not equals and has_value and (takes or row["kind"].startswith(("switch", "present:"))):
            value = following
        optional = row["kind"].startswith(("switch", "onoff", "present"))
        if takes and not has_value and not optional:
            raise BadFileError(f"{flag} has no value", where=found.where, fix="write the value after it")
        _put(found, row, flag, value)
        i += 2 if (takes and has_value and not equals) else 1
    if unread:
        more = f", {len(unread) - _MOST_UNREAD} more" if len(unread) > _MOST_UNREAD else ""
        found.ignored.append(", ".join(unread[:_MOST_UNREAD]) + more)


def _put(found: _Found, row: Mapping[str, str], flag: str, value: str) -> None:
    kind, _, fixed = row["kind"].partition(":")
    target = row["target"]
    if kind == "present":
        found.put(target, None if value.lower() == "false" else fixed or True)
    elif kind in ("switch", "onoff"):
        is_on = value.lower() in ("", "on", "true", "1", "yes") or value.startswith("-")
        found.put(target, None if value.lower() == "auto" else (fixed if is_on else None) if fixed else is_on)
    elif kind == "count":
        found.put(target, _count(found, flag, value))
    elif kind == "optimizer":
        _put_optimizer(found, value)
    elif kind in ("cache", "format", "dtype"):
        names = {"cache": _CACHES, "format": _FORMATS, "dtype": _DTYPES}[kind]
        found.put(target, names.get(value.lower(), value.lower()))
    else:
        found.put(target, value)


def _count(found: _Found, flag: str, value: str) -> int | None:
    """Read a count as these programs do: 32k is 32,000, 32K is 32,768, -1 and auto leave it open."""
    if value in ("auto", "-1", "gpu"):
        return None
    match = re.fullmatch(r"([0-9]{1,9})(?::[0-9]{1,9})?([kK]?)", value)
    if match is None:
        raise BadFileError(f"{flag} {value[:40]} is not a number", where=found.where, fix="write a whole number")
    return int(match[1]) * {"": 1, "k": 1000, "K": 1024}[match[2]]


def _settle(found: _Found, words: list[str], place: int, program: str) -> None:
    """Turn what a flag means only together with others into fields."""
    if program in ("vllm", "sglang", "tensorrt_llm"):
        # Neither flag quantises by itself: what is left out is the checkpoint's format, its type in the cache, one card.
        found.defaults |= {"precision.weights": OWN, "precision.kv": OWN, "layout.tp": "1", "layout.pp": "1"}
        found.defaults["layout.dp"] = "1"
        _put_own_folder(found, words[place + 1 : place + 3])
    if program == "vllm":
        _settle_vllm(found, words, place)
    elif program == "tensorrt_llm":
        found.put("model", next((word for word in words[place + 1 : place + 2] if not word.startswith("-")), None))
    elif program == "llama_cpp":
        _settle_llama_cpp(found)
    elif program == "megatron":
        _settle_megatron(found)
    elif program == "torchtitan":
        _settle_torchtitan(found, words)
    if (path := found.take("deepspeed_file")) is not None:
        found.ignored.append(f"--deepspeed {path[:80]} (import that file itself)")
    accumulation, devices = found.take("accumulation"), found.values.get("devices")
    micro = found.values.get("micro_batch_size")
    if accumulation and devices and micro:
        nodes = int(found.values.get("nodes", "1"))
        found.put("load.global_batch", int(accumulation) * int(devices) * nodes * int(micro))


def _put_own_folder(found: _Found, following: list[str]) -> None:
    """Read the format of weights that a bundle made: their folder is called by it, `weights/NAME-FORMAT`."""
    for name in (*following, found.values.get("model", "")):
        if name.startswith("weights/") and "precision.weights" not in found.values:
            _put_format(found, name.rpartition("-")[2])


def _settle_megatron(found: _Found) -> None:
    """Read what shards, and fill in what the line leaves at Megatron's defaults."""
    sharding, is_fsdp = found.take("sharding"), found.take("megatron_fsdp")
    if is_fsdp:
        found.put("layout.zero_stage", _SHARDING.get((sharding or "optim_grads_params").upper()))
    if (backend := found.take("attention_backend")) in ("flash", "fused", "unfused"):
        found.put("settings.has_flash_attention", backend != "unfused")
    found.defaults |= dict.fromkeys(("layout.tp", "layout.pp", "layout.cp", "layout.ep"), "1")
    found.defaults |= {"layout.zero_stage": "0", "recompute": "none", "layout.has_sequence_parallel": "false"}
    found.defaults |= {"offload.optimizer": "false", "layout.num_virtual_stages": "1"}


def _settle_torchtitan(found: _Found, words: list[str]) -> None:
    """Read the subcommand of activation checkpointing, and what is a micro-batch with and without a pipeline."""
    batch, in_pipeline = found.take("local_batch"), found.take("in_pipeline")
    stages = found.values.get("layout.pp", "1")
    found.put("micro_batch_size", batch if stages == "1" else in_pipeline or "1")
    sharded, reshard = found.take("sharded"), found.take("reshard")
    found.take("replicated")
    found.put("layout.zero_stage", 0 if sharded == "1" else 2 if reshard == "never" else 3)
    modes = [word.partition(":")[2] for word in words if word.startswith("activation-checkpoint:")]
    found.put("recompute", modes[-1] if modes else None)
    if found.take("cpu_offload"):
        found.put("offload.parameters", True)
        found.put("offload.optimizer", True)
    found.defaults |= dict.fromkeys(("layout.tp", "layout.pp", "layout.cp", "layout.ep"), "1")
    found.defaults |= {"offload.parameters": "false", "offload.optimizer": "false", "settings.has_compile": "false"}


def _settle_vllm(found: _Found, words: list[str], place: int) -> None:
    """Take the model of `vllm serve MODEL`; expert parallelism spans tensor and data parallel ranks."""
    following = words[place + 1 : place + 3]
    if following[:1] == ["serve"] and len(following) > 1 and not following[1].startswith("-"):
        found.put("model", following[1])
    if found.take("expert_parallel"):
        found.put("layout.ep", int(found.values.get("layout.tp", "1")) * int(found.values.get("layout.dp", "1")))


def _put_format(found: _Found, name: str) -> None:
    """Keep the format that a file's name ends in; one that is not known has no field."""
    from tonnage.estimate.weights import find_format  # noqa: PLC0415  only names of files need it

    try:
        found.put("precision.weights", find_format(name).name)
    except UnknownNameError:
        found.ignored.append(f"weights in {name}")


def _settle_llama_cpp(found: _Found) -> None:
    """Divide the context, which the slots share; count layers from the host's side instead of the GPU's."""
    hub = found.take("hub")
    if hub is not None:
        model, _, quant = hub.partition(":")
        found.put("model", model)
        found.put("precision.weights", quant.lower() or None)
    named = _QUANT_IN_NAME.search(found.values.get("model", ""))
    if "precision.weights" not in found.values and named is not None:
        _put_format(found, named[1].lower())
    elif hub is not None:
        found.defaults["precision.weights"] = "q4_k_m"
    found.defaults["precision.kv"] = "fp16"
    cache_v = found.take("cache_v")
    if cache_v is not None and cache_v != found.values.get("precision.kv", "fp16"):
        found.ignored.append(f"--cache-type-v {cache_v} (one type is counted for both)")
    for target in ("load.context", "load.concurrency"):  # 0: from the model, or left to the program
        if found.values.get(target) == "0":
            del found.values[target]
            found.ignored.append(f"{'-c' if target == 'load.context' else '-np'} 0 (left open: --{target[5:]} says it)")
    slots = int(found.values.get("load.concurrency", "1"))
    if (context := found.values.get("load.context")) is not None:
        found.put("load.context", max(1, int(context) // max(1, slots)))
    if found.take("all_experts"):
        found.put("offload.num_cpu_expert_layers", "all")
    layers = found.take("gpu_layers")
    if layers is not None and layers.isdigit():  # the layer after the last, the output, is counted among them
        found.put("offload.num_cpu_layers", f"all-{max(0, int(layers[:9]) - 1)}")
    batch = found.take("logical_batch")
    if batch is not None and "settings.max_batched_tokens" not in found.values and int(batch) < _LLAMA_UBATCH:
        found.put("settings.max_batched_tokens", batch)  # a batch of less than a micro-batch's default is cut to it
    _settle_split(found)


def _settle_split(found: _Found) -> None:
    """Read over how many cards llama.cpp spreads, and by what: equal parts of layers, or of each tensor."""
    mode, parts = found.take("split_mode"), found.take("tensor_split")
    if mode == "none":
        found.put("layout.tp", 1)
        found.put("layout.pp", 1)
    elif parts is not None and len(shares := re.split(r"[,/]", parts)) > 1 and len(set(shares)) == 1:
        found.put("layout.pp" if mode in (None, "layer") else "layout.tp", len(shares))
    elif parts is not None:
        found.ignored.append(f"--tensor-split {parts[:60]} (equal parts are counted)")
    if mode in ("row", "tensor", "graph", "attn") and parts is None:
        found.ignored.append(f"--split-mode {mode} (--tp says over how many cards)")
