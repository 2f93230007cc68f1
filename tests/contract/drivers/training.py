"""Holds jobs, DeepSpeed and Accelerate configurations and launch lines against the programs' own classes and parsers.

Reads a list of cases as JSON and prints one complaint each ("" for none). What needs a GPU is set aside, and nothing
else: whether the device knows bf16, choosing the device, and how many processes there are, which is the plan's number.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest import mock


class Seen(dict):
    """A mapping that remembers which of its keys were asked for."""

    asked: set[str]

    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)


def seen(table: dict[str, Any]) -> Seen:
    made = Seen(table)
    made.asked = set()
    return made


def deepspeed(case: dict[str, Any]) -> None:
    """DeepSpeed's class reads the configuration, with the batch arithmetic of the plan's number of processes.

    Its sections refuse fields that they do not know; at the top, and in sections that do not, every key has to be read.
    """
    from deepspeed.runtime import config

    table = json.loads(case["text"])

    def read(one):
        with (
            mock.patch.object(config.dist, "get_rank", return_value=0),
            mock.patch.object(config.dist, "get_world_size", return_value=case["num_processes"]),
        ):
            config.DeepSpeedConfig(one)

    top = seen(table)
    read(top)
    ignored = [key for key in table if key not in top.asked]
    for name, section in table.items():
        if isinstance(section, dict) and not _is_strict(read, table, name):
            inside = seen(section)
            read({**table, name: inside})
            ignored += [f"{name}.{key}" for key in section if key not in inside.asked]
    if ignored:
        raise ValueError(f"DeepSpeed does not read {ignored}")


def _is_strict(read, table, name):
    planted = copy.deepcopy(table)
    planted[name]["no_such_field"] = 1
    try:
        read(planted)
    except Exception:  # noqa: BLE001  whatever the class says
        return True
    return False


def job(case: dict[str, Any]) -> None:
    """The Trainer's arguments, adapter and quantisation of a job, with the DeepSpeed file that lies beside it."""
    import torch
    from transformers import BitsAndBytesConfig, TrainingArguments

    class Here(TrainingArguments):
        _setup_devices = property(lambda self: torch.device("cpu"))
        world_size = property(lambda self: case["num_processes"])
        distributed_state = None

    table = json.loads(case["text"])
    with mock.patch("transformers.training_args.is_torch_bf16_gpu_available", return_value=True):
        made = Here(**table["training_arguments"])
    if made.deepspeed:
        made.hf_deepspeed_config.trainer_config_finalize(made, None, 1000)
    if "lora" in table:
        from peft import LoraConfig

        LoraConfig(task_type="CAUSAL_LM", **table["lora"])
    if "quantization" in table:
        BitsAndBytesConfig(**table["quantization"])


def command(case: dict[str, Any]) -> None:
    """A launch line in its launcher's own parser, up to where processes would start."""
    import torch.distributed.run as torchrun

    launched = []

    def launch(args):
        made, *_ = torchrun.config_from_args(args)
        launched.append(made.nproc_per_node * made.max_nodes)
        if os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true"):
            from accelerate import FullyShardedDataParallelPlugin

            FullyShardedDataParallelPlugin()
        if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() in ("1", "true"):
            from accelerate import DeepSpeedPlugin

            DeepSpeedPlugin()

    words = case["argv"]
    if words[0] == "torchrun":
        launch(torchrun.parse_args(words[1:]))
    else:
        assert words[:2] == ["accelerate", "launch"], words
        from accelerate.commands import launch as accelerate

        parser = accelerate.launch_command_parser()
        args = parser.parse_args(words[2:])
        _nested(parser, args)
        with mock.patch.object(torchrun, "run", launch):
            accelerate.launch_command(args)
    if launched != [case["num_processes"]]:
        raise ValueError(f"it would start {launched} processes, not {case['num_processes']}")


def _nested(parser, args) -> None:
    """The loader knows the keys on top; those of a section are options of the launcher, held here to its parser."""
    from accelerate.commands.config import load_config_from_file

    loaded = load_config_from_file(args.config_file)
    actions = {action.dest: action for action in parser._actions}
    for section in ("fsdp_config", "deepspeed_config", "fp8_config", "dynamo_config", "parallelism_config"):
        prefix = section.partition("_")[0] + "_"
        for key, value in (getattr(loaded, section) or {}).items():
            action = actions.get(key) or actions.get(prefix + key)
            if action is None:
                raise ValueError(f"{section}.{key} is no option of accelerate launch")
            parser._get_value(action, str(value))
            if action.choices is not None and str(value) not in map(str, action.choices):
                raise ValueError(f"{section}.{key}: {value} is not one of {action.choices}")


def serve(case: dict[str, Any]) -> None:
    """`transformers serve` parses its words."""
    from transformers.cli.transformers import app

    app.commands["serve"].make_context("serve", list(case["argv"][2:]))


CHECKS = {"deepspeed": deepspeed, "job": job, "command": command, "serve": serve}


def complaint(case: dict[str, Any]) -> str:
    """Return what a program says against a case: an exception, an exit, or a warning of its own."""
    said = io.StringIO()
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for path, text in case.get("files", {}).items():
            Path(folder, path).write_text(text, encoding="utf-8")
        os.chdir(folder)
        try:
            with mock.patch.dict(os.environ), contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                CHECKS[case["check"]](case)
        except SystemExit as end:
            return said.getvalue().strip()[-500:] or f"exit code {end.code}"
        except Exception as error:  # noqa: BLE001  whatever the program says
            return f"{type(error).__name__}: {str(error)[:500]}"
        finally:
            os.chdir(home)
    own = [str(one.message) for one in warned if not issubclass(one.category, DeprecationWarning | FutureWarning)]
    return "\n".join(own)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    cases = json.load(sys.stdin)
    answers = [complaint(case) for case in cases]
    print(json.dumps(answers))
