"""Writes `data/lint/known.csv`: the names that today's releases define, read in their own sources, never run.

A name is a fact: a field, a flag, a key, a variable, a metric, with the release and the file it stands in.

    python validation/lint_facts.py --packages SITE_PACKAGES --nccl CHECKOUT --vllm SOURCES --sglang SOURCES --dcgm CHECKOUT

SITE_PACKAGES holds transformers, torch, accelerate and deepspeed as pip installs them.
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TARGET = Path(__file__).parent.parent / "src" / "tonnage" / "data" / "lint" / "known.csv"


class Name(NamedTuple):
    """One name of one kind."""

    group: str
    name: str
    release: str
    where: str


def release(packages: Path, package: str) -> str:
    """Return a package with the version that pip recorded."""
    (folder,) = packages.glob(f"{package}-*.dist-info")
    return f"{package} {folder.name.removesuffix('.dist-info').partition('-')[2].partition('+')[0]}"


def classes(file: Path) -> dict[str, ast.ClassDef]:
    return {n.name: n for n in ast.parse(file.read_text("utf-8")).body if isinstance(n, ast.ClassDef)}


def fields(node: ast.ClassDef) -> list[str]:
    return [s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]


def values(node: ast.ClassDef) -> list[str]:
    return [
        s.value.value
        for s in node.body
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)
    ]


def flags(file: Path, *, function: str = "") -> list[str]:
    """Return the option strings of every add_argument call."""
    tree: ast.AST = ast.parse(file.read_text("utf-8"))
    if function:
        tree = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function)
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            found += [
                a.value
                for a in node.args
                if isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value.startswith("-")
            ]
    return found


def parameters(node: ast.ClassDef) -> list[str]:
    init = next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    return [a.arg for a in (*init.args.args, *init.args.kwonlyargs) if a.arg != "self"]


def transformers(packages: Path) -> Iterator[Name]:
    of = release(packages, "transformers")
    arguments = classes(packages / "transformers" / "training_args.py")
    for name in fields(arguments["TrainingArguments"]):
        yield Name("trainer_field", name, of, "transformers/training_args.py")
    for name in values(arguments["OptimizerNames"]):
        yield Name("optimizer", name, of, "transformers/training_args.py")
    trainer = classes(packages / "transformers" / "trainer.py")["Trainer"]
    for name in parameters(trainer):
        yield Name("trainer_parameter", name, of, "transformers/trainer.py")
    for name in fields(classes(packages / "transformers" / "training_args_seq2seq.py")["Seq2SeqTrainingArguments"]):
        yield Name("seq2seq_field", name, of, "transformers/training_args_seq2seq.py")


def launchers(packages: Path) -> Iterator[Name]:
    of = release(packages, "torch")
    for name in flags(packages / "torch" / "distributed" / "run.py", function="get_args_parser"):
        yield Name("torchrun_flag", name, of, "torch/distributed/run.py")
    of = release(packages, "accelerate")
    for name in flags(packages / "accelerate" / "commands" / "launch.py"):
        yield Name("accelerate_flag", name, of, "accelerate/commands/launch.py")
    config = classes(packages / "accelerate" / "commands" / "config" / "config_args.py")
    for name in (*fields(config["BaseConfig"]), *fields(config["ClusterConfig"])):
        yield Name("accelerate_key", name, of, "accelerate/commands/config/config_args.py")
    of = release(packages, "deepspeed")
    for name in flags(packages / "deepspeed" / "launcher" / "runner.py"):
        yield Name("deepspeed_flag", name, of, "deepspeed/launcher/runner.py")


def deepspeed_keys(packages: Path) -> Iterator[Name]:
    """Yield every key that a DeepSpeed configuration may have anywhere: its named constants and its models' fields."""
    of, root = release(packages, "deepspeed"), packages / "deepspeed"
    models = [root / "runtime" / "zero" / "config.py", root / "runtime" / "zero" / "offload_config.py"]
    for file in models:
        for node in classes(file).values():
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    aliases = [
                        k.value.value
                        for k in getattr(statement.value, "keywords", [])
                        if k.arg == "alias" and isinstance(k.value, ast.Constant)
                    ]
                    for name in (statement.target.id, *aliases):
                        yield Name("deepspeed_zero_key", str(name), of, str(file.relative_to(packages)))
    for file in sorted(root.rglob("*.py")):
        if "constants" in file.name or file.name in {"config.py", "precision_config.py", "zenflow_config.py"}:
            tree = ast.parse(file.read_text("utf-8"))
            for node in ast.walk(tree):
                names: list[str] = []
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    is_constant = isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
                    if is_constant and re.fullmatch(r"[a-z][a-z0-9_]+", str(node.value.value)):
                        names = [str(node.value.value)]
                elif isinstance(node, ast.ClassDef):
                    names = fields(node)
                elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in {
                    "get",
                    "get_scalar_param",
                }:
                    names = [
                        a.value
                        for a in node.args
                        if isinstance(a, ast.Constant)
                        and isinstance(a.value, str)
                        and re.fullmatch("[a-z][a-z0-9_]+", a.value)
                    ]
                for name in names:
                    yield Name("deepspeed_key", name, of, str(file.relative_to(packages)))


