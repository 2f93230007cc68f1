"""The script that prepares a machine for a plan: it prints what it would do, and changes nothing without `--yes`.

Sources: NVIDIA Driver Installation Guide (package names by distribution, open kernel modules from Turing on, Secure Boot);
NVIDIA Container Toolkit installation guide (`nvidia-ctk runtime configure`); Ubuntu `nvidia-driver-*-server` packages;
nvidia-smi(1) -pl, -pm; modprobe.d(5).
"""

from __future__ import annotations

import re
from typing import Final

from tonnage.hardware.types import Device
from tonnage.messages import say
from tonnage.render.quote import shell_words
from tonnage.render.scripts import script
from tonnage.render.types import BundleFile, Service
from tonnage.units import GIB

__all__ = ["driver_branch", "prepare_script"]

NAME: Final = "prepare.sh"
# The long-term branch that today's CUDA 13 wheels need; also the first that all Blackwell boards run on.
_TODAY: Final = 580
_NO_OPEN_MODULES: Final = frozenset(("Volta", "Pascal", "Maxwell", "Kepler"))  # their GPUs have no GSP firmware
_LEGACY_BRANCH: Final = 580  # the last one that Maxwell, Pascal and Volta are supported in


def driver_branch(device: Device) -> int:
    """Return the driver branch to install for a device: today's long-term one, or the device's own floor if it is newer.

    >>> from tonnage.hardware.catalogue import find_device
    >>> driver_branch(find_device("rtx-4080"))
    580
    """
    floor = re.search(r"\d+", device.min_driver_branch or "")
    last = re.search(r"\d+", device.last_driver_branch or "")
    wanted = max(_TODAY, int(floor[0]) if floor else 0)
    return min(wanted, int(last[0])) if last else wanted


def has_open_modules(device: Device) -> bool:
    """Return whether NVIDIA's open kernel modules run a device: Turing and newer."""
    return bool(device.needs_open_modules) or device.architecture not in _NO_OPEN_MODULES


def prepare_script(service: Service, place: str) -> BundleFile:
    """Return the script; run again it finds everything done.

    Parameters
    ----------
    service : Service
        What is to run, with its plan.
    place : str
        A name of `render.targets.PLACES`: containers need the toolkit beside the driver.

    Returns
    -------
    BundleFile
        `prepare.sh`.
    """
    devices = service.plan.estimate.candidate.cluster.node.devices
    lines = [*_FUNCTIONS.strip("\n").split("\n"), *_checks(service)]
    if devices and service.vendor == "nvidia":
        lines += _driver(devices[0])
        if place in ("compose", "kubernetes"):
            lines += _TOOLKIT.strip("\n").split("\n")
        lines += _power(service)
    lines += ['[ "$reboot" = 0 ] || echo "' + say("deploy.prepare_reboot") + '"', 'exit "$missing"']
    text = script(say("deploy.prepare_purpose"), lines)
    return BundleFile(path=NAME, text=text, purpose=say("deploy.purpose_prepare"), is_executable=True)


# `step WHAT CHECK DO UNDO`: where the check fails, the command is shown, and run with --yes.
_FUNCTIONS: Final = """
yes=0; [ "${1:-}" = --yes ] && yes=1
missing=0; reboot=0
step() {
  if eval "$2" >/dev/null 2>&1; then printf 'ok    %s\\n' "$1"; return 0; fi
  if [ "$yes" = 0 ]; then printf 'todo  %s\\n      %s\\n' "$1" "$3"; missing=3; return 0; fi
  printf 'do    %s\\n      %s\\n' "$1" "$3"
  eval "$3"
  [ -z "$4" ] || printf '      undo: %s\\n' "$4"
}
tell() { printf '%-5s %s\\n' "$1" "$2"; }
. /etc/os-release
root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
"""

_TOOLKIT: Final = """
case "$ID ${ID_LIKE:-}" in
  *debian*|*ubuntu*) toolkit='root apt-get install -y nvidia-container-toolkit';;
  *) toolkit='root dnf install -y nvidia-container-toolkit';;
esac
step 'NVIDIA Container Toolkit' 'command -v nvidia-ctk' "$toolkit" ''
if command -v docker >/dev/null 2>&1; then
  step 'Docker knows the NVIDIA runtime' 'docker info --format "{{json .Runtimes}}" | grep -q nvidia' \\
    'root nvidia-ctk runtime configure --runtime=docker && root systemctl restart docker' \\
    'remove "nvidia" from /etc/docker/daemon.json and restart docker'
fi
"""


