"""What every bundle holds, whatever the place: the plan, the engine's own files, a page that explains, the installer."""

from __future__ import annotations

from typing import Final

from tonnage.engines.types import Late
from tonnage.messages import say
from tonnage.plan.file import write_plan
from tonnage.plan.request import command
from tonnage.render.network import link_test_lines
from tonnage.render.prepare import prepare_script
from tonnage.render.quote import shell_words
from tonnage.render.scripts import script
from tonnage.render.types import BundleFile, Role, Service
from tonnage.render.weights import Weights
from tonnage.units import format_bytes

LINK_TEST: Final = "nccl-test.sh"


def common_files(service: Service, start: str, place: str, test: str = f"bash {LINK_TEST}") -> tuple[BundleFile, ...]:
    """Return the files that do not depend on the place."""
    own = tuple(
        BundleFile(path=path, text=text, purpose=say("deploy.purpose_engine"))
        for path, text in sorted(service.files.items())
    )
    install = (install_script(service),) if service.packages else ()
    if service.weights is not None and service.weights.is_made:
        install = (*install, weights_script(service.weights))
    return (
        BundleFile(path="plan.toml", text=write_plan(service.plan), purpose=say("deploy.purpose_plan")),
        BundleFile(path="README.md", text=readme(service, start, place, test), purpose=say("deploy.purpose_readme")),
        prepare_script(service, place),
        *((link_test(service),) if service.has_collectives else ()),
        *own,
        *install,
    )


def link_test(service: Service) -> BundleFile:
    """Return the script that tests the links between the devices against the plan."""
    purpose, lines = link_test_lines(service)
    return BundleFile(
        path=LINK_TEST, text=script(purpose, lines), purpose=say("places.purpose_test"), is_executable=True
    )


def install_script(service: Service) -> BundleFile:
    """Return the script that installs the engine beside it; run again it changes nothing."""
    text = script(
        say("deploy.install_purpose"),
        (
            "test -x .venv/bin/python || python3 -m venv .venv",
            f".venv/bin/python -m pip install {shell_words(service.packages)}",
        ),
    )
    return BundleFile(path="install.sh", text=text, purpose=say("deploy.purpose_install"), is_executable=True)


def weights_script(weights: Weights) -> BundleFile:
    """Return the script that makes the weights that the plan assumes; run again it changes nothing."""
    text = script(say("deploy.weights_purpose"), weights.lines)
    return BundleFile(path="weights.sh", text=text, purpose=say("deploy.purpose_weights"), is_executable=True)


def readme(service: Service, start: str, place: str, test: str) -> str:
    """Return the page that says what the bundle is, how it starts, and what was predicted."""
    estimate = service.plan.estimate
    total, capacity = estimate.footprint.total, estimate.footprint.capacity_bytes
    lines = [
        f"# {service.name}",
        "",
        say("deploy.readme_what", command=" ".join(command(service.plan.request).split())),
        "",
        "```console",
        "$ bash prepare.sh",
        *(("$ bash install.sh",) if service.packages else ()),
        *(("$ bash weights.sh",) if service.weights is not None and service.weights.is_made else ()),
        f"$ {start}",
        "```",
        "",
        say("deploy.readme_memory", best=format_bytes(total.best), high=format_bytes(total.high),
            capacity=format_bytes(capacity)),
    ]  # fmt: skip
    if service.num_nodes > 1 and place in ("local", "systemd"):
        lines += ["", say("places.on_each", num=service.num_nodes)]
    if service.has_collectives:
        lines += ["", say("places.readme_test", command=test)]
    if service.notes:
        lines.append("")
    lines += [f"- {' '.join(note.split())}" for note in service.notes]
    return "\n".join(lines) + "\n"


def container_words(service: Service) -> tuple[str, ...]:
    """Return what a container runs: the engine's own program in its image, or an installation and the start script."""
    if service.role is Role.SERVER:
        program = service.image_program or service.argv[:1]
        port = str(service.probe.port) if service.probe else ""
        return (*program, *(port if isinstance(word, Late) else word for word in service.argv[1:]))
    steps = "cp -rL /bundle/. . && bash install.sh && exec bash start.sh"
    return "bash", "-c", steps


def health_words(service: Service) -> tuple[str, ...]:
    """Return the command inside a container that succeeds when the server answers."""
    assert service.probe is not None
    return service.probe.command or (
        "curl", "-fsS", f"http://127.0.0.1:{service.probe.port}{service.probe.health_path}",
    )  # fmt: skip
