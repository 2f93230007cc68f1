"""The script that prepares a machine: it shows, changes nothing by itself, and finds done what is done."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage import api
from tonnage.hardware.catalogue import find_device
from tonnage.messages import choose_language
from tonnage.plan.request import make_request
from tonnage.render.prepare import driver_branch, has_open_modules, prepare_script
from tonnage.render.services import service_of

# Stand-ins for a machine's programs. What they change lies in $STATE; `changed` notes each change.
PROGRAMS = {
    "sudo": 'exec "$@"',
    "apt-get": 'case $1 in install) change "$@"; shift 2; add "$@" ;; *) change "$@" ;; esac',
    "dpkg": 'change "$@"; touch "$STATE/repository"',
    "dpkg-query": """
for last in "$@"; do :; done
while read -r one; do
  case $one in $last) case "$3" in *Package*) echo "ii  $one" ;; *) printf 'ii ' ;; esac ;; esac
done < "$STATE/installed" """,
    "apt-cache": '[ -e "$STATE/repository" ]',
    "apt-mark": 'case $1 in showhold) cat "$STATE/held" ;; *) change "$@"; shift; printf "%s\\n" "$@" >> "$STATE/held" ;; esac',
    "rpm": """
case $1 in
  -qa) grep nvidia "$STATE/installed" ;;
  *) grep -qx "$2" "$STATE/installed" ;;
esac""",
    "dnf": """
case "$*" in
  repolist) [ ! -e "$STATE/repository" ] || echo "cuda-rhel9-x86_64  cuda" ;;
  "versionlock list") cat "$STATE/held" ;;
  versionlock*) change "$@"; cat "$STATE/installed" >> "$STATE/held" ;;
  *command*) change "$@" ;;
  *) change "$@"; shift 2; add "$@" ;;
esac""",
    "zypper": """
case "$*" in
  repos*) [ ! -e "$STATE/repository" ] || echo https://developer.download.nvidia.com/compute/cuda/repos/sles15 ;;
  locks) cat "$STATE/held" ;;
  addlock*) change "$@"; shift; printf "%s\\n" "$@" >> "$STATE/held" ;;
  addrepo*) change "$@"; touch "$STATE/repository" ;;
  *install*) change "$@"; for one in "$@"; do case $one in nvidia* | cuda*) add "$one" ;; esac; done ;;
  *) change "$@" ;;
esac""",
    "curl": 'change "$@"; case "$*" in *cuda/repos*) touch "$STATE/repository" ;; esac',
    "tee": 'change "$@"; cat >> "$STATE/files"; case "$*" in *nouveau*) touch "$STATE/blacklist" ;; esac',
    "gpg": 'change "$@"; cat > /dev/null',
    "update-initramfs": 'change "$@"',
    "dracut": 'change "$@"',
    "grubby": 'change "$@"',
    "modprobe": '[ ! -e "$STATE/blacklist" ] || echo "blacklist nouveau"',
    "systemctl": 'case $1 in is-active) [ -e "$STATE/active" ] ;; *) change "$@"; case "$*" in *fabric*) touch "$STATE/active" ;; esac ;; esac',
    "docker": 'cat "$STATE/runtimes"',
    "nvidia-ctk": 'change "$@"; echo nvidia > "$STATE/runtimes"',
    "getconf": "echo glibc 2.39",
    "python3": "exit 0",
    "mokutil": "echo SecureBoot enabled",
}
SMI = """
case "$*" in
  *driver_version*) cat "$STATE/driver" ;;
  *power.limit*) cat "$STATE/watts" ;;
  "-q") echo "Persistence Mode : $(cat "$STATE/persistence")" ;;
  "-pm 1") change "$@"; echo Enabled > "$STATE/persistence" ;;
  "-pl "*) change "$@"; echo "$2.00" > "$STATE/watts" ;;
