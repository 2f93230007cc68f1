"""The machine at hand: a script that starts the service in the foreground."""

from __future__ import annotations

from tonnage.messages import say
from tonnage.render.network import setting_lines, start_lines
from tonnage.render.parts import before_start, common_files, has_install
from tonnage.render.quote import shell_words
from tonnage.render.scripts import command_lines, exports, script
from tonnage.render.types import Bundle, BundleFile, Service

START = "start.sh"


def bundle(service: Service) -> Bundle:
    """Return the files that start a service here."""
    files = (*common_files(service, f"bash {START}", "local"), start_script(service), limited_script(service))
    return Bundle(
        name=service.name,
        place="local",
        files=files,
        start=f"bash {START}",
        notes=service.notes,
        before=before_start(service, "local"),
    )


def start_script(service: Service) -> BundleFile:
    """Return the script that replaces itself with the service, so that signals reach it."""
    found = start_lines(service)
    programs = ".venv/bin" if service.build is None else service.build.programs
    text = script(
        say("deploy.start_purpose", name=service.name),
        (
            f'export PATH="$PWD/{programs}:$PATH"  # where install.sh installs the engine',
            *_there(service),
            *exports(service.env),
            *setting_lines(service.settings),
            *found,
            *_exec_lines(service, has_more="more=()" in found),
        ),
    )
    return BundleFile(path=START, text=text, purpose=say("deploy.purpose_start"), is_executable=True)


def _there(service: Service) -> list[str]:
    """Return lines that end with the command to run first where the program or the weights are missing."""
    lines: list[str] = []
    if has_install(service):
        program = shell_words([service.argv[0]])
        lines.append(
            f"command -v {program} >/dev/null || {{ echo {_first(service.argv[0], 'install.sh')} >&2; exit 4; }}"
        )
    made = service.weights
    if made is not None and made.is_made and made.name.startswith("weights/"):
        lines.append(f"[ -e {shell_words([made.name])} ] || {{ echo {_first(made.name, 'weights.sh')} >&2; exit 4; }}")
    return lines


def _first(what: str, script: str) -> str:
    return shell_words([f"{START}: {say('places.not_there', what=what, script=script)}"])


def limited_script(service: Service) -> BundleFile:
    """Return the script that starts the service in a control group of its own, as systemd.resource-control(5) has it."""
    limit = service.host_memory_bytes + service.shared_memory_bytes
    text = script(
        say("places.limited_purpose"),
        (
            "if ! systemctl --user show-environment >/dev/null 2>&1; then",
            f"  echo {shell_words(['limited.sh: ' + say('places.no_user_session')])} >&2",
            "  exit 4",
            "fi",
            (
                f"exec systemd-run --user --scope --collect --unit {service.name} -p MemoryMax={limit} -p MemorySwapMax=0"
                f" bash {START}"
            ),
        ),
    )
    return BundleFile(path="limited.sh", text=text, purpose=say("places.purpose_limited"), is_executable=True)


def _exec_lines(service: Service, *, has_more: bool) -> list[str]:
    """Return the command; words that the machine asked for follow a launcher's name, or end a server's line."""
    first, *rest = command_lines(service.argv)
    if has_more and service.argv[0] == "torchrun":
        first = 'torchrun "${more[@]}"' + first.removeprefix("torchrun")
        has_more = False
    lines = [f"exec {first}", *rest]
    return [*lines[:-1], f'{lines[-1]} "${{more[@]}}"'] if has_more else lines
