"""Writes `data/options/<engine>.csv`: the options of an engine, read in its own argument definitions.

Facts only: name, type, choices where they are literal, and the file they stand in. The sources are parsed, never run.

    pip download --no-deps --no-binary :all: vllm==0.33.0      # or a wheel, or a checkout
    python validation/engine_options.py vllm 0.33.0 path/to/vllm-0.33.0
"""

from __future__ import annotations

import ast
import csv
import datetime as dt
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent.parent / "src" / "tonnage" / "data" / "options"


class Option(NamedTuple):
    """One way to write one option."""

    name: str
    type: str
    choices: str
    where: str


def literal_strings(node: ast.expr | None) -> list[str]:
    """Return the strings of a literal list, tuple or set; none where it is not literal."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        values = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return values if len(values) == len(node.elts) else []
    return []


def literal_of_annotation(node: ast.expr) -> list[str]:
    """Return the strings of `Literal[...]` anywhere in an annotation."""
    found: list[str] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Subscript) and ast.unparse(one.value).rpartition(".")[2] == "Literal":
            inner = one.slice.elts if isinstance(one.slice, ast.Tuple) else [one.slice]
            found += [str(e.value) for e in inner if isinstance(e, ast.Constant)]
    return found


def named_strings(files: list[Path]) -> dict[str, list[str]]:
    """Return the strings of `NAME = Literal[...]` and `NAME = [...]` at the top of files, by name."""
    found: dict[str, list[str]] = {}
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                values = literal_of_annotation(node.value) or literal_strings(node.value)
                if values:
                    found[node.targets[0].id] = values
    return found


def choices_of(annotation: ast.expr, named: dict[str, list[str]]) -> str:
    """Return what an annotation allows: its own strings, and those of the names in it."""
    found = literal_of_annotation(annotation)
    for one in ast.walk(annotation):
        if isinstance(one, ast.Name | ast.Attribute):
            found += named.get(one.id if isinstance(one, ast.Name) else one.attr, [])
    return " ".join(dict.fromkeys(found))


def fields(files: list[Path], is_wanted: re.Pattern[str] = re.compile("")) -> dict[str, dict[str, ast.expr]]:
    """Return annotated fields by class."""
    found: dict[str, dict[str, ast.expr]] = {}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and is_wanted.search(node.name):
                found.setdefault(node.name, {}).update(
                    (one.target.id, one.annotation)
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                )
    return found


def from_calls(files: list[Path], root: Path, names: tuple[str, ...]) -> Iterator[Option]:
    """Yield what calls of `add_argument` (argparse) or `option` (click) define."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in names:
                continue
            written = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            keywords = {k.arg: k.value for k in node.keywords if k.arg}
            kind = ast.unparse(keywords["type"]) if "type" in keywords else ""
            choices = literal_strings(keywords.get("choices"))
            if kind.startswith(("click.Choice", "ChoiceWithAlias")) and isinstance(keywords["type"], ast.Call):
                choices = literal_strings(keywords["type"].args[0]) if keywords["type"].args else []
                kind = "choice"
            if "action" in keywords and ast.unparse(keywords["action"]).strip("'\"").startswith("store_"):
                kind = "flag"
            if ast.unparse(keywords.get("is_flag", ast.Constant(False))) == "True":
                kind = "flag"
            for text in written:
                for name in text.split("/"):
                    if name.startswith("-"):
                        yield Option(name, kind[:40], " ".join(choices), str(file.relative_to(root)))


def vllm(root: Path) -> Iterator[Option]:
    """Flags of `vllm serve`; types stand in the classes of vllm/config."""
    files = [root / "vllm/engine/arg_utils.py", root / "vllm/entrypoints/common/cli_args.py"]
    known: dict[str, ast.expr] = {}
    configs = sorted((root / "vllm/config").rglob("*.py"))
    named = named_strings([*configs, root / "vllm/model_executor/layers/quantization/__init__.py"])
    for held in fields(configs).values():
        known |= held
    for file in files:
        for held in fields([file], re.compile("FrontendArgs")).values():
            for name, annotation in held.items():
                yield Option(f"--{name.replace('_', '-')}", ast.unparse(annotation)[:40],
                             " ".join(literal_of_annotation(annotation)), str(file.relative_to(root)))  # fmt: skip
    for one in from_calls([f for f in files if f.is_file()], root, ("add_argument",)):
        annotation = known.get(one.name.lstrip("-").replace("-", "_"))
        if annotation is None:
            yield one
        else:
            # A name among other types, such as `LoadFormats | str`, takes any word; these two are checked when it starts.
            is_open = "str" in re.findall(r"\w+", ast.unparse(annotation)) and one.name not in CHECKED
            choices = "" if is_open else choices_of(annotation, named)
            yield one._replace(type=ast.unparse(annotation)[:40], choices=choices)


