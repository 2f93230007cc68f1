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
    for held in fields(sorted((root / "vllm/config").rglob("*.py"))).values():
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
            choices = " ".join(literal_of_annotation(annotation))
            yield one._replace(type=ast.unparse(annotation)[:40], choices=choices)


def sglang(root: Path) -> Iterator[Option]:
    """Flags of `sglang.launch_server`: annotated fields, and those registered by hand."""
    place = root / "sglang/srt"
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
                choices = literal_strings(keywords.get("choices")) or literal_of_annotation(inner[0])
                for one in names:
                    yield Option(str(one), ast.unparse(inner[0])[:40], " ".join(choices), str(file.relative_to(root)))
    yield from from_calls([place / "server_args.py"], root, ("add_argument",))


def megatron(root: Path) -> Iterator[Option]:
    """Flags of pretrain_gpt.py: argparse, and dataclasses that `ArgumentGroupFactory` turns into flags."""
    arguments = root / "megatron/training/arguments.py"
    yield from from_calls([arguments], root, ("add_argument",))
    used = set(re.findall(r"ArgumentGroupFactory\(\s*(\w+)", arguments.read_text(encoding="utf-8")))
    parents = {"ModelParallelConfig"} if "TransformerConfig" in used else set()
    for file in sorted((root / "megatron").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "@dataclass" not in text:
            continue
        for name, held in fields([file]).items():
            if name not in used | parents:
                continue
            for field, annotation in held.items():
                if field.startswith("_"):
                    continue
                choices, kind = " ".join(literal_of_annotation(annotation)), ast.unparse(annotation)[:40]
                where = str(file.relative_to(root))
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
            yield Option(f"--{section}.{field}", ast.unparse(annotation)[:40].replace("\n", " "), choices, file)


def tensorrt_llm(root: Path) -> Iterator[Option]:
    """Flags of `trtllm-serve`."""
    files = [root / "tensorrt_llm/commands" / name for name in ("serve.py", "common_llm_options.py")]
    yield from from_calls([f for f in files if f.is_file()], root, ("option",))


def llama_cpp(root: Path) -> Iterator[Option]:
    """Flags of llama-server, in the C++ table of common/arg.cpp or common/common.cpp."""
    for name in ("common/arg.cpp", "common/common.cpp"):
        file = root / name
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            for option in sorted(set(re.findall(r'"(-{1,2}[A-Za-z][A-Za-z0-9-]*)"', text))):
                yield Option(option, "", "", name)


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
