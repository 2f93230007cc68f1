"""Lets the programs' own parsers read every launch of the tests' grid: what `docs/how-to/deploy.md` says of them.

Needs the sources on the path and torch; what a parser merely imports and does not need is stood in for.

    PYTHONPATH=src:path/to/Megatron-LM python validation/engine_parsers.py megatron
    PYTHONPATH=src:path/to/torchtitan-0.3.0 python validation/engine_parsers.py torchtitan
    PYTHONPATH=src:path/to/axolotl-0.19.0/src python validation/engine_parsers.py axolotl
    PYTHONPATH=src:path/to/sglang python validation/engine_parsers.py sglang ktransformers
    PYTHONPATH=src:path/to/vllm-0.33.0 python validation/engine_parsers.py vllm
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import logging
import os
import sys
import tempfile
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "engines"))

from grid import own_words, servings, tables, trainings

from tonnage.engines import find_engine, find_trainer
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate

Check = Callable[[Candidate, Launch], None]


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that are not there, where a parser merely imports them."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Answer for the packages named, after every other finder."""
        del path, target
        known = name.partition(".")[0] in self.packages
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """Return a module that has every attribute."""
        return MagicMock(name=spec.name, __path__=[], __spec__=spec)

    def exec_module(self, module: Any) -> None:
        """Leave the module as it is."""


def imported(name: str, *packages: str) -> Any:
    """Import a module, with stand-ins for packages that it asks for and does not need here."""
    sys.meta_path.append(StandIns(packages))
    return importlib.import_module(name)


def argparse_check(parser: argparse.ArgumentParser) -> Check:
    """Return a check by an argparse parser."""

    def check(_: Candidate, launch: Launch) -> None:
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors):
                parser.parse_args(list(own_words(launch)[1]))
        except SystemExit:
            raise ValueError(errors.getvalue()[-200:]) from None

    return check


def megatron() -> Check:
    """Return a check by Megatron's `parse_args` and `validate_args`, on a Hopper that is not there."""
    if not hasattr(typing, "override"):
        typing.override = lambda method: method  # type: ignore[attr-defined]  Python 3.12's
    import torch

    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
    torch.cuda.get_device_properties = lambda *_: MagicMock(major=9, minor=0)  # type: ignore[assignment]
    arguments = imported("megatron.training.arguments")

    def check(candidate: Candidate, launch: Launch) -> None:
        os.environ.update(RANK="0", WORLD_SIZE=str(candidate.cluster.num_devices), **launch.env)
        sys.argv = ["pretrain_gpt.py", *own_words(launch)[1]]
        errors = io.StringIO()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                arguments.validate_args(arguments.parse_args(), {})
        except SystemExit:
            raise ValueError(errors.getvalue()[-200:]) from None

    return check


def torchtitan() -> Check:
    """Return a check by torchtitan's `ConfigManager`, with the recipe beside it."""
    manager = imported("torchtitan.config").ConfigManager
    folder = tempfile.mkdtemp()
    sys.path.insert(0, folder)

    def check(candidate: Candidate, launch: Launch) -> None:
        for name, text in launch.files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        sys.modules.pop("plan_recipe", None)
        importlib.invalidate_caches()
        config = manager().parse_args(list(own_words(launch)[1]))
        assert config.parallelism.tensor_parallel_degree == candidate.layout.tp
        assert config.parallelism.pipeline_parallel_degree == candidate.layout.pp

    return check


def axolotl() -> Check:
    """Return a check by the classes of axolotl's configuration."""
    config = imported("axolotl.utils.schemas.config").AxolotlInputConfig

    def check(_: Candidate, launch: Launch) -> None:
        found = tables(launch)
        table = dict(found["axolotl.yaml"])
        if "deepspeed" in table:
            table["deepspeed"] = found[table["deepspeed"]]
        config(**table)

    return check


def sglang() -> Check:
    """Return a check by the parser of `sglang.launch_server`."""
    parser = argparse.ArgumentParser()
    imported("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return argparse_check(parser)


def vllm() -> Check:
    """Return a check by the parser of `vllm serve`."""

    lacking = ("xgrammar", "partial_json_parser", "llguidance", "blake3", "mistral_common", "compressed_tensors")
    parser = imported("vllm.utils.argparse_utils", *lacking).FlexibleArgumentParser()
    platforms = imported("vllm.platforms")
    platforms._current_platform = imported("vllm.platforms.cpu").CpuPlatform()  # noqa: SLF001  no machine is asked
    imported("vllm.engine.arg_utils").AsyncEngineArgs.add_cli_args(parser)
    parser.add_argument("command")
    parser.add_argument("model_tag", nargs="?")
    return argparse_check(parser)


CHECKS: dict[str, Callable[[], Check]] = {
    "megatron": megatron,
    "torchtitan": torchtitan,
    "axolotl": axolotl,
    "sglang": sglang,
    "ktransformers": sglang,
    "vllm": vllm,
}


def launches(name: str) -> Iterator[tuple[Candidate, Launch]]:
    """Yield what a program accepts of the grid."""
    trainer = find_trainer(name)
    if trainer is not None and name != "transformers":
        for engine in trainer.plans_of:
            yield from ((one, trainer.launch(one)) for one in trainings(engine) if trainer.refuses(one) is None)
        return
    engine = find_engine(name)
    yield from ((one, engine.launch(one)) for one in servings(engine.name) if engine.refuses(one) is None)


def main(names: list[str]) -> int:
    """Check each program; return 1 where a parser refused something."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    refused = 0
    for name in names:
        check, seen = CHECKS[name](), set[str]()
        faults: dict[str, int] = {}
        for candidate, launch in launches(name):
            said = repr((launch.argv[1:], launch.files))
            if said in seen:
                continue
            seen.add(said)
            try:
                check(candidate, launch)
            except Exception as error:  # noqa: BLE001  whatever a foreign parser raises
                text = f"{type(error).__name__}: {error}"[:200]
                faults[text] = faults.get(text, 0) + 1
        print(f"{name}: {len(seen)} launches, {sum(faults.values())} refused")
        for text, number in faults.items():
            print(f"  {number} x {text}")
        refused += sum(faults.values())
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
