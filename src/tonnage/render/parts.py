"""What every bundle holds, whatever the place: the plan, the engine's own files, a page that explains, the installer."""

from __future__ import annotations

from typing import Final

from tonnage.engines.servers import is_image_seen
from tonnage.engines.types import Late
from tonnage.messages import say
from tonnage.plan.file import write_plan
from tonnage.plan.request import command
from tonnage.render.network import link_test_lines
from tonnage.render.prepare import prepare_script
from tonnage.render.quote import shell_words
from tonnage.render.scripts import comment, script
from tonnage.render.types import BundleFile, Role, Service
from tonnage.render.weights import Weights
from tonnage.units import format_bytes

LINK_TEST: Final = "nccl-test.sh"
SUPERVISE: Final = "supervise.sh"
_CORES_PER_DEVICE: Final = 8


def common_files(
    service: Service, start: str, place: str, test: str = f"bash {LINK_TEST}", notes: tuple[str, ...] | None = None
) -> tuple[BundleFile, ...]:
    """Return the files that do not depend on the place, but for its commands and notes."""
    said = service.notes if notes is None else notes
    own = tuple(
        BundleFile(path=path, text=text, purpose=say("deploy.purpose_engine"))
        for path, text in sorted(service.files.items())
    )
    install = (install_script(service),) if has_install(service) else ()
    if service.weights is not None and service.weights.is_made:
        install = (*install, weights_script(service.weights))
    return (
        BundleFile(path="plan.toml", text=write_plan(service.plan), purpose=say("deploy.purpose_plan")),
        BundleFile(
            path="README.md", text=readme(service, start, place, test, said), purpose=say("deploy.purpose_readme")
        ),
        prepare_script(service, place),
        *((link_test(service),) if service.has_collectives else ()),
        *((job_script(),) if service.has_launcher and place not in ("local", "slurm") else ()),
        *own,
        *install,
    )


def link_test(service: Service) -> BundleFile:
    """Return the script that tests the links between the devices against the plan."""
    purpose, lines = link_test_lines(service)
    return BundleFile(
        path=LINK_TEST, text=script(purpose, lines), purpose=say("places.purpose_test"), is_executable=True
    )


def before_start(service: Service, place: str) -> tuple[str, ...]:
    """Return the commands that come before the start, once: the installation and the weights."""
    is_on_host = place in ("local", "systemd", "slurm")
    has_weights = service.weights is not None and service.weights.is_made and (is_on_host or place == "compose")
    return (
        *(("bash install.sh",) if is_on_host and has_install(service) else ()),
        *(("bash weights.sh",) if has_weights else ()),
    )


def has_install(service: Service) -> bool:
    """Return whether there is something to install beside the bundle."""
    return bool(service.packages) or service.build is not None


def _torch_check(service: Service) -> list[str]:
    """Return a line that holds PyTorch's own list of architectures to the device: a wheel may lack it."""
    devices = service.candidate.cluster.node.devices
    if not devices or service.vendor != "nvidia" or devices[0].compute_capability is None:
        return []
    capability = devices[0].compute_capability.replace(".", "")
    code = (
        "import re, sys, torch; held = torch.cuda.get_arch_list(); "
        'print("torch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version(), *held); '
        'numbers = [int(n) for n in re.findall(r"sm_(\\d+)", " ".join(held))]; '
        f"sys.exit(4 if held and not any(n // 10 == {int(capability) // 10} and n <= {capability} for n in numbers) else 0)"
    )
    return [comment(say("prepare.architectures")), f".venv/bin/python -c {shell_words([code])}"]


def install_script(service: Service) -> BundleFile:
    """Return the script that installs the engine beside it; run again it changes nothing."""
    lines: list[str] = []
    if service.packages:
        lines += [
            "test -x .venv/bin/python || python3 -m venv .venv",
            f".venv/bin/python -m pip install {shell_words(service.packages)}",
        ]
        lines += _torch_check(service)
    if service.build is not None:
        lines += service.build.lines(service.vendor)
    text = script(say("deploy.install_purpose"), lines)
    return BundleFile(path="install.sh", text=text, purpose=say("deploy.purpose_install"), is_executable=True)


def weights_script(weights: Weights) -> BundleFile:
    """Return the script that makes the weights that the plan assumes; run again it changes nothing."""
    text = script(say("deploy.weights_purpose"), ('export PATH="$PWD/.venv/bin:$PATH"', *weights.lines))
    return BundleFile(path="weights.sh", text=text, purpose=say("deploy.purpose_weights"), is_executable=True)


