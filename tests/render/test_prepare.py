"""The script that prepares a machine: it shows, changes nothing by itself, and finds done what is done."""

import os
import subprocess
from dataclasses import replace

import pytest

from tonnage import api
from tonnage.hardware.catalogue import find_device
from tonnage.plan.request import make_request
from tonnage.render.prepare import driver_branch, has_open_modules, prepare_script
from tonnage.render.services import service_of


@pytest.fixture(scope="module")
def service():
    return service_of(api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"])).plans[0])


def run(text, folder, *arguments, **programs):
    """Run a script with stand-ins for the programs that it may call; each notes that it was called."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    for name in ("sudo", "apt-get", "apt-mark", "dnf", "nvidia-smi", "docker", "nvidia-ctk", "systemctl", "mokutil"):
        body = programs.get(name.replace("-", "_"))
        stand_in = place / name
        if body is None:
            stand_in.unlink(missing_ok=True)
            continue
        stand_in.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/called\n{body}\n')
        stand_in.chmod(0o755)
    (folder / "prepare.sh").write_text(text)
    env = {**os.environ, "PATH": f"{place}:/usr/bin:/bin"}
    said = subprocess.run(
        ["bash", "prepare.sh", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    called = folder / "called"
    return said, called.read_text() if called.exists() else ""


def test_without_yes_nothing_is_done(service, tmp_path):
    said, called = run(
        prepare_script(service, "local").text, tmp_path, apt_get="exit 0", apt_mark="true", sudo="exit 9"
    )
    assert "todo  NVIDIA driver 580 or newer, open kernel modules" in said.stdout
    assert said.returncode == 3, said.stderr
    assert "install" not in called
    assert "sudo" not in called


def test_with_a_driver_that_is_new_enough_nothing_is_to_do(service, tmp_path):
    text = prepare_script(service, "local").text
    held = "echo nvidia-open; echo nvidia-driver-580-server-open"
    smi = "case \"$*\" in *driver_version*) echo 580.95.05;; -q) echo 'Persistence Mode : Enabled';; esac"
    said, called = run(text, tmp_path, "--yes", nvidia_smi=smi, apt_mark=held, apt_get="exit 9", sudo="exit 9")
    assert "ok    NVIDIA driver 580" in said.stdout
    assert "install" not in called


def test_an_old_driver_is_replaced_only_with_yes_and_the_undo_is_told(service, tmp_path):
    text = prepare_script(service, "local").text
    smi = "echo 535.154.05"
    said, called = run(text, tmp_path, "--yes", nvidia_smi=smi, apt_get="exit 0", apt_mark="true", sudo='"$@"')
    assert "apt-get install -y" in called
    assert "undo: sudo apt-get purge" in said.stdout
    assert "restart the machine" in said.stdout


def test_too_little_memory_is_told(service, tmp_path):
    text = prepare_script(replace(service, host_memory_bytes=1 << 60), "local").text
    said, _ = run(text, tmp_path)
    assert said.returncode == 3
    assert "no    host memory: 1073741824.0 GiB available" in said.stdout


def test_a_power_cap_has_its_undo(service):
    plan = service.plan
    capped = replace(plan, request=replace(plan.request, limits=replace(plan.request.limits, max_power_watts=350.0)))
    text = prepare_script(replace(service, plan=capped), "local").text
    assert "nvidia-smi -pl 350" in text
    assert "power.default_limit" in text
    assert "-pl" not in prepare_script(service, "local").text


def test_the_driver_follows_the_architecture():
    assert has_open_modules(find_device("rtx-4090"))
    assert not has_open_modules(find_device("v100-sxm2-32gb"))
    assert driver_branch(find_device("rtx-5090")) >= 580
