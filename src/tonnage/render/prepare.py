"""The script that prepares a machine for a plan: it prints what it would do, and changes nothing without `--yes`.

Sources: NVIDIA Driver Installation Guide r580 (repositories and package names by distribution, open kernel modules from
Turing on, Secure Boot, disabling nouveau); packages.ubuntu.com nvidia-driver-580-server, -open (22.04 and later);
Debian 13 holds 550.163, which CUDA 13 wheels do not run on, so that NVIDIA's repository is taken there; NVIDIA Container
Toolkit installation guide; nvidia-smi(1) -pl, -pm; modprobe.d(5); update-initramfs(8); dracut(8); grubby(8);
apt-mark(8); dnf-plugins-core versionlock; zypper(8) addlock; NVIDIA Fabric Manager user guide (NVSwitch boards).
"""

from __future__ import annotations

import re
from typing import Final

from tonnage.hardware.types import Device
from tonnage.messages import say
from tonnage.render.quote import shell_words
from tonnage.render.scripts import script
from tonnage.render.types import BundleFile, Service
from tonnage.units import GB, GIB

__all__ = ["driver_branch", "prepare_script"]

NAME: Final = "prepare.sh"
# The long-term branch that today's CUDA 13 wheels need; also the first that all Blackwell boards run on.
_TODAY: Final = 580
_NO_OPEN_MODULES: Final = frozenset(("Volta", "Pascal", "Maxwell", "Kepler"))  # their GPUs have no GSP firmware
_SWITCHED: Final = 8  # devices on a board with NVSwitches
# The C library that the wheels ask for, by their own tags: torch manylinux_2_28, sglang 0.5.23 manylinux_2_34,
# kt_kernel 0.7.2 manylinux_2_35.
_GLIBC: Final = {"sglang": "2.34", "ktransformers": "2.35"}
_GLIBC_OF_TORCH: Final = "2.28"


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
    devices = service.candidate.cluster.node.devices
    lines = [*_text(_FUNCTIONS), *_checks(service, place)]
    if devices and service.vendor == "nvidia":
        lines += _driver(devices[0], tools=_tools(service, place), has_switch=_has_switch(service))
        if place in ("compose", "kubernetes"):
            lines += _text(_TOOLKIT)
        lines += _power(service)
    elif devices:
        lines.append(f"tell note {shell_words([say('prepare.other_maker', maker=devices[0].vendor)])}")
    lines += [f'[ "$reboot" = 0 ] || tell note {shell_words([say("deploy.prepare_reboot")])}', 'exit "$missing"']
    text = script(say("deploy.prepare_purpose"), lines)
    return BundleFile(path=NAME, text=text, purpose=say("deploy.purpose_prepare"), is_executable=True)


def _text(text: str) -> list[str]:
    return text.strip("\n").split("\n")


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
root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
"""

_TOOLKIT: Final = """
rpm_list=https://nvidia.github.io/libnvidia-container/stable/rpm/nvidia-container-toolkit.repo
deb_list=https://nvidia.github.io/libnvidia-container/stable/deb/nvidia-container-toolkit.list
key=/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg
case "$family" in
  apt) toolkit="curl -fsSL https://nvidia.github.io/libnvidia-container/gpgkey | root gpg --dearmor --yes -o $key &&
      curl -fsSL $deb_list | sed 's#deb https://#deb [signed-by=$key] https://#g' |
      root tee /etc/apt/sources.list.d/nvidia-container-toolkit.list && root apt-get update &&
      root apt-get install -y nvidia-container-toolkit"; gone='sudo apt-get purge nvidia-container-toolkit' ;;
  zypper) toolkit="root zypper addrepo $rpm_list && root zypper --gpg-auto-import-keys install -y nvidia-container-toolkit"
    gone='sudo zypper remove nvidia-container-toolkit' ;;
  *) toolkit="curl -fsSL $rpm_list | root tee /etc/yum.repos.d/nvidia-container-toolkit.repo &&
      root dnf install -y nvidia-container-toolkit"; gone='sudo dnf remove nvidia-container-toolkit' ;;
