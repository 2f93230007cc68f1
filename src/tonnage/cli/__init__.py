"""The `tonnage` command: one file a verb, loaded only when that verb is called.

Exit codes: 0 yes, 1 a fault of ours, 2 the request is wrong, 3 the answer is no, 4 something outside is missing,
75 stopped with a checkpoint.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from tonnage import __version__
from tonnage.errors import OutsideError, TonnageError
from tonnage.messages import choose_language, language

# In the order of the road: each verb is `tonnage.cli.<verb>.command`.
VERBS: tuple[str, ...] = (
    "model",
    "gpus",
    "plan",
    "explain",
    "deploy",
    "run",
    "runs",
    "logs",
    "stop",
    "diagnose",
    "lint",
    "doctor",
    "bench",
    "verify",
    "simulate",
    "prices",
    "calibrate",
    "score",
)


def _put_help(command: click.Command) -> None:
    """Put help into the language in use; English needs nothing, unless an earlier call put it into another."""
    if language() != "en" or "tonnage.cli.translate" in sys.modules:
        from tonnage.cli.translate import put_help

        put_help(command)


class Verbs(click.Group):
    """The verbs, found by name without importing the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs in the order of the road."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        del ctx
        command = import_module(f"tonnage.cli.{cmd_name}").command if cmd_name in VERBS else None
        if command is not None:
            _put_help(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, and the user's defaults for it; what was taught is shown by `calibrate profile`."""
        if args[:1] == ["profile"]:
            from tonnage.errors import RequestError

            fix = f"write tonnage calibrate profile {args[1] if len(args) > 1 else 'show'}"
            raise RequestError("No such command 'profile'", where="tonnage", fix=fix)
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not {"-h", "--help"} & set(rest):
            from tonnage.cli.settings import defaults

            ctx.default_map = {name: defaults(name, command, VERBS)}
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a reader that has gone is no fault, though click would end with code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _NobodyReadsError from error


class _NobodyReadsError(Exception):
    """What reads our output has gone: `tonnage … | head`."""


_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TONNAGE"})
@click.version_option(__version__, prog_name="tonnage")
@click.option(
    "--lang",
    type=click.Choice(("en", "zh")),
    expose_value=False,
    help="Language of the output; by default the locale's.",
)
def group() -> None:
    """Plan the training and serving of language models, one card to thousands: what fits, how fast, at what cost.

    \b
    tonnage model Qwen/Qwen3.5-27B                        what it is
    tonnage gpus 4080 5090 --model Qwen/Qwen3.5-27B       which card
    tonnage plan Qwen/Qwen3.5-35B-A3B --serve --gpu rtx-4080
    """


def _fail(error: TonnageError, *, is_json: bool) -> NoReturn:
    error = _in_language(error)
    if is_json:
        from tonnage.cli.options import write_json

        try:
            write_json({"error": {"what": error.what, "where": error.where, "fix": error.fix}})
            sys.stdout.flush()
        except OSError:
            _drop_output()
    print(f"tonnage: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


def _in_language(error: TonnageError) -> TonnageError:
    """Return a failure in the language in use."""
    if language() == "en":
        return error
    from tonnage.cli.translate import translated

    told = TonnageError(translated(error.what), where=error.where, fix=translated(error.fix))
    told.exit_code = error.exit_code
    return told


def _drop_output() -> None:
    """Send what is still to be written nowhere, so that Python does not try again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_streams() -> None:
    """Give a closed stream an end, and write ? for what a terminal's encoding lacks."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115  as long as the process
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    gc.set_threshold(100_000, 50, 50)  # one answer and the end: little becomes garbage, looking for it costs a tenth
    arguments = sys.argv[1:] if arguments is None else arguments
    _open_streams()
    asked = {"is_json": "--json" in arguments}
    from tonnage.cli.options import language_asked

    choose_language(language_asked(arguments))
    _put_help(group)
    try:
        code = group.main(arguments, "tonnage", standalone_mode=False, obj=asked)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except (_NobodyReadsError, BrokenPipeError):
        _drop_output()
        sys.exit(0)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.exceptions.Abort:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("TONNAGE_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno in _FULL:
            _drop_output()
        _fail(_failure(error), is_json=asked["is_json"])


def _failure(error: Exception) -> TonnageError:
    """Return what to say of an exception."""
    if isinstance(error, TonnageError):
        return error
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        where = context.command_path.removeprefix("tonnage").strip() if context else ""
        fix = f"see: {context.command_path} --help" if context else ""
        return _usage(error.format_message(), where, fix)
    if isinstance(error, OSError) and error.errno in _FULL:
        return OutsideError(f"cannot be written: {error.strerror}", where="output", fix="make room, or write elsewhere")
    return TonnageError(
        f"a fault of ours: {type(error).__name__}: {error}", fix="TONNAGE_DEBUG=1 shows where; please report it"
    )


def _usage(what: str, where: str, fix: str) -> TonnageError:
    from tonnage.errors import RequestError

    return RequestError(" ".join(what.split()).rstrip("."), where=where, fix=fix)