esac"""
SYSTEMS = {
    "ubuntu": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n',
    "debian": 'ID=debian\nVERSION_ID="13"\n',
    "rhel": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n',
    "fedora": "ID=fedora\nVERSION_ID=43\n",
    "suse": 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.7"\n',
    "other": "ID=arch\n",
}


class Machine:
    """A machine whose programs are stand-ins; nothing of the real one can be changed through them."""

    def __init__(self, folder: Path, system: str, driver: str = "") -> None:
        self.state, self.bin = folder / "state", folder / "bin"
        self.folder = folder
        for place in (self.state, self.bin):
            place.mkdir()
        for name in ("installed", "held", "changed", "files", "runtimes"):
            (self.state / name).touch()
        (self.state / "watts").write_text("450.00\n")
        (self.state / "persistence").write_text("Disabled\n")
        (folder / "os-release").write_text(SYSTEMS[system])
        (folder / "modules").write_text("nouveau 1 0 - Live\n")
        for name, body in PROGRAMS.items():
            self.program(name, body)
        if driver:
            self.restarted(driver)

    def program(self, name: str, body: str) -> None:
        head = f"""#!/bin/bash
change() {{ echo "{name} $*" >> "$STATE/changed"; }}
add() {{ printf '%s\\n' "$@" >> "$STATE/installed"; }}
"""
        (self.bin / name).write_text(head + body + "\n")
        (self.bin / name).chmod(0o755)

    def restarted(self, driver: str) -> None:
        (self.state / "driver").write_text(driver + "\n")
        (self.folder / "modules").write_text("nvidia 1 0 - Live\n")
        self.program("nvidia-smi", SMI)

    def run(self, text: str, *arguments: str) -> tuple[subprocess.CompletedProcess, list[str]]:
        """Return what the script said, and what it changed."""
        (self.state / "changed").write_text("")
        (self.folder / "prepare.sh").write_text(text)
        env = {
            "PATH": f"{self.bin}:/usr/bin:/bin", "STATE": str(self.state), "HOME": str(self.folder),
            "OS_RELEASE": str(self.folder / "os-release"), "MODULES": str(self.folder / "modules"),
            "CUDA_HOME": str(self.folder / "cuda"),
        }  # fmt: skip
        said = subprocess.run(
            ["bash", "prepare.sh", *arguments], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        return said, (self.state / "changed").read_text().splitlines()


@pytest.fixture(scope="module")
def service():
    plan = api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ["vllm"]})).plans[0]
    return small(service_of(plan))


def small(service):
    """Ask for no more memory and disk than any machine has."""
    storage = replace(service.plan.estimate.storage, weights_bytes=1e6, checkpoints_bytes=None)
    plan = replace(service.plan, estimate=replace(service.plan.estimate, storage=storage))
    return replace(service, plan=plan, host_memory_bytes=1 << 20, weights=None)


@pytest.mark.parametrize("system", ["ubuntu", "debian", "rhel", "fedora", "suse"])
def test_it_shows_then_does_then_finds_everything_done(service, tmp_path, system):
    text = prepare_script(service, "compose").text
    machine = Machine(tmp_path, system)
    said, changed = machine.run(text)
    assert said.returncode == 3, said.stderr
    assert changed == [], "shown only"
    assert "todo  NVIDIA driver 580 or newer, open kernel modules" in said.stdout

    said, changed = machine.run(text, "--yes")
    assert said.returncode == 0, said.stderr
    assert any("install" in one and "nvidia" in one for one in changed)
    assert "restart the machine" in said.stdout

    said, changed = machine.run(text, "--yes")
    assert (said.returncode, changed) == (0, []), "before the restart a second run changes nothing"
    assert "restart the machine" in said.stdout

    machine.restarted("580.95.05")
    said, changed = machine.run(text, "--yes")
    assert changed == ["nvidia-smi -pm 1"]
    said, changed = machine.run(text, "--yes")
    assert (said.returncode, changed) == (0, [])
    assert "restart the machine" not in said.stdout
    assert not any(line.startswith(("todo", "do ", "no ")) for line in said.stdout.splitlines())


EXPECTED = {
    "ubuntu": ["apt-get install -y nvidia-driver-580-server-open", "apt-mark hold nvidia-driver-580-server-open",
               "update-initramfs -u"],
    "debian": ["dpkg -i cuda-keyring_1.1-1_all.deb", "apt-get install -y nvidia-open", "update-initramfs -u"],
    "rhel": ["curl -fsSL https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/cuda-rhel9.repo",
             "dnf install -y nvidia-open", "dnf versionlock add *nvidia*",
             "grubby --update-kernel=ALL --args=rd.driver.blacklist=nouveau modprobe.blacklist=nouveau", "dracut --force"],
    "fedora": ["curl -fsSL https://developer.download.nvidia.com/compute/cuda/repos/fedora43/x86_64/cuda-fedora43.repo"],
    "suse": ["zypper addrepo https://developer.download.nvidia.com/compute/cuda/repos/sles15/x86_64/cuda-sles15.repo",
             "zypper install -y nvidia-open", "zypper addlock nvidia-open", "dracut --force"],
}  # fmt: skip


@pytest.mark.parametrize("system", EXPECTED)
def test_each_distribution_has_its_own_way(service, tmp_path, system):
    machine = Machine(tmp_path, system)
    machine.program("uname", "echo x86_64")
    _, changed = machine.run(prepare_script(service, "local").text, "--yes")
    assert [one for one in EXPECTED[system] if one not in changed] == []
    assert "blacklist nouveau\noptions nouveau modeset=0\n" in (machine.state / "files").read_text()


def test_a_card_without_open_modules_gets_the_closed_ones(tmp_path):
    plan = api.plan(make_request("Qwen/Qwen3-0.6B", gpus=["v100-sxm2-32gb"], limits={"engines": ["llama.cpp"]})).plans[
        0
    ]
    _, changed = Machine(tmp_path, "ubuntu").run(prepare_script(small(service_of(plan)), "local").text, "--yes")
    assert "apt-get install -y nvidia-driver-580-server" in changed


def test_a_distribution_that_is_not_known_is_left_alone(service, tmp_path):
    said, changed = Machine(tmp_path, "other").run(prepare_script(service, "local").text, "--yes")
    assert said.returncode == 3
    assert "no package of the driver is known for this distribution" in said.stdout
    assert changed == []


def test_a_driver_from_elsewhere_that_is_new_enough_is_left_alone(service, tmp_path):
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    (machine.state / "persistence").write_text("Enabled\n")
    said, changed = machine.run(prepare_script(service, "local").text, "--yes")
    assert "ok    NVIDIA driver 580" in said.stdout
    assert (said.returncode, changed) == (0, [])


def test_an_old_driver_is_replaced_only_with_yes_and_the_undo_is_told(service, tmp_path):
    machine = Machine(tmp_path, "ubuntu", "535.154.05")
    said, changed = machine.run(prepare_script(service, "local").text, "--yes")
    assert "apt-get install -y nvidia-driver-580-server-open" in changed
    assert "undo: sudo apt-get purge nvidia-driver-580-server-open" in said.stdout
    assert "restart the machine" in said.stdout


def test_a_part_that_is_not_held_is_held(service, tmp_path):
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    (machine.state / "installed").write_text(
        "nvidia-driver-580-server-open\nlibnvidia-compute-580-server\nnvidia-container-toolkit\n"
    )
    (machine.state / "held").write_text("nvidia-driver-580-server-open\n")
    _, changed = machine.run(prepare_script(service, "local").text, "--yes")
    assert "apt-mark hold nvidia-driver-580-server-open libnvidia-compute-580-server" in changed


def test_an_engine_that_is_built_asks_for_its_compilers(service, tmp_path):
    plan = api.plan(make_request("Qwen/Qwen3-0.6B", gpus=["rtx-4090"], limits={"engines": ["llama.cpp"]})).plans[0]
    text = prepare_script(small(service_of(plan)), "local").text
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    for name in ("git", "cmake", "c++"):
        machine.program(name, ":")
    said, _ = machine.run(text, "--yes")
    assert (said.returncode, "no    nvcc of NVIDIA's CUDA toolkit" in said.stdout) == (3, True), said.stderr
    machine.program("nvcc", ":")
    said, changed = machine.run(text, "--yes")
    assert (said.returncode, changed) == (0, [])
    assert "no toolkit is installed" not in said.stdout
    assert "nvcc of NVIDIA's" not in prepare_script(service, "local").text


def test_a_python_without_venv_gets_it(service, tmp_path):
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    machine.program("python3", "exit 1")
    _, changed = machine.run(prepare_script(service, "local").text, "--yes")
    assert "apt-get install -y python3-venv" in changed


def test_boards_with_switches_get_their_manager(tmp_path):
    plan = api.plan(make_request("Qwen/Qwen3-32B", gpus=["h100-sxm5-80gb:8"], limits={"engines": ["vllm"]})).plans[0]
    text = prepare_script(small(service_of(plan)), "local").text
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    _, changed = machine.run(text, "--yes")
    assert "apt-get install -y nvidia-fabricmanager-580" in changed
    assert "systemctl enable --now nvidia-fabricmanager" in changed
    _, changed = machine.run(text, "--yes")
    assert not any("fabricmanager" in one and "install" in one for one in changed)


def test_secure_boot_is_told(service, tmp_path):
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    text = prepare_script(service, "local").text
    said, _ = machine.run(text)
    assert "MOK" in said.stdout
    assert "linux-modules-nvidia-580-server-open-$(uname -r)" in said.stdout
    machine.program("mokutil", "echo SecureBoot disabled")
    assert "MOK" not in machine.run(text)[0].stdout


def test_containers_get_the_toolkit(service, tmp_path):
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    (machine.bin / "nvidia-ctk").unlink()
    said, _ = machine.run(prepare_script(service, "compose").text)
    assert "todo  NVIDIA Container Toolkit" in said.stdout
    assert "Container Toolkit" not in machine.run(prepare_script(service, "local").text)[0].stdout


def test_too_little_memory_or_disk_is_told(service, tmp_path):
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    said, _ = machine.run(prepare_script(replace(service, host_memory_bytes=1 << 60), "local").text)
    assert said.returncode == 3
    assert "no    host memory: 1073741824.0 GiB available" in said.stdout
    storage = replace(service.plan.estimate.storage, weights_bytes=float(1 << 60))
    plan = replace(service.plan, estimate=replace(service.plan.estimate, storage=storage))
    text = prepare_script(replace(service, plan=plan), "local").text
    said, _ = machine.run(text)
    assert "no    disk: 1073741824 GiB free at" in said.stdout
    (tmp_path / ".cache/huggingface/hub/models--Qwen--Qwen3-8B").mkdir(parents=True)
    assert "1073741824 GiB" not in machine.run(text)[0].stdout, "a model that is there needs no space"


@pytest.mark.parametrize(
    ("engine", "version", "state"), [("vllm", "2.31", "ok"), ("sglang", "2.31", "no"), ("sglang", "2.34", "ok")]
)
def test_the_c_library_is_held_to_the_wheels(service, tmp_path, engine, version, state):
    candidate = replace(service.plan.estimate.candidate, engine=engine)
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    machine.program("getconf", f"echo glibc {version}")
    said, _ = machine.run(prepare_script(replace(service, own=candidate), "local").text)
    wanted = "2.28" if engine == "vllm" else "2.34"
    assert f"{state:<5} C library {wanted} or newer" in said.stdout


def test_a_power_cap_has_its_undo_and_is_set_once(service, tmp_path):
    plan = service.plan
    capped = replace(plan, request=replace(plan.request, limits=replace(plan.request.limits, max_power_watts=350.0)))
    text = prepare_script(replace(service, plan=capped), "local").text
    machine = Machine(tmp_path, "ubuntu", "580.95.05")
    said, changed = machine.run(text, "--yes")
    assert "nvidia-smi -pl 350" in changed
    assert "undo: sudo nvidia-smi -pl $(nvidia-smi --query-gpu=power.default_limit" in said.stdout
    assert machine.run(text, "--yes")[1] == []
    assert "-pl" not in prepare_script(service, "local").text


def test_the_driver_follows_the_architecture():
    assert has_open_modules(find_device("rtx-4090"))
    assert not has_open_modules(find_device("v100-sxm2-32gb"))
    assert driver_branch(find_device("rtx-5090")) >= 580


def test_another_makers_driver_is_not_touched(tmp_path):
    plan = api.plan(make_request("Qwen/Qwen3-8B", gpus=["mi300x"], limits={"engines": ["vllm"]})).plans[0]
    said, changed = Machine(tmp_path, "ubuntu").run(prepare_script(small(service_of(plan)), "local").text, "--yes")
    assert "AMD" in said.stdout
    assert changed == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_is_shell_in_both_languages(service, language):
    try:
        choose_language(language)
        text = prepare_script(service, "compose").text
    finally:
        choose_language("en")
    subprocess.run(["bash", "-n"], input=text.encode(), check=True)
    assert ("驱动" in text) is (language == "zh")
