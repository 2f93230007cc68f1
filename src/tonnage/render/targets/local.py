"""The machine at hand: a script that starts the service in the foreground."""

from __future__ import annotations

from tonnage.messages import say
from tonnage.render.parts import common_files
from tonnage.render.scripts import command_lines, exports, script
from tonnage.render.types import Bundle, BundleFile, Service

START = "start.sh"


def bundle(service: Service) -> Bundle:
    """Return the files that start a service here."""
    files = (*common_files(service, f"bash {START}", "local"), start_script(service))
    return Bundle(name=service.name, place="local", files=files, start=f"bash {START}", notes=service.notes)


def start_script(service: Service) -> BundleFile:
    """Return the script that replaces itself with the service, so that signals reach it."""
    text = script(
        say("deploy.start_purpose", name=service.name),
        (
            'export PATH="$PWD/.venv/bin:$PATH"  # where install.sh installs the engine',
            *exports(service.env),
            f"exec {command_lines(service.argv)[0]}",
            *command_lines(service.argv)[1:],
        ),
    )
    return BundleFile(path=START, text=text, purpose=say("deploy.purpose_start"), is_executable=True)