esac
step 'NVIDIA Container Toolkit' 'command -v nvidia-ctk' "$toolkit" "$gone"
if command -v docker >/dev/null 2>&1; then
  step 'Docker: nvidia' 'docker info --format "{{json .Runtimes}}" | grep -q nvidia' \\
    'root nvidia-ctk runtime configure --runtime=docker && root systemctl restart docker' \\
    'remove "nvidia" from /etc/docker/daemon.json and restart docker'
elif command -v containerd >/dev/null 2>&1; then
  step 'containerd: nvidia' 'grep -qs nvidia-container-runtime /etc/containerd/config.toml /etc/containerd/conf.d/*.toml' \\
    'root nvidia-ctk runtime configure --runtime=containerd && root systemctl restart containerd' \\
    'remove "nvidia" from the files in /etc/containerd and restart containerd'
fi
"""

# The names that follow from the distribution: $package installs the driver, $hold keeps it, $rebuild renews the RAM disk.
_DISTRIBUTION: Final = """
# shellcheck source=/dev/null
. "${OS_RELEASE:-/etc/os-release}"
VERSION_ID=${VERSION_ID:-}
case "$ID ${ID_LIKE:-}" in
  *debian* | *ubuntu*) family=apt ;;
  *suse*) family=zypper ;;
  *rhel* | *fedora* | *centos*) family=dnf ;;
  *) family=none ;;
esac
branch=@BRANCH@; flavour=@FLAVOUR@; machine=$(uname -m); [ "$machine" != aarch64 ] || machine=sbsa
repository=https://developer.download.nvidia.com/compute/cuda/repos
package=cuda-drivers; [ "$flavour" != open ] || package=nvidia-open
known=true; add=true
case "$family" in
  apt)
    install='root apt-get install -y'; remove='sudo apt-get purge'
    has() { dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q ^ii; }
    parts() { dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' '*nvidia*' 2>/dev/null | awk '/^ii/ && !/container/ {print $2}'; }
    # Held one by one: an upgrade of a library alone parts it from the module just as well.
    held() { [ -n "$(parts)" ] && ! parts | grep -qvxF -e "$(apt-mark showhold)"; }
    hold='root apt-mark hold $(parts)'; unhold='sudo apt-mark unhold $(apt-mark showhold | grep nvidia)'
    rebuild='root update-initramfs -u'
    if [ "$ID" = ubuntu ]; then
      package=nvidia-driver-$branch-server; [ "$flavour" != open ] || package=$package-open
    else
      known='apt-cache show nvidia-open'; list=$repository/debian${VERSION_ID%%.*}/$machine
      add="curl -fsSLO $list/cuda-keyring_1.1-1_all.deb && root dpkg -i cuda-keyring_1.1-1_all.deb && root apt-get update"
    fi ;;
  zypper)
    install='root zypper install -y'; remove='sudo zypper remove'
    has() { rpm -q "$1"; }
    held() { zypper locks | grep -q "$package"; }
    parts() { rpm -qa '*nvidia*' | grep -v container; }
    hold="root zypper addlock $package"; unhold="sudo zypper removelock $package"
    rebuild='root dracut --force'
    system=$(case "$ID" in *leap* | *tumbleweed*) echo opensuse ;; *) echo sles ;; esac)${VERSION_ID%%.*}
    known='zypper repos --uri | grep -q compute/cuda/repos'
    add="root zypper addrepo $repository/$system/$machine/cuda-$system.repo && root zypper --gpg-auto-import-keys refresh" ;;
  *)
    install='root dnf install -y'; remove='sudo dnf remove'
    has() { rpm -q "$1"; }
    parts() { rpm -qa '*nvidia*' | grep -v container; }
    held() { dnf versionlock list | grep -q nvidia; }
    hold="root dnf install -y 'dnf-command(versionlock)' && root dnf versionlock add '*nvidia*'"
    unhold="sudo dnf versionlock delete '*nvidia*'"
    # The RAM disk and the kernel's own line: either would load it before modprobe.d is read.
    rebuild='root grubby --update-kernel=ALL --args="rd.driver.blacklist=nouveau modprobe.blacklist=nouveau"; root dracut --force'
    system=rhel${VERSION_ID%%.*}; [ "$ID" != fedora ] || system=fedora$VERSION_ID
    known='dnf repolist | grep -q ^cuda'
    add="curl -fsSL $repository/$system/$machine/cuda-$system.repo | root tee /etc/yum.repos.d/cuda-$system.repo" ;;