CHECKED = ("--quantization", "--kv-cache-dtype")


def sglang(root: Path) -> Iterator[Option]:
    """Flags of `sglang.launch_server`: annotated fields, and those registered by hand."""
    place = root / "sglang/srt"
    named = named_strings([place / "arg_groups/choices.py"])
    for file in sorted((place / "arg_groups/fields").glob("*.py")):
        for held in fields([file]).values():
            for name, annotation in held.items():
                if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "A":
                    continue
                inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
                described = [e for e in inner[1:] if isinstance(e, ast.Call) and ast.unparse(e.func) == "Arg"]
                if any(isinstance(e, ast.Call) and ast.unparse(e.func) == "Derived" for e in inner[1:]):
                    continue
                keywords = {k.arg: k.value for call in described for k in call.keywords if k.arg}
                if ast.unparse(keywords.get("no_cli", ast.Constant(False))) == "True":
                    continue
                own = keywords.get("cli_name")
                names = [own.value if isinstance(own, ast.Constant) else f"--{name.replace('_', '-')}"]
                names += literal_strings(keywords.get("aliases"))
                said = keywords.get("choices")
                choices = literal_strings(said) or literal_of_annotation(inner[0])
                if said is not None and not choices:
                    choices = next(
                        (named[n.id] for n in ast.walk(said) if isinstance(n, ast.Name) and n.id in named), []
                    )
                for one in names:
                    yield Option(str(one), ast.unparse(inner[0])[:40], " ".join(choices), str(file.relative_to(root)))
    yield from from_calls([place / "server_args.py"], root, ("add_argument",))


