"""Launch lines: which program starts which script with which flags, and what of it does not exist or agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from tonnage import datafiles
from tonnage.diagnose.lint.checks.types import Context, alike, basename, is_script
from tonnage.diagnose.lint.seen import Seen, docker_image_place
from tonnage.diagnose.lint.types import Command, Edit, Hit
from tonnage.nouns import noun

__all__ = ["Launch", "engine_flags", "launch_of", "launcher_flags", "launches_script", "restarts", "visible_devices"]

# Options of each launcher that take no value; every other word that begins with a dash takes the next.
_SWITCHES: Final = {
    "torchrun": {"--standalone", "-m", "--module", "--no-python", "--no_python", "--run-path", "--run_path", "--use-env",
                 "--use_env", "--virtual-local-rank", "--virtual_local_rank"},
    "accelerate": {"-m", "--module", "--multi_gpu", "--multi-gpu", "--cpu", "--tpu", "--use_deepspeed", "--use-deepspeed",
                   "--use_fsdp", "--use-fsdp", "--use_megatron_lm", "--no_python", "--debug", "-q", "--quiet", "--ipex",
                   "--use_parallelism_config", "--enable_cpu_affinity", "--downcast_bf16", "--dynamo_use_fullgraph",
                   "--dynamo_use_dynamic", "--dynamo_use_regional_compilation", "--tpu_cluster", "--no_tpu_cluster",
                   "--tpu_use_sudo", "--same_network"},
    "deepspeed": {"--module", "--no_python", "--no_local_rank", "--no_ssh", "--no_ssh_check", "--force_multi", "--save_pid",
                  "--bind_cores_to_rank", "-q", "--quiet", "--elastic_training"},
}  # fmt: skip
_EVERYWHERE: Final = frozenset(("--help", "-h", "--version", "-v"))
_COUNTS: Final = ("--nproc-per-node", "--nproc_per_node", "--num_processes", "--num-processes", "--num_gpus",
                  "--num_accelerators", "-np", "--np", "-n")  # fmt: skip


@noun
class Launch:
    """A program that starts something, with its own flags apart from those of the script."""

    program: str  # torchrun, accelerate, deepspeed, horovodrun, python, or an engine's name in data/options
    flags: tuple[str, ...]  # as written, of the launcher or engine itself
    values: Mapping[str, str]
    script: str
    script_words: tuple[str, ...]
    line: int

    @property
    def num_processes(self) -> int | None:
        """How many processes it says to start on this machine."""
        for name in _COUNTS:
            text = self.values.get(name, "")
            if text.isascii() and text.isdigit() and len(text) < 6:
                return int(text)
        return None


def launch_of(command: Command) -> Launch | None:
    """Return what a command starts, None where it starts nothing that is known.

    >>> launch_of(Command(words=("torchrun", "--nproc-per-node=2", "a.py", "--lr", "1"), line=1)).script
    'a.py'
    """
    words = list(command.words)
    place = docker_image_place(command.words)
    if place is not None:
        image = words[place].partition("@")[0]
        words = words[place + 1 :]
        if re.search(r"(?:^|/)vllm-openai(?::|$)", image):
            words = ["vllm", "serve", *words]
    found = _program(words)
    if found is None:
        return None
    program, start = found
    if program in _SWITCHES:
        return _launcher(program, words, start, command.line)
    flags = tuple(words[start:])
    script = words[start - 1] if program == "megatron" else ""
    return Launch(program=program, flags=flags, values=_pairs(flags), script=script, script_words=(), line=command.line)


def _program(words: list[str]) -> tuple[str, int] | None:
    """Find the program and the place of the first word after it."""
    for i, word in enumerate(words[:40]):
        name = basename(word)
        following = words[i + 1] if i + 1 < len(words) else ""
        if name in ("torchrun", "horovodrun"):
            return ("torchrun" if name == "torchrun" else "horovodrun"), i + 1
        if name == "accelerate" and following == "launch":
            return "accelerate", i + 2
        if name == "deepspeed" and following:
            return "deepspeed", i + 1
        if name == "vllm" and following == "serve":
            return "vllm", i + 2
        if name == "sglang" and following == "serve":
            return "sglang", i + 2
        if name in ("llama-server", "llama-server.exe"):
            return "llama_cpp", i + 1
        if re.fullmatch(r"pretrain_(?:gpt|hybrid|mamba)\.py", name):
            return "megatron", i + 1
        if re.fullmatch(r"python[0-9.]*", name) and "-m" in words[i : i + 4]:
            at = words.index("-m", i)
            module = words[at + 1] if at + 1 < len(words) else ""
            known = {"torch.distributed.run": "torchrun", "vllm.entrypoints.openai.api_server": "vllm",
                     "sglang.launch_server": "sglang", "torch.distributed.launch": "torchrun",
                     "accelerate.commands.launch": "accelerate"}  # fmt: skip
            if module in known:
                return known[module], at + 2
            return None
        if re.fullmatch(r"python[0-9.]*", name) and following.endswith("launch_server.py"):
            return "sglang", i + 2
    return None


def _launcher(program: str, words: list[str], start: int, line: int) -> Launch:
    i = start
    flags: list[str] = []
    while i < len(words) and words[i].startswith("-"):
        flags.append(words[i])
        if words[i] not in _SWITCHES[program] and "=" not in words[i] and i + 1 < len(words):
            flags.append(words[i + 1])
            i += 1
        i += 1
    script = words[i] if i < len(words) else ""
    return Launch(program=program, flags=tuple(flags), values=_pairs(flags), script=script,
                  script_words=tuple(words[i + 1 :]), line=line)  # fmt: skip


def _pairs(flags: tuple[str, ...] | list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for i, word in enumerate(flags):
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            following = flags[i + 1] if i + 1 < len(flags) else ""
            found[name] = value if equals else ("" if following.startswith("--") else following)
    return found


def launches_script(seen: Seen, context: Context) -> str:
    """Return the launcher that starts a script with several processes, empty where none is seen to."""
    name = basename(seen.document.file)
    for place, command in context.commands():
        launch = launch_of(command)
        if launch is None or launch.program not in (*_SWITCHES, "horovodrun") or launch.num_processes == 1:
            continue
        is_page = place.document.file == seen.document.file and not is_script(name)
        trains = seen.code is not None and any(c.tail in ("Trainer", "SFTTrainer", "backward") for c in seen.code.calls)
        if launch.script and (basename(launch.script) == name or (is_page and trains)):
            return launch.program
    return ""


@cache
def _options(program: str) -> frozenset[str]:
    return frozenset(row["name"] for row in datafiles.rows(f"options/{program}.csv"))


@cache
def _choices(program: str) -> Mapping[str, tuple[str, ...]]:
    """Return the values of options whose choices are all on record: a type that takes any text as well has others."""
    found: dict[str, tuple[str, ...]] = {}
    for row in datafiles.rows(f"options/{program}.csv"):
        choices = tuple(row["choices"].split())
        if len(choices) > 1 and not re.search(r"\|\s*str\b|\bstr\s*\||torch\.dtype", row["type"]):
            found[row["name"]] = choices
    return found


def engine_flags(seen: Seen, context: Context) -> Iterator[Hit]:
    """Hold the flags of vLLM, SGLang, llama.cpp and Megatron-LM against the options of their own sources."""
    del context
    versions = {row["engine"]: row["version"] for row in datafiles.rows("options/versions.csv")}
    old = {(r["group"], r["name"]): r for r in datafiles.rows("lint/renamed.csv")}
    for command in seen.commands:
        launch = launch_of(command)
        if launch is None or launch.program not in ("vllm", "sglang", "llama_cpp", "megatron"):
            continue
        known = _options(launch.program)
        for word in launch.flags:
            name, _, _ = word.partition("=")
            if not re.fullmatch(r"--[A-Za-z][\w.-]*", name) or "." in name or _is_option(name, known | _EVERYWHERE):
                continue
            if launch.program == "megatron" and not alike(name, known):
                continue  # its scripts add arguments of their own
            row = old.get((f"{launch.program}_flag", name))
            values = {"name": name, "program": launch.program, "version": versions.get(launch.program, "")}
            if row is not None:
                edit = _flag_edit(seen, command.line, name, row["today"]) if row["fix"] == "rename" else None
                yield Hit(rule="engine-renamed-flag", line=command.line, edit=edit,
                          values={**values, "today": row["today"], "since": row["since"]})  # fmt: skip
            else:
                near = alike(name, known)
                yield Hit(rule="engine-unknown-flag", line=_line_of(seen, command.line, name),
                          values={**values, "alike": f" ({', '.join(near)}?)" if near else ""})  # fmt: skip
        for name, value in launch.values.items():
            choices = _choices(launch.program).get(name)
            if choices and value and value not in choices and not value.startswith(("$", "-", "{")):
                yield Hit(rule="engine-flag-value", line=_line_of(seen, command.line, name),
                          values={"name": name, "value": value, "program": launch.program,
                                  "choices": ", ".join(choices[:12])})  # fmt: skip


def _is_option(name: str, known: frozenset[str]) -> bool:
    dashed = "--" + name[2:].replace("_", "-")
    plain = re.sub(r"^--no-", "--", dashed)
    # argparse takes a beginning for the whole: --tp for --tp-size
    forms = {name, dashed, plain, "--" + name[2:].replace("-", "_"), f"{dashed}-size"}
    return bool(forms & known) or is_beginning(name, known)


def is_beginning(name: str, known: frozenset[str]) -> bool:
    """Whether argparse takes a flag for the one option that begins so.

    >>> is_beginning("--nnode", frozenset(("--nnodes", "--node-rank", "--node_rank")))
    True
    """
    wanted = name.replace("_", "-")
    return len({k.replace("_", "-") for k in known if k.replace("_", "-").startswith(wanted)}) == 1


def _line_of(seen: Seen, line: int, word: str) -> int:
    """Return the line of a word in a command that goes over several."""
    lines = seen.document.lines
    for number in range(line, min(line + 60, len(lines) + 1)):
        if re.search(rf"(?:^|[\s\"'\[,=]){re.escape(word)}(?:[\s=\"',\]]|$)", lines[number - 1]):
            return number
        if not lines[number - 1].rstrip().endswith("\\") and seen.kind.value == "shell":
            break
    return line


def _flag_edit(seen: Seen, line: int, old: str, new: str) -> Edit | None:
    number = _line_of(seen, line, old)
    text = seen.document.lines[number - 1] if number <= len(seen.document.lines) else ""
    match = re.search(rf"{re.escape(old)}(?=[\s=\"',\]]|$)", text)
    return match and Edit(line=number, start=match.start(), end_line=number, end=match.end(), text=new)


def launcher_flags(seen: Seen, context: Context) -> Iterator[Hit]:
    """Hold the flags of torchrun, accelerate launch and deepspeed against their own parsers, and the script's own names."""
    old = {r["name"]: r for r in datafiles.rows("lint/renamed.csv") if r["group"] == "trainer_field"}
    for command in seen.commands:
        launch = launch_of(command)
        if launch is None or launch.program not in _SWITCHES:
            continue
        known = context.known.names.get(f"{launch.program}_flag", frozenset())
        for word in launch.flags:
            name = word.partition("=")[0]
            if not re.fullmatch(r"--?[A-Za-z][\w-]*", name) or _is_launcher_option(name, known):
                continue
            near = alike(name, known)
            yield Hit(rule="launcher-unknown-flag", line=_line_of(seen, command.line, name),
                      values={"name": name, "program": launch.program,
                              "release": context.known.releases.get(f"{launch.program}_flag", ""),
                              "alike": f" ({', '.join(near)}?)" if near else ""})  # fmt: skip
        for word in launch.script_words:
            name = word.partition("=")[0].removeprefix("--").replace("-", "_")
            row = old.get(name)
            if word.startswith("--") and row is not None and row["fix"] == "rename" and name != "adafactor":
                flag = word.partition("=")[0]
                yield Hit(rule="script-renamed-flag", line=_line_of(seen, command.line, flag),
                          values={"name": flag, "today": f"--{row['today']}", "since": row["since"]},
                          edit=_flag_edit(seen, command.line, flag, f"--{row['today']}"))  # fmt: skip


