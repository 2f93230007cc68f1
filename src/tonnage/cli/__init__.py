"""The `tonnage` command: one file a verb, loaded only when that verb is called.

Exit codes: 0 yes, 1 a fault of ours, 2 the request is wrong, 3 the answer is no, 4 something outside is missing,
75 stopped with a checkpoint.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from tonnage import __version__
from tonnage.errors import BadFileError, TonnageError

# In the order of the road: each verb is `tonnage.cli.<verb>.command`.
VERBS: tuple[str, ...] = ("model", "gpus", "plan", "explain", "score")


class Verbs(click.Group):
    """The verbs, found by name without importing the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs in the order of the road."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        del ctx
        return import_module(f"tonnage.cli.{cmd_name}").command if cmd_name in VERBS else None


def config_path() -> Path:
    """Return where the user's defaults lie."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  pathlib raises without a home
    return Path(os.environ.get("TONNAGE_CONFIG") or f"{base}/tonnage/config.toml")


def _defaults() -> dict[str, Any]:
    """Read the user's defaults, a table a verb: `[plan]` then `gpu = ["rtx-4080"]`."""
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
        import tomllib

        return tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadFileError(f"cannot be read: {error}", where=str(path), fix="mend or remove it") from error


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TONNAGE"})
@click.version_option(__version__, prog_name="tonnage")
def group() -> None:
    """Plan, deploy, run, verify, watch and diagnose language models: training and serving, one card to thousands.

    \b
    tonnage model Qwen/Qwen3.5-27B                        what it is
    tonnage gpus 4080 5090 --model Qwen/Qwen3.5-27B       which card
    tonnage plan Qwen/Qwen3.5-35B-A3B --serve --gpu rtx-4080
    """


def _fail(error: TonnageError, *, is_json: bool) -> NoReturn:
    if is_json:
        print(json.dumps({"error": {"what": error.what, "where": error.where, "fix": error.fix}}, ensure_ascii=False))
    print(f"tonnage: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    gc.set_threshold(100_000, 50, 50)  # one answer and the end: little becomes garbage, looking for it costs a tenth
    arguments = sys.argv[1:] if arguments is None else arguments
    is_json = "--json" in arguments
    try:
        code = group.main(arguments, "tonnage", standalone_mode=False, default_map=_defaults())
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except TonnageError as error:
        _fail(error, is_json=is_json)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path.removeprefix("tonnage").strip() if context else ""
        fix = f"see: {context.command_path} --help" if context else ""
        _fail(_usage(error.format_message(), where, fix), is_json=is_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("TONNAGE_DEBUG"):
            raise
        fault = TonnageError(
            f"a fault of ours: {type(error).__name__}: {error}", fix="TONNAGE_DEBUG=1 shows where; please report it"
        )
        _fail(fault, is_json=is_json)


def _usage(what: str, where: str, fix: str) -> TonnageError:
    from tonnage.errors import RequestError

    return RequestError(" ".join(what.split()).rstrip("."), where=where, fix=fix)
