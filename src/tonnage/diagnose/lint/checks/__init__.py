"""The checks that need structure, written out: each names the rules that it finds and the kinds it looks at."""

from __future__ import annotations

from typing import Final

from tonnage.diagnose.lint.checks import (
    configs,
    containers,
    environment,
    launchers,
    monitoring,
    secrets,
    trainer,
    units,
)
from tonnage.diagnose.lint.checks.types import Check
from tonnage.diagnose.lint.types import Kind

__all__ = ["CHECKS"]

_PYTHON: Final = frozenset((Kind.PYTHON,))
_COMMANDS: Final = frozenset(
    (Kind.PYTHON, Kind.SHELL, Kind.DOCKERFILE, Kind.COMPOSE, Kind.KUBERNETES, Kind.UNIT, Kind.SETTINGS)
)
_CODE: Final = frozenset(Kind) - {Kind.PROSE}

CHECKS: Final = (
    Check(
        rules=(
            "trainer-fp8-argument", "trainer-process-argument", "trainer-optimizer-argument", "trainer-renamed-argument",
            "trainer-unknown-argument", "trainer-unknown-parameter", "trainer-optim-value", "trainer-full-precision",
            "trainer-two-precisions", "trainer-load-best", "trainer-load-best-steps",
        ),
        kinds=_PYTHON,
        find=trainer.trainer_arguments,
    ),
    Check(rules=("device-map-distributed",), kinds=_PYTHON, find=trainer.device_maps),
    Check(rules=("moved-after-device-map",), kinds=_PYTHON, find=trainer.moved),
    Check(rules=("missing-import",), kinds=_PYTHON, find=trainer.missing_imports),
    Check(rules=("visible-devices-late",), kinds=_PYTHON, find=trainer.visible_late),
    Check(
        rules=("engine-renamed-flag", "engine-unknown-flag", "engine-flag-value"),
        kinds=_COMMANDS,
        find=launchers.engine_flags,
    ),
    Check(rules=("launcher-unknown-flag", "script-renamed-flag"), kinds=_COMMANDS, find=launchers.launcher_flags),
    Check(rules=("fewer-cards-than-processes",), kinds=_COMMANDS, find=launchers.visible_devices),
    Check(rules=("restart-without-resume",), kinds=_COMMANDS, find=launchers.restarts),
    Check(
        rules=("deepspeed-renamed-key", "deepspeed-unknown-key"),
        kinds=frozenset((Kind.DEEPSPEED,)),
        find=configs.deepspeed_keys,
    ),
    Check(rules=("deepspeed-batch",), kinds=frozenset((Kind.DEEPSPEED,)), find=configs.batch_sums),
    Check(rules=("zero-stage-memory",), kinds=frozenset((Kind.DEEPSPEED,)), find=configs.stage_memory),
    Check(
        rules=("accelerate-unknown-key", "accelerate-processes", "accelerate-rank", "fsdp-version-1", "fsdp2-old-key"),
        kinds=frozenset((Kind.ACCELERATE,)),
        find=configs.accelerate_keys,
    ),
    Check(rules=("unknown-variable", "nccl-removed-variable", "vllm-removed-variable"), kinds=_CODE, find=environment.variables),
    Check(rules=("nccl-sockets-alone", "nccl-sockets-product"), kinds=_CODE, find=environment.sockets),
    Check(rules=("image-unpinned",), kinds=_COMMANDS, find=containers.images),
    Check(
        rules=(
            "prometheus-without-config", "port-on-all-interfaces", "grafana-default-password", "container-without-gpus",
            "container-shared-memory", "restart-always-job",
        ),
        kinds=frozenset((Kind.SHELL,)),
        find=containers.docker_runs,
    ),
    Check(
        rules=(
            "compose-version", "compose-runtime-nvidia", "container-without-gpus", "container-shared-memory",
            "restart-always-job", "port-on-all-interfaces", "grafana-default-password", "prometheus-without-config",
        ),
        kinds=frozenset((Kind.COMPOSE,)),
        find=containers.compose_services,
    ),
    Check(
        rules=("restart-always-job", "container-without-gpus", "container-shared-memory"),
        kinds=frozenset((Kind.KUBERNETES,)),
        find=containers.kubernetes_pods,
    ),
    Check(rules=("alert-blind-to-nan",), kinds=frozenset((Kind.ALERTS,)), find=monitoring.blind_alerts),
    Check(rules=("rule-file-missing",), kinds=frozenset((Kind.PROMETHEUS,)), find=containers.prometheus_mounts),
    Check(
        rules=("restart-always-job", "start-limit-never-bites", "stop-without-time"),
        kinds=frozenset((Kind.UNIT,)),
        find=units.restart_policies,
    ),
    Check(rules=("nouveau-half-blacklisted",), kinds=frozenset((Kind.SHELL, Kind.MODPROBE)), find=units.nouveau),
    Check(
        rules=(
            "metric-gone", "metric-not-exported", "metric-unknown", "alert-never-fires", "xid-gauge", "window-too-short",
        ),
        kinds=frozenset((Kind.ALERTS, Kind.DASHBOARD)),
        find=monitoring.expressions,
    ),
    Check(
        rules=("prometheus-unknown-key", "target-with-scheme"),
        kinds=frozenset((Kind.PROMETHEUS,)),
        find=monitoring.prometheus_config,
    ),
    Check(rules=("secret-in-file",), kinds=_CODE, find=secrets.secrets),
)  # fmt: skip