esac
"""

_DRIVER: Final = """
if [ "$family" = none ]; then tell no @UNKNOWN@; missing=3; fi
running() { nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1 | cut -d. -f1; }
if [ "$family" != none ]; then
  if ! eval '[ "$(running)" -ge "$branch" ]' >/dev/null 2>&1; then
    step @REPOSITORY@ "$known" "$add" ''
    step @DRIVER@ "has $package" "$install $package" "$remove $package"
    reboot=$yes; planned=1
  else
    tell ok @DRIVER@; planned=0
  fi
  # An unattended upgrade would part the libraries from the module that is loaded.
  if [ "$planned" = 1 ] || [ -n "$(parts)" ]; then step @HOLD@ held "$hold" "$unhold"; fi
  if grep -qs '^nouveau ' "${MODULES:-/proc/modules}"; then
    conf=/etc/modprobe.d/blacklist-nouveau.conf
    step @NOUVEAU@ 'modprobe --showconfig | grep -qx "blacklist nouveau"' \\
      "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | root tee $conf; $rebuild" "sudo rm $conf, and: $rebuild"
    reboot=$yes
  fi
fi
if command -v mokutil >/dev/null 2>&1 && mokutil --sb-state 2>/dev/null | grep -q enabled; then
  tell note @SECURE@
  [ "$ID" != ubuntu ] || tell note @SIGNED@
fi
if command -v nvidia-smi >/dev/null 2>&1; then
  step @PERSISTENCE@ 'nvidia-smi -q | grep -q "Persistence Mode.*Enabled"' 'root nvidia-smi -pm 1' 'sudo nvidia-smi -pm 0'
fi
@TOOLS@
"""

# What a build of the engine needs; NVIDIA's compiler is not installed here, as each distribution has its own way to it.
_BUILD_TOOLS: Final = """
tools='git cmake gcc-c++ make'; [ "$family" != apt ] || tools='git cmake build-essential'
[ "$family" = none ] || step @PROGRAMS@ 'command -v git && command -v cmake && command -v c++' "$install $tools" ''
if command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then tell ok @NVCC@; else tell no @NVCC@; missing=3; fi
"""

_VENV: Final = """
[ "$family" != apt ] || step 'python3-venv' 'python3 -c "import ensurepip"' "$install python3-venv" "$remove python3-venv"
"""

_FABRIC: Final = """
fabric=nvidia-fabricmanager; [ "$ID" != ubuntu ] || fabric=$fabric-$branch
[ "$family" = none ] || step @FABRIC@ 'systemctl is-active nvidia-fabricmanager' \\
  "$install $fabric && root systemctl enable --now nvidia-fabricmanager" "sudo systemctl disable --now nvidia-fabricmanager"