def readme(service: Service, start: str, place: str, test: str, notes: tuple[str, ...]) -> str:
    """Return the page that says what the bundle is, how it starts, and what was predicted."""
    estimate = service.plan.estimate
    total, capacity = estimate.footprint.total, estimate.footprint.capacity_bytes
    lines = [
        f"# {service.name}",
        "",
        say("deploy.readme_what", command=" ".join(command(service.plan.request).split())),
        "",
        "```console",
        *(("$ bash prepare.sh",) if place != "skypilot" else ()),
        *(f"$ {one}" for one in before_start(service, place)),
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
    if notes:
        lines.append("")
    lines += [f"- {' '.join(note.split())}" for note in notes]
    return "\n".join(lines) + "\n"


def container_words(service: Service, scratch: str = "/scratch") -> tuple[str, ...]:
    """Return what a container runs: the engine's own program in its image, or the start script in a folder of its own."""
    if service.role is Role.SERVER:
        program = service.image_program or service.argv[:1]
        port = str(service.probe.port) if service.probe else ""
        return (*program, *(port if isinstance(word, Late) else word for word in service.argv[1:]))
    # The folder of Compose holds the person's data too; a ConfigMap only what describes it, to lie beside it.
    data = "data=/cache/data; if [ -d /bundle/data ]; then data=/bundle/data; fi"
    if scratch == "/scratch":
        data = "if [ -d /bundle/data ]; then cp -rL /bundle/data/. /cache/data; fi; data=/cache/data"
    return "bash", "-c", "\n".join((
        "set -e",
        f"mkdir -p {scratch} /cache/run /cache/data; cd {scratch}",
        'for file in /bundle/*; do if [ -f "$file" ]; then cp -L "$file" .; fi; done',
        f"{data}; ln -sfn /cache/run run; ln -sfn $data data",
        "bash install.sh",
        *(("bash weights.sh",) if service.weights is not None and service.weights.is_made else ()),
        f"exec bash {SUPERVISE if scratch != '/scratch' else service.program}\n",
    ))  # fmt: skip


def container_env(service: Service) -> dict[str, str]:
    """Return the variables of a container: the plan's settings, and a home that its user may write to."""
    fixed = {one.name: one.value for one in service.settings}
    # A user without an entry in the image's passwd has no name; torch asks for one (getpass.getuser).
    return {
        **fixed,
        **service.env,
        "HF_HOME": "/cache",
        "HOME": "/cache",
        "USER": "engine",
        "PIP_CACHE_DIR": "/cache/pip",
    }


def num_cores(service: Service) -> int:
    """Return the cores that a replica is given: the host's share of its devices, eight at most for each."""
    host, devices = service.candidate.cluster.node.host, max(1, service.num_devices)
    return max(2, min(_CORES_PER_DEVICE * devices, host.num_cores))


def image_notes(service: Service, *images: str) -> tuple[str, ...]:
    """Return a note for each image whose tag was not read in a public source."""
    named = dict.fromkeys((*((service.image,) if service.image else ()), *images))
    return tuple(say("places.image_unseen", image=image) for image in named if not is_image_seen(image))


def job_script() -> BundleFile:
    """Return a script that starts the job and ends with the code that its own processes ended with."""
    lines = (
        'export TONNAGE_EXIT_FILE="$PWD/.exit-code.${NODE_RANK:-0}"; rm -f "$TONNAGE_EXIT_FILE"',
        "bash start.sh & child=$!",
        "trap 'again=1; kill -TERM \"$child\" 2>/dev/null || true' TERM INT",
        "# A trapped signal ends a wait; the next one has the job's own code, even if it is gone by then.",
        'again=1; while [ "$again" = 1 ]; do again=0; code=0; wait "$child" || code=$?; done',
        'if [ "$code" != 0 ] && [ -s "$TONNAGE_EXIT_FILE" ]; then code=$(cat "$TONNAGE_EXIT_FILE"); fi',
        'exit "$code"',
    )
    return BundleFile(
        path="job.sh",
        text=script(say("places.job_purpose"), lines),
        purpose=say("places.job_purpose"),
        is_executable=True,
    )


def supervise_script(program: str = "start.sh") -> BundleFile:
    """Return a script that starts the service again after a failure, later each time, unless that cannot help."""
    lines = (
        "stop=0; child=",
        'trap \'stop=1; again=1; if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null || true; fi\' TERM INT',
        "for pause in 30 60 120 240 480 0; do",
        f"  bash {program} & child=$!",
        "  # A trapped signal ends a wait; the next one has the service's own code, even if it is gone by then.",
        '  again=1; while [ "$again" = 1 ]; do again=0; code=0; wait "$child" || code=$?; done',
        "  # 0: done, 2: the request is wrong, 3: given up for good",
        '  case "$code" in 0 | 2 | 3) exit "$code" ;; esac',
        '  if [ "$stop" = 1 ] || [ "$pause" = 0 ]; then exit "$code"; fi',
        '  echo "supervise.sh: exit code $code, again in $pause s" >&2',
        '  child=; sleep "$pause" & wait $! || true',
        '  if [ "$stop" = 1 ]; then exit "$code"; fi',
        "done",
    )
    return BundleFile(
        path=SUPERVISE,
        text=script(say("places.supervise_purpose"), lines),
        purpose=say("places.supervise_purpose"),
        is_executable=True,
    )


def health_words(service: Service) -> tuple[str, ...]:
    """Return the command inside a container that succeeds when the server answers."""
    assert service.probe is not None
    url = f"http://127.0.0.1:{service.probe.port}{service.probe.health_path}"
    if service.probe.command:
        return service.probe.command
    if service.packages:  # an image with Python need not have curl
        return "python3", "-c", f"import urllib.request; urllib.request.urlopen({url!r}, timeout=4)"
    return "curl", "-fsS", url