def nccl(checkout: Path) -> Iterator[Name]:
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=True).stdout

    number = dict(re.findall(r"NCCL_(MAJOR|MINOR|PATCH)\s*:=\s*(\d+)", git("show", "HEAD:makefiles/version.mk")))
    of = f"nccl {number['MAJOR']}.{number['MINOR']}.{number['PATCH']}"
    manual = git("show", "HEAD:docs/userguide/source/env.rst")
    for name in re.findall(r"^(NCCL_[A-Z0-9_]+)$", manual, re.MULTILINE):
        yield Name("nccl_variable", name, of, "docs/userguide/source/env.rst")
    _, _, debugging = manual.partition("\nDebugging\n=")
    for name in re.findall(r"^(NCCL_[A-Z0-9_]+)$", debugging, re.MULTILINE):
        yield Name("nccl_debugging", name, of, "docs/userguide/source/env.rst")
    for name in re.findall(r"^(NCCL_[A-Z0-9_]+)\n-+\n\(since [^)]*removed in", manual, re.MULTILINE):
        yield Name("nccl_removed", name, of, "docs/userguide/source/env.rst")
    patterns = r"NCCL_PARAM\(|NCCL_[A-Z]+_PARAM\(|[gG]et[eE]nv\("
    source = git("grep", "-hE", patterns, "HEAD", "--", "src", "plugins")
    for name in re.findall(r'PARAM\(\s*\w+\s*,\s*"([A-Z0-9_]+)"', source):
        yield Name("nccl_variable", f"NCCL_{name}", of, "src")
    for name in re.findall(r'[gG]et[eE]nv\("(NCCL_[A-Z0-9_]+)"', source):
        yield Name("nccl_variable", name, of, "src")


def engines(vllm: Path, sglang: Path) -> Iterator[Name]:
    of = vllm.name.replace("-", " ")
    source = (vllm / "vllm" / "envs.py").read_text("utf-8")
    for name in re.findall(r'^    "(VLLM_[A-Z0-9_]+)":', source, re.MULTILINE):
        yield Name("vllm_variable", name, of, "vllm/envs.py")
    for file in sorted((vllm / "vllm").rglob("*.py")):
        for name in re.findall(r'"(vllm:[a-z0-9_]+)"', file.read_text("utf-8", errors="replace")):
            yield Name("vllm_metric", name, of, str(file.relative_to(vllm)))
    (folder,) = sglang.glob("sglang-*.dist-info")
    of = folder.name.removesuffix(".dist-info").replace("-", " ")
    for file in sorted((sglang / "sglang" / "srt").rglob("*.py")):
        for name in re.findall(r'"(sglang:[a-z0-9_]+)"', file.read_text("utf-8", errors="replace")):
            yield Name("sglang_metric", name, of, str(file.relative_to(sglang)))


def dcgm(checkout: Path) -> Iterator[Name]:
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=True).stdout

    of = f"dcgm-exporter {git('rev-parse', '--short=7', 'HEAD').strip()}"
    for line in git("show", "HEAD:etc/default-counters.csv").splitlines():
        match = re.match(r"(#\s*)?(DCGM_[A-Z0-9_]+)\s*,", line)
        if match:
            yield Name("dcgm_off" if match[1] else "dcgm_metric", match[2], of, "etc/default-counters.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("packages", "nccl", "vllm", "sglang", "dcgm"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    found = [
        *transformers(given.packages),
        *launchers(given.packages),
        *deepspeed_keys(given.packages),
        *nccl(given.nccl),
        *engines(given.vllm, given.sglang),
        *dcgm(given.dcgm),
    ]
    unique = {(one.group, one.name): one for one in reversed(found)}
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Name._fields)
        writer.writerows(sorted(unique.values()))
    print(f"{TARGET.name}: {len(unique)} names")


if __name__ == "__main__":
    main()
