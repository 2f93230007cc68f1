"""Accelerators are read the same through nvidia-ml-py and from nvidia-smi; what is not told is None."""

from __future__ import annotations

import os
import stat
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import OutsideError
from tonnage.probe import nvml
from tonnage.units import MIB


class FakeError(Exception):
    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


def make_nvml(*, init=None, display=1, model=0, as_bytes=False):
    """A stand-in for the pynvml module with one RTX 4080 that drives a screen."""

    def fail(value):
        raise FakeError(value)

    name = "NVIDIA GeForce RTX 4080"
    return types.SimpleNamespace(
        NVMLError=FakeError,
        NVML_ERROR_LIBRARY_NOT_FOUND=12,
        nvmlInit=lambda: None if init is None else fail(init),
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda h: name.encode() if as_bytes else name,
        nvmlDeviceGetMemoryInfo=lambda h: types.SimpleNamespace(total=16376 * MIB, free=14800 * MIB, used=1576 * MIB),
        nvmlDeviceGetCudaComputeCapability=lambda h: (8, 9),
        nvmlDeviceGetDisplayActive=lambda h: display if display is not None else fail(3),
        nvmlDeviceGetCurrentDriverModel=lambda h: model if model is not None else fail(3),
        nvmlSystemGetDriverVersion=lambda: "580.95.05",
    )


SMI = (
    "0, NVIDIA GeForce RTX 4080, GPU-1, 16376, 14800, 580.95.05, 8.9, Enabled, WDDM, 4, 16\n"
    "1, NVIDIA A2, GPU-2, 15356, 15000, 580.95.05, 8.6, Disabled, [N/A], [N/A], 8\n"
)


@pytest.mark.parametrize("as_bytes", [False, True])
def test_free_memory_counts_not_total(as_bytes):
    (sample,) = nvml.read_with_nvml(make_nvml(as_bytes=as_bytes))
    assert sample.name == "NVIDIA GeForce RTX 4080"
    assert (sample.memory_bytes, sample.free_bytes, sample.taken_bytes) == (16376 * MIB, 14800 * MIB, 1576 * MIB)
    assert (sample.drives_display, sample.is_wddm, sample.compute_capability) == (True, True, "8.9")


def test_both_ways_read_the_same():
    (by_module,) = nvml.read_with_nvml(make_nvml())
    by_program = nvml.parse_smi(SMI)[0]
    for name in ("name", "memory_bytes", "free_bytes", "driver", "compute_capability", "drives_display", "is_wddm"):
        assert getattr(by_module, name) == getattr(by_program, name), name


def test_what_a_card_does_not_tell_is_unknown():
    (sample,) = nvml.read_with_nvml(make_nvml(display=None, model=None))
    assert (sample.drives_display, sample.is_wddm, sample.pcie_generation, sample.uuid) == (None, None, None, None)
    assert nvml.parse_smi(SMI)[1].is_wddm is None
    assert nvml.parse_smi(SMI)[1].pcie_generation is None


def test_no_driver_is_no_card_but_a_broken_one_is_said():
    assert nvml.read_with_nvml(make_nvml(init=12)) == ()
    with pytest.raises(OutsideError, match="does not answer"):
        nvml.read_with_nvml(make_nvml(init=18))


def write_program(folder: Path, script: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.skipif(os.name == "nt", reason="platform: the stand-in is a shell script")
def test_the_program_is_run_and_an_old_one_asked_for_less(tmp_path):
    program = write_program(tmp_path, f'case "$1" in *compute_cap*) exit 2;; esac\nprintf "{SMI.splitlines()[0]}\\n"')
    (sample,) = nvml.read_with_smi(program)
    assert sample.name == "NVIDIA GeForce RTX 4080"
    assert sample.compute_capability is None


@pytest.mark.skipif(os.name == "nt", reason="platform: the stand-in is a shell script")
def test_a_program_that_fails_is_an_outside_error(tmp_path):
    program = write_program(tmp_path, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    with pytest.raises(OutsideError, match="version mismatch") as caught:
        nvml.read_with_smi(program)
    assert caught.value.exit_code == 4


@given(st.text(max_size=200))
def test_any_print_is_read(text):
    for sample in nvml.parse_smi(text):
        assert sample.memory_bytes >= 0