"""


def _tools(service: Service, place: str) -> str:
    """Return what holds the machine to what the installation and the conversion call."""
    is_on_host = place in ("local", "systemd", "slurm")
    made = service.weights.lines if service.weights is not None and service.weights.is_made else ()
    is_built = (service.build is not None and is_on_host) or any("cmake --build" in line for line in made)
    has_venv = (bool(service.packages) and is_on_host) or any("-m venv" in line for line in made)
    return (_VENV.strip("\n") + "\n" if has_venv else "") + (
        _BUILD_TOOLS.strip("\n") if is_built else "tell note @WHEELS@"
    )


def _driver(device: Device, *, tools: str, has_switch: bool) -> list[str]:
    branch, is_open = driver_branch(device), has_open_modules(device)
    words = {
        "UNKNOWN": say("prepare.unknown_distribution"),
        "REPOSITORY": say("prepare.repository"),
        "DRIVER": say(
            "deploy.prepare_driver",
            branch=branch,
            modules=say("deploy.modules_open" if is_open else "deploy.modules_closed"),
        ),
        "HOLD": say("deploy.prepare_hold"),
        "NOUVEAU": say("deploy.prepare_nouveau"),
        "SECURE": say("deploy.prepare_secure_boot"),
        "SIGNED": say("prepare.signed", branch=branch, flavour="-open" if is_open else ""),
        "PERSISTENCE": say("deploy.prepare_persistence"),
        "WHEELS": say("prepare.wheels"),
        "PROGRAMS": say("prepare.build_tools"),
        "NVCC": say("prepare.nvcc"),
        "FABRIC": say("prepare.fabric"),
    }
    text = _DISTRIBUTION.strip("\n") + _DRIVER + (_FABRIC if has_switch else "")
    text = text.replace("@TOOLS@", tools)
    text = text.replace("@BRANCH@", str(branch)).replace("@FLAVOUR@", "open" if is_open else "closed")
    for name, said in words.items():
        text = text.replace(f"@{name}@", shell_words([said]))
    return [line for line in _text(text) if line]


def _has_switch(service: Service) -> bool:
    """Whether NVSwitches join the devices, which need their manager: boards of eight."""
    devices = service.candidate.cluster.node.devices
    return len(devices) >= _SWITCHED and devices[0].has_nvlink and devices[0].form_factor.startswith("SXM")


def _checks(service: Service, place: str) -> list[str]:
    """Return what is looked at and not changed: memory, disk, C library, compiler."""
    estimate = service.plan.estimate
    made = service.weights.disk_bytes if service.weights is not None else 0.0
    here = 2 * (estimate.storage.checkpoints_bytes or 0.0) + (estimate.storage.data_bytes or 0.0) + made
    fetched = 0.0 if service.model_folder else estimate.storage.weights_bytes
    host, folder = service.host_memory_bytes, f"models--{service.candidate.model.name.replace('/', '--')}"
    lines = [
        "available=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)",
        "# A control group's limit binds before the machine's memory does, and free(1) does not show it.",
        'limit=$(cat "/sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -d: -f3)/memory.max" 2>/dev/null || echo max)',
        'if [ "$limit" != max ] && [ $((limit / 1024)) -lt "$available" ]; then available=$((limit / 1024)); fi',
        _enough("$available", -(-host // 1024), _needs("memory", host)),
        "cache=${HF_HOME:-$HOME/.cache/huggingface}",
        'while [ ! -d "$cache" ]; do cache=$(dirname "$cache"); done',
        f"fetched={-(-round(fetched) // 1024)}; here={-(-round(here) // 1024)}",
        f'if [ -d "$cache/hub/"{shell_words([folder])} ]; then fetched=0; fi',
        'if [ "$(df --output=source "$cache" | tail -n 1)" = "$(df --output=source . | tail -n 1)" ]; then',
        "  here=$((here + fetched)); fetched=0",
        "fi",
        _disk('"$cache"', "fetched"),
        _disk(".", "here"),
    ]
    rate = estimate.storage.read_bytes_per_s
    if rate is not None:
        lines.append(f"tell note {shell_words([say('prepare.read_rate', rate=f'{rate / GB:.2f} GB/s')])}")
    if service.packages and place in ("local", "systemd", "slurm"):
        wanted = _GLIBC.get(service.candidate.engine, _GLIBC_OF_TORCH)
        lines += [
            "libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)",
            (
                f'if [ "$(printf \'%s\\n\' {wanted} "${{libc:-0}}" | sort -V | head -n 1)" = {wanted} ]; then '
                f"tell ok {shell_words([say('prepare.libc', version=wanted)])}; "
                f"else tell no {shell_words([say('prepare.libc', version=wanted)])}; missing=3; fi"
            ),
        ]
        if service.candidate.engine == "deepspeed" and service.candidate.offload.optimizer:
            text = shell_words([say("prepare.compiler")])
            lines.append(f"if command -v nvcc >/dev/null; then tell ok {text}; else tell no {text}; missing=3; fi")
    return lines


def _disk(folder: str, variable: str) -> str:
    text = shell_words([say("prepare.disk")])
    return (
        f'if [ "${variable}" -gt 0 ]; then free=$(df --output=avail -k {folder} | tail -n 1); '
        f'if [ "$free" -ge "${variable}" ]; then state=ok; else state=no; missing=3; fi; '
        f'tell "$state" "$(printf {text} "$(({variable} / 1048576))" {folder})"; fi'
    )


def _enough(held: str, least: int, text: str) -> str:
    return f'if [ "{held}" -ge {least} ]; then tell ok "{text}"; else tell no "{text}"; missing=3; fi'


def _needs(what: str, amount: float) -> str:
    return say(f"deploy.prepare_{what}", amount=f"{amount / GIB:.1f} GiB")


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
        f"  tell note {shell_words([say('prepare.power_lasts')])}",
        "fi",
    ]