def _is_launcher_option(name: str, known: frozenset[str]) -> bool:
    forms = {name, name.replace("_", "-"), "--" + name[2:].replace("-", "_")}
    return bool(forms & (known | _EVERYWHERE)) or (name.startswith("--") and is_beginning(name, known))


def visible_devices(seen: Seen, context: Context) -> Iterator[Hit]:
    """Compare how many cards are visible with how many processes are started."""
    del context
    exported = [s for s in seen.settings if s.name == "CUDA_VISIBLE_DEVICES"]
    for command in seen.commands:
        launch = launch_of(command)
        number = launch.num_processes if launch else None
        if launch is None or number is None:
            continue
        value = command.env.get("CUDA_VISIBLE_DEVICES")
        if value is None:
            earlier = [s for s in exported if s.line <= command.line]
            value = earlier[-1].value if earlier else None
        cards = _num_cards(value)
        if cards is not None and cards < number:
            yield Hit(rule="fewer-cards-than-processes", line=command.line,
                      values={"cards": cards, "processes": number, "value": value})  # fmt: skip


def _num_cards(value: str | None) -> int | None:
    words = [w for w in (value or "").split(",") if w.strip()]
    return len(words) if words and all(re.fullmatch(r"\s*(?:\d+|GPU-[\w-]+|MIG-[\w-]+)\s*", w) for w in words) else None


def restarts(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find torchrun that restarts a script which always begins anew."""
    for command in seen.commands:
        launch = launch_of(command)
        if launch is None or launch.program != "torchrun":
            continue
        number = launch.values.get("--max-restarts") or launch.values.get("--max_restarts") or "0"
        if not (number.isdigit() and int(number)):
            continue
        for script in context.scripts(seen, launch.script):
            text = script.document.text
            if script.code is not None and not re.search(
                r"resume|load_state_dict|get_last_checkpoint|load_checkpoint", text
            ):
                yield Hit(rule="restart-without-resume", line=command.line,
                          values={"number": number, "script": launch.script})  # fmt: skip
