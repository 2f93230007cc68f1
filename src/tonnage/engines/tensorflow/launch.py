"""Candidate -> TensorFlow held to the memory of the planned device. A template, and no more: no model is trained.

TensorFlow reads no variable such as TF_GPU_MEMORY_LIMIT; a logical device with `memory_limit` does it
(tensorflow.org/api_docs/python/tf/config/set_logical_device_configuration), in MB of 2**20 bytes.
"""

from __future__ import annotations

from typing import Final

from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate
from tonnage.units import MIB

__all__ = ["launch"]

SCRIPT: Final = "limit_memory.py"
_BODY: Final = '''"""Holds every GPU of this process to a limit; import it before anything that uses TensorFlow's devices."""

import sys

import tensorflow as tf


def limit(mebibytes):
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=mebibytes)])


if __name__ == "__main__":
    limit(int(sys.argv[1]))
    print(tf.config.list_logical_devices("GPU"))
'''


def launch(candidate: Candidate) -> Launch:
    """Return the script with the device's memory as the limit."""
    devices = candidate.cluster.node.devices
    limit = devices[0].memory_bytes // MIB if devices else 0
    return Launch(argv=("python", SCRIPT, str(limit)), files={SCRIPT: _BODY})