def _checks(service: Service) -> list[str]:
    """Return what is looked at and not changed: memory, disk, limits."""
    estimate = service.plan.estimate
    disk = estimate.storage.weights_bytes + 2 * (estimate.storage.checkpoints_bytes or 0.0)
    if service.weights is not None:
        disk += service.weights.disk_bytes
    least_host, least_free = -(-service.host_memory_bytes // 1024), -(-round(disk) // 1024)
    return [
        "available=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)",
        _enough("$available", least_host, _needs("memory", service.host_memory_bytes)),
        "free=$(df --output=avail -k . | tail -n 1)",
        _enough("$free", least_free, _needs("disk", disk)),
    ]


def _enough(held: str, least: int, text: str) -> str:
    return f'if [ "{held}" -ge {least} ]; then tell ok "{text}"; else tell no "{text}"; missing=3; fi'


def _needs(what: str, amount: float) -> str:
    return say(f"deploy.prepare_{what}", amount=f"{amount / GIB:.1f} GiB")


def _driver(device: Device) -> list[str]:
    branch, is_open = driver_branch(device), has_open_modules(device)
    flavour = "-open" if is_open else ""
    ubuntu = f"nvidia-driver-{branch}-server{flavour}"
    debian = "nvidia-open" if is_open else "cuda-drivers"
    fedora = "nvidia-open" if is_open else "cuda-drivers"
    running = "nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1 | cut -d. -f1"
    return [
        'case "$ID" in',
        f'  ubuntu) package={ubuntu}; install="root apt-get install -y $package"',
        '    hold="root apt-mark hold $package"; unhold="sudo apt-mark unhold $package"; held="apt-mark showhold | grep -q $package";;',
        f'  debian) package={debian}; install="root apt-get install -y $package"',
        '    hold="root apt-mark hold $package"; unhold="sudo apt-mark unhold $package"; held="apt-mark showhold | grep -q $package";;',
        f'  *) package={fedora}; install="root dnf install -y $package"',
        '    hold="root dnf versionlock add $package"; unhold="sudo dnf versionlock delete $package"; held="dnf versionlock list | grep -q $package";;',
        "esac",
        (
            f"step '{say('deploy.prepare_driver', branch=branch, modules=say('deploy.modules_open' if is_open else 'deploy.modules_closed'))}' "
            f'\'[ "$({running})" -ge {branch} ]\' "$install && reboot=1" "sudo apt-get purge $package"'
        ),
        f'step \'{say("deploy.prepare_hold")}\' "$held" "$hold" "$unhold"',
        "if grep -q '^nouveau ' /proc/modules; then",
        f"  step '{say('deploy.prepare_nouveau')}' 'grep -qs \"blacklist nouveau\" /etc/modprobe.d/*.conf' \\",
        (
            '    \'printf "blacklist nouveau\\noptions nouveau modeset=0\\n" | root tee /etc/modprobe.d/blacklist-nouveau.conf; '
            "if command -v update-initramfs; then root update-initramfs -u; else root dracut -f; fi; reboot=1' \\"
        ),
        "    'sudo rm /etc/modprobe.d/blacklist-nouveau.conf, and make the initramfs anew'",
        "fi",
        "if command -v mokutil >/dev/null 2>&1 && mokutil --sb-state 2>/dev/null | grep -q enabled; then",
        f"  tell note '{say('deploy.prepare_secure_boot')}'",
        "fi",
        "if command -v nvidia-smi >/dev/null 2>&1; then",
        (
            f"  step '{say('deploy.prepare_persistence')}' 'nvidia-smi -q | grep -q \"Persistence Mode.*Enabled\"' "
            "'root nvidia-smi -pm 1' 'sudo nvidia-smi -pm 0'"
        ),
        "fi",
    ]


def _power(service: Service) -> list[str]:
    """Return the power limit that the plan was made with, with its undo; none was asked for: none is set."""
    limit, devices = service.plan.request.limits.max_power_watts, service.num_devices
    if limit is None or not devices:
        return []
    watts = int(limit / (devices * service.num_nodes))
    every = "--query-gpu=power.limit --format=csv,noheader,nounits"
    return [
        "if command -v nvidia-smi >/dev/null 2>&1; then",
        (
            f"  step '{say('deploy.prepare_power', watts=watts)}' "
            f"'[ \"$(nvidia-smi {every} | cut -d. -f1 | sort -n | tail -n 1)\" -le {watts} ]' "
            f"{shell_words([f'root nvidia-smi -pl {watts}'])} "
            "'sudo nvidia-smi -pl $(nvidia-smi --query-gpu=power.default_limit --format=csv,noheader,nounits | head -n 1)'"
        ),
        "fi",
    ]