def renamed_flags(file: Path) -> dict[str, dict[str, list[str]]]:
    """Return the flags that a field names itself (`"arg_names": [...]` in its metadata), by class and field."""
    found: dict[str, dict[str, list[str]]] = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for one in node.body if isinstance(node, ast.ClassDef) else ():
            if not (isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value):
                continue
            for table in (part for part in ast.walk(one.value) if isinstance(part, ast.Dict)):
                for key, value in zip(table.keys, table.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "arg_names":
                        found.setdefault(node.name, {})[one.target.id] = literal_strings(value)  # type: ignore[union-attr]
    return found


def megatron(root: Path) -> Iterator[Option]:
    """Flags of pretrain_gpt.py: argparse, and dataclasses that `ArgumentGroupFactory` turns into flags."""
    arguments = root / "megatron/training/arguments.py"
    yield from from_calls([arguments], root, ("add_argument",))
    tree = ast.parse(arguments.read_text(encoding="utf-8"))
    used = set(re.findall(r"ArgumentGroupFactory\(\s*(\w+)", arguments.read_text(encoding="utf-8")))
    left_out = {
        name
        for node in ast.walk(tree)
        if (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "exclude")
        or (isinstance(node, ast.keyword) and node.arg == "exclude")
        for name in literal_strings(node.value)
    }
    parents = {"ModelParallelConfig"} if "TransformerConfig" in used else set()
    for file in sorted((root / "megatron").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "@dataclass" not in text:
            continue
        names = renamed_flags(file)
        for name, held in fields([file]).items():
            if name not in used | parents:
                continue
            for field, annotation in held.items():
                if field.startswith("_") or field in left_out:
                    continue
                choices, kind = " ".join(literal_of_annotation(annotation)), ast.unparse(annotation)[:40]
                where = str(file.relative_to(root))
                if renamed := names.get(name, {}).get(field):
                    yield from (Option(one, "flag" if kind == "bool" else kind, choices, where) for one in renamed)
                    continue
                yield Option(f"--{field.replace('_', '-')}", kind, choices, where)
                if kind == "bool":
                    yield Option(f"--no-{field.replace('_', '-')}", kind, choices, where)


def torchtitan(root: Path) -> Iterator[Option]:
    """Flags of torchtitan: one a field of its configuration, `--section.field`, and the two that pick a recipe."""
    yield Option("--module", "str", "", "torchtitan/config/manager.py")
    yield Option("--config", "str", "", "torchtitan/config/manager.py")
    sections = {
        "training": ("torchtitan/config/configs.py", "TrainingConfig"),
        "parallelism": ("torchtitan/config/configs.py", "ParallelismConfig"),
        "compile": ("torchtitan/config/configs.py", "CompileConfig"),
        "comm": ("torchtitan/config/configs.py", "CommConfig"),
        "debug": ("torchtitan/config/configs.py", "DebugConfig"),
    }
    for section, (file, name) in sections.items():
        for field, annotation in fields([root / file])[name].items():
            choices = " ".join(literal_of_annotation(annotation))
            kind = ast.unparse(annotation)[:40].replace("\n", " ")
            yield Option(f"--{section}.{field}", kind, choices, file)
            if kind == "bool":
                yield Option(f"--{section}.no-{field}", kind, choices, file)
    trainer, optimizer = "torchtitan/trainer.py", "torchtitan/components/optimizer/optimizer.py"
    for field in ("hf_assets_path", "dump_folder"):
        yield Option(f"--{field}", "str", "", trainer)
    choices = " ".join(literal_of_annotation(fields([root / optimizer])["Config"]["implementation"]))
    yield Option("--optimizer.implementation", "str", choices, optimizer)
    backend = "torchtitan/experiments/transformers_modeling_backend/configs.py"
    yield Option("--hf_model", "str", "", backend)
    base = "torchtitan/components/checkpointer/base.py"
    place = base if (root / base).is_file() else "torchtitan/components/checkpointer/dcp.py"
    for held in fields([root / place], re.compile("Config")).values():
        for field, annotation in held.items():
            yield Option(f"--checkpoint.{field}", ast.unparse(annotation)[:40].replace("\n", " "), "", place)
    policies = "torchtitan/distributed/activation_checkpoint.py"
    for name in re.findall(r'tyro\.conf\.subcommand\("([\w-]+)"\)', (root / policies).read_text(encoding="utf-8")):
        yield Option(f"activation-checkpoint:{name}", "subcommand", "", policies)


def tensorrt_llm(root: Path) -> Iterator[Option]:
    """Flags of `trtllm-serve`."""
    files = [root / "tensorrt_llm/commands" / name for name in ("serve.py", "common_llm_options.py")]
    yield from from_calls([f for f in files if f.is_file()], root, ("option",))


def ktransformers(root: Path) -> Iterator[Option]:
    """Flags of `kt run`, in kt-kernel's wheel; what it does not know it hands on to SGLang."""
    yield from from_calls([root / "kt_kernel/cli/commands/run.py"], root, ("option",))


def torchrun(root: Path) -> Iterator[Option]:
    """Flags of torchrun, in an installed torch (`root` holds the folder torch)."""
    yield from from_calls([root / "torch/distributed/run.py"], root, ("add_argument",))


def horovod(root: Path) -> Iterator[Option]:
    """Flags of horovodrun."""
    yield from from_calls([root / "horovod/runner/launch.py"], root, ("add_argument",))


def accelerate(root: Path) -> Iterator[Option]:
    """Flags of `accelerate launch`, and the keys of its configuration: fields, and tables that the flags fill."""
    launch, config = root / "accelerate/commands/launch.py", root / "accelerate/commands/config/config_args.py"
    yield from from_calls([launch], root, ("add_argument",))
    for name in ("BaseConfig", "ClusterConfig"):
        for field, annotation in fields([config])[name].items():
            yield Option(field, ast.unparse(annotation)[:40], "", str(config.relative_to(root)))
    plain = ("deepspeed_config_file", "zero_stage", "gradient_accumulation_steps", "gradient_clipping")
    for one in from_calls([launch], root, ("add_argument",)):
        name = one.name.lstrip("-").replace("-", "_")
        if name.startswith("fsdp_"):
            yield one._replace(name=f"fsdp_config.{name}")
        elif name in plain or name.startswith(("zero3_", "offload_", "deepspeed_")):
            yield one._replace(name=f"deepspeed_config.{name}")


def deepspeed(root: Path) -> Iterator[Option]:
    """Keys of DeepSpeed's configuration: constants that name them, and the classes of its tables."""
    constants = root / "deepspeed/runtime/constants.py"
    for node in ast.parse(constants.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            name = node.targets[0]
            if isinstance(name, ast.Name) and not name.id.endswith("_DEFAULT") and node.value.value.isidentifier():
                yield Option(node.value.value, "", "", str(constants.relative_to(root)))
    for name in ("optimizer", "scheduler"):  # tables of a type and its parameters, which are the type's own
        yield from (Option(f"{name}.{key}", "", "", str(constants.relative_to(root))) for key in ("type", "params"))
    zero = "zero_optimization"
    for prefix, file, name in (
        (zero, "zero/config.py", "DeepSpeedZeroConfig"),
        (f"{zero}.offload_param", "zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig"),
        (f"{zero}.offload_optimizer", "zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig"),
        (f"{zero}.leaf_module", "zero/leaf_module_config.py", "DeepSpeedZeroLeafModuleConfig"),
        ("bf16", "precision_config.py", "DeepSpeedBF16Config"),
        ("fp16", "precision_config.py", "DeepSpeedFP16Config"),
    ):
        place = root / "deepspeed/runtime" / file
        for field, annotation in fields([place])[name].items():
            yield Option(f"{prefix}.{field}", ast.unparse(annotation)[:40], "", f"deepspeed/runtime/{file}")
        for alias in re.findall(r'alias="(\w+)"', place.read_text(encoding="utf-8")):
            yield Option(f"{prefix}.{alias}", "", "", f"deepspeed/runtime/{file}")
    yield Option(zero, "DeepSpeedZeroConfig", "", "deepspeed/runtime/zero/config.py")
    swap = "deepspeed/runtime/swap_tensor/constants.py"
    for name in re.findall(r'^AIO\w* = "(\w+)"', (root / swap).read_text(encoding="utf-8"), re.MULTILINE):
        yield Option("aio" if name == "aio" else f"aio.{name}", "", "", swap)


def _arguments(root: Path, file: str, name: str) -> Iterator[Option]:
    for field, annotation in fields([root / file])[name].items():
        yield Option(
            field, ast.unparse(annotation)[:40].replace("\n", " "), " ".join(literal_of_annotation(annotation)), file
        )


def transformers(root: Path) -> Iterator[Option]:
    """Fields of `TrainingArguments`, the keys of its `fsdp_config`, and flags of `transformers serve`."""
    file = "transformers/training_args.py"
    yield from _arguments(root, file, "TrainingArguments")
    optimizers = (root / file).read_text(encoding="utf-8").partition("class OptimizerNames")[2].partition("\nclass ")[0]
    for value in re.findall(r'^    \w+ = "(\w+)"', optimizers, re.MULTILINE):
        yield Option(f"optim={value}", "value", "", file)
    described = (root / file).read_text(encoding="utf-8").partition("fsdp_config (")[2].partition("deepspeed (")[0]
    for key in re.findall(r"^ +- (\w+) \(`", described, re.MULTILINE):
        yield Option(f"fsdp_config.{key}", "", "", file)
    serve = "transformers/cli/serve.py"
    for node in ast.walk(ast.parse((root / serve).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            for one in node.args.args:
                if one.annotation is not None and "typer.Option" in ast.unparse(one.annotation):
                    yield Option(f"--{one.arg.replace('_', '-')}", "", "", serve)


def llamafactory(root: Path) -> Iterator[Option]:
    """Fields of a LLaMA-Factory configuration that its own classes define; the Trainer's come on top."""
    for file in sorted((root / "src/llamafactory/hparams").glob("*.py")):
        where = str(file.relative_to(root))
        for name, held in fields([file]).items():
            if name.endswith("Arguments"):
                for field, annotation in held.items():
                    yield Option(
                        field, ast.unparse(annotation)[:40], " ".join(literal_of_annotation(annotation)), where
                    )


def axolotl(root: Path) -> Iterator[Option]:
    """Fields of an axolotl configuration: the classes that `AxolotlInputConfig` is made of, and its tables."""
    place = root / "src/axolotl/utils/schemas"
    files = sorted(place.glob("*.py"))
    known = fields(files)
    tree = ast.parse((place / "config.py").read_text(encoding="utf-8"))
    top = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "AxolotlInputConfig")
    gone = {"DeprecatedParameters", "RemappedParameters"}
    parts = [ast.unparse(base) for base in top.bases if ast.unparse(base) not in gone] + ["AxolotlInputConfig"]
    tables = {
        "": parts,
        "datasets": ["SFTDataset"],
        "pretraining_dataset": ["PretrainingDataset"],
        "fsdp_config": ["FSDPConfig"],
    }
    for prefix, names in tables.items():
        for name in names:
            for field, annotation in known.get(name, {}).items():
                if field != "model_config":
                    path = f"{prefix}.{field}" if prefix else field
                    kind = " ".join(ast.unparse(annotation).split())[:40]
                    yield Option(path, kind, " ".join(literal_of_annotation(annotation)), "src/axolotl/utils/schemas")


def unsloth(root: Path) -> Iterator[Option]:
    """Parameters of the two functions that a script of Unsloth's calls."""
    for file, call in (
        ("unsloth/models/loader.py", "from_pretrained"),
        ("unsloth/models/llama.py", "get_peft_model"),
        ("unsloth/models/vision.py", "get_peft_model"),
    ):
        for node in ast.walk(ast.parse((root / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == call:
                for one in node.args.args:
                    yield Option(f"{call}.{one.arg}", "", "", file)


def llama_cpp(root: Path) -> Iterator[Option]:
    """Flags of llama-server, in the C++ table of common/arg.cpp or common/common.cpp; values where the table lists them."""
    listed = re.compile(r'\{((?:\s*"-[^"]+"\s*,?)+)\}\s*,\s*"[\[{<]([a-z0-9_]+(?:[|,][a-z0-9_]+)+)[\]}>]"')
    for name in ("common/arg.cpp", "common/common.cpp"):
        file = root / name
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            values = {
                option: " ".join(re.split(r"[|,]", found[2]))
                for found in listed.finditer(text)
                for option in re.findall(r'"(-[^"]+)"', found[1])
            }
            for option in sorted(set(re.findall(r'"(-{1,2}[A-Za-z][A-Za-z0-9-]*)"', text))):
                yield Option(option, "", values.get(option, ""), name)


def ollama(root: Path) -> Iterator[Option]:
    """Variables of the environment that `ollama serve` reads."""
    file = root / "envconfig/config.go"
    for name in sorted(set(re.findall(r'"(OLLAMA_[A-Z_]+)"', file.read_text(encoding="utf-8")))):
        yield Option(name, "", "", "envconfig/config.go")


READERS = {
    "vllm": vllm,
    "sglang": sglang,
    "megatron": megatron,
    "torchtitan": torchtitan,
    "tensorrt_llm": tensorrt_llm,
    "llama_cpp": llama_cpp,
    "ik_llama_cpp": llama_cpp,
    "ollama": ollama,
    "ktransformers": ktransformers,
    "torchrun": torchrun,
    "horovod": horovod,
    "accelerate": accelerate,
    "deepspeed": deepspeed,
    "transformers": transformers,
    "llamafactory": llamafactory,
    "axolotl": axolotl,
    "unsloth": unsloth,
}


def main(engine: str, version: str, root: str) -> None:
    """Write an engine's options, and note version and day."""
    found = sorted({one.name: one for one in READERS[engine](Path(root))}.values())
    DATA.mkdir(exist_ok=True)
    with (DATA / f"{engine}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Option._fields)
        writer.writerows(found)
    index = DATA / "versions.csv"
    rows = list(csv.DictReader(index.open(encoding="utf-8"))) if index.is_file() else []
    rows = [row for row in rows if row["engine"] != engine]
    rows.append({"engine": engine, "version": version, "day": dt.datetime.now(dt.UTC).date().isoformat()})
    with index.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("engine", "version", "day"), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: row["engine"]))
    print(f"{engine} {version}: {len(found)} options")


if __name__ == "__main__":
    main(*sys.argv[1:4])
