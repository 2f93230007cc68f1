"""Containers: images, published ports, restarts, GPUs that a service cannot see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tonnage.diagnose.lint.checks.launchers import launch_of
from tonnage.diagnose.lint.checks.types import Context, basename
from tonnage.diagnose.lint.seen import Seen, docker_image_place
from tonnage.diagnose.lint.types import Edit, Hit, Kind
from tonnage.diagnose.lint.yaml_text import Table, at

__all__ = ["compose_services", "docker_runs", "images", "kubernetes_pods", "prometheus_mounts"]

_SHARED: Final = re.compile(r"(?:^|/)(?:vllm-openai|sglang|pytorch|nemo|tritonserver)(?::|@|$)")
_GPU_IMAGES: Final = re.compile(
    r"(?:^|/)(?:vllm-openai|sglang|pytorch/pytorch|dcgm-exporter|cuda|tritonserver|text-generation-inference)(?::|@|$)"
    r"|llama\.cpp:[\w.-]*cuda|^pytorch/pytorch"
)
_WATCHERS: Final = re.compile(
    r"(?:^|/)(?:prometheus|grafana|grafana-oss|alertmanager|dcgm-exporter|node-exporter)(?::|@|$)"
)
# Programs of any image that compute nothing: a service or run of one of them needs no card.
_TOOLS: Final = frozenset(
    ("chown", "chmod", "mkdir", "cp", "mv", "ls", "cat", "true", "sleep", "curl", "wget", "tar", "id")
)
_TRAINERS: Final = ("torchrun", "accelerate", "deepspeed", "horovodrun", "megatron")


def images(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find images whose content changes under their name."""
    built = {
        word.partition(":")[0]
        for place, command in context.commands()
        if place.document.file == seen.document.file and "build" in command.words
        for before, word in pairwise(command.words)
        if before in ("-t", "--tag")
    }
    for image in seen.images:
        name = image.name
        if name.partition(":")[0] in built:
            continue
        if (
            "$" in name
            or "{" in name
            or name in ("scratch", "-")
            or "@sha256:" in name
            or not re.match(r"[\w.-]+", name)
        ):
            continue
        last = name.rpartition("/")[2]
        tag = last.partition(":")[2]
        if not tag or tag in ("latest", "main", "master", "nightly", "dev"):
            yield Hit(rule="image-unpinned", line=image.line, values={"image": name, "tag": tag or "latest"})


def docker_runs(seen: Seen, context: Context) -> Iterator[Hit]:
    """Look at each docker run: mounts, ports, restarts, GPUs."""
    del context
    for command in seen.commands:
        place = docker_image_place(command.words)
        if place is None or "run" not in command.words[:place]:
            continue
        options, image = command.words[:place], command.words[place]
        rest = " ".join(options)
        if re.search(r"(?:^|/)prom(?:etheus)?/prometheus(?::|@|$)", image) and not re.search(
            r"(?:^|\s)(?:-v|--volume|--mount)\b", rest
        ):
            yield Hit(rule="prometheus-without-config", line=command.line, values={"image": image})
        if _WATCHERS.search(image):
            for port in _published(options):
                if not re.match(r"(?:127\.0\.0\.1|localhost|\[::1\]):", port):
                    edit = _port_edit(seen, command.line, port)
                    yield Hit(
                        rule="port-on-all-interfaces",
                        line=command.line,
                        values={"port": port, "image": image},
                        edit=edit,
                    )
        if (
            re.search(r"(?:^|/)grafana(?:-oss|-enterprise)?(?::|@|$)", image)
            and "GF_SECURITY_ADMIN_PASSWORD" not in rest
            and "env-file" not in rest
        ):
            yield Hit(rule="grafana-default-password", line=command.line)
        if _GPU_IMAGES.search(image) and not re.search(
            r"--gpus|--runtime|--device|nvidia-docker|--cap-add", " ".join(command.words[:place])
        ):
            yield Hit(rule="container-without-gpus", line=command.line, values={"image": image})
        if _SHARED.search(image) and not re.search(r"--shm-size|--ipc", rest):
            yield Hit(rule="container-shared-memory", line=command.line, values={"image": image})
        yield from _restart(command.line, options, command.words[place:], seen)


def _restart(line: int, options: tuple[str, ...], words: tuple[str, ...], seen: Seen) -> Iterator[Hit]:
    match = re.search(r"--restart[= ](always|unless-stopped)\b", " ".join(options))
    launch = launch_of(_command_of(words, line))
    if match and ((launch and launch.program in _TRAINERS) or _is_training(words)):
        edit = None
        for number in range(line, min(line + 30, len(seen.document.lines) + 1)):
            place = seen.document.lines[number - 1].find(match[0])
            if place >= 0:
                edit = Edit(line=number, start=place, end_line=number, end=place + len(match[0]),
                            text=match[0].replace(match[1], "on-failure"))  # fmt: skip
                break
        yield Hit(rule="restart-always-job", line=line, values={"policy": match[1]}, edit=edit)


def _command_of(words: tuple[str, ...], line: int):  # noqa: ANN202  a Command
    from tonnage.diagnose.lint.types import Command  # noqa: PLC0415

    return Command(words=tuple(words[1:]), line=line)


def _is_training(words: tuple[str, ...] | list[str]) -> bool:
    """Whether words run a script that by its name trains."""
    return any(re.search(r"(?:^|[_/-])(?:train|finetune|pretrain|sft|run_clm)\w*\.py$", w) for w in words)


def _published(options: tuple[str, ...]) -> Iterator[str]:
    for i, word in enumerate(options):
        if word in ("-p", "--publish") and i + 1 < len(options):
            yield options[i + 1]
        elif word.startswith("--publish="):
            yield word.partition("=")[2]


def _port_edit(seen: Seen, line: int, port: str) -> Edit | None:
    if not re.fullmatch(r"\d+:\d+", port):
        return None
    for number in range(line, min(line + 30, len(seen.document.lines) + 1)):
        place = seen.document.lines[number - 1].find(port)
        if place >= 0:
            return Edit(line=number, start=place, end_line=number, end=place, text="127.0.0.1:")
    return None


def compose_services(seen: Seen, context: Context) -> Iterator[Hit]:
    """Look at each service of a Compose file."""
    del context
    for table in seen.tables:
        if not isinstance(table, Table):
            continue
        if "version" in table:
            edit = Edit(line=table.lines["version"], start=0, end_line=table.lines["version"] + 1, end=0, text="")
            yield Hit(rule="compose-version", line=table.lines["version"], edit=edit)
        services = table.get("services")
        if not isinstance(services, Table):
            continue
        for name, service in services.items():
            if isinstance(service, Table):
                yield from _service(service, services.lines[name])


def _service(service: Table, line: int) -> Iterator[Hit]:
    image = str(service.get("image") or "")
    words = [w for key in ("entrypoint", "command") for w in _words(service.get(key))]
    if service.get("runtime") == "nvidia":
        yield Hit(rule="compose-runtime-nvidia", line=service.lines["runtime"])
    has_gpu = (
        bool(at(service, "deploy.resources.reservations.devices"))
        or "gpus" in service
        or "runtime" in service
        or "devices" in service
    )
    computes = not (words and basename(words[0]) in _TOOLS)
    if computes and _GPU_IMAGES.search(image) and not has_gpu:
        yield Hit(rule="container-without-gpus", line=line, values={"image": image})
    if computes and _SHARED.search(image) and "shm_size" not in service and service.get("ipc") is None:
        yield Hit(rule="container-shared-memory", line=line, values={"image": image})
    policy = service.get("restart")
    launch = launch_of(_command_of(("", *words), line))
    if policy in ("always", "unless-stopped") and ((launch and launch.program in _TRAINERS) or _is_training(words)):
        yield Hit(rule="restart-always-job", line=service.lines["restart"], values={"policy": policy})
    if _WATCHERS.search(image):
        ports = service.get("ports")
        for port in ports if isinstance(ports, list) else ():
            if isinstance(port, str | int) and not re.match(r"(?:127\.0\.0\.1|localhost|\[::1\]|\$)", str(port)):
                yield Hit(
                    rule="port-on-all-interfaces", line=service.lines["ports"], values={"port": port, "image": image}
                )
    if re.search(r"(?:^|/)grafana(?:-oss|-enterprise)?(?::|@|$)", image):
        held = service.get("environment")
        names = set(held) if isinstance(held, dict) else {str(x).partition("=")[0] for x in held or ()}
        if not {"GF_SECURITY_ADMIN_PASSWORD", "GF_SECURITY_ADMIN_PASSWORD__FILE"} & names and "env_file" not in service:
            yield Hit(rule="grafana-default-password", line=line)
    if re.search(r"(?:^|/)prom/prometheus(?::|@|$)", image) and "volumes" not in service and "configs" not in service:
        yield Hit(rule="prometheus-without-config", line=line, values={"image": image})


def kubernetes_pods(seen: Seen, context: Context) -> Iterator[Hit]:
    """Look at the pods of each object: cards, shared memory, a job that a Deployment would start again for ever."""
    del context
    for table in seen.tables:
        if not isinstance(table, Table):
            continue
        spec = at(table, "spec.template.spec") or at(table, "spec.jobTemplate.spec.template.spec")
        if table.get("kind") == "Pod":
            spec = table.get("spec")
        if isinstance(spec, Table):
            yield from _pod(spec, str(table.get("kind")))


def _pod(spec: Table, kind: str) -> Iterator[Hit]:
    containers = spec.get("containers")
    volumes = {str(v.get("name")): v for v in spec.get("volumes") or () if isinstance(v, Table)}
    for one in containers if isinstance(containers, list) else ():
        if not isinstance(one, Table):
            continue
        image, line = str(one.get("image") or ""), one.lines.get("image", one.line)
        words = [*_words(one.get("command")), *_words(one.get("args"))]
        launch = launch_of(_command_of(("", *words), line))
        if kind in ("Deployment", "StatefulSet", "DaemonSet") and (
            (launch and launch.program in _TRAINERS) or _is_training(words)
        ):
            yield Hit(rule="restart-always-job", line=line, values={"policy": f"kind: {kind}"})
        if not _GPU_IMAGES.search(image) or (words and basename(words[0]) in _TOOLS):
            continue
        limits = at(one, "resources.limits")
        has_cards = isinstance(limits, Table) and any("gpu" in k or "nvidia.com/" in k for k in limits)
        if not has_cards and "dcgm-exporter" not in image and "claims" not in (one.get("resources") or {}):
            yield Hit(rule="container-without-gpus", line=line, values={"image": image})
        mounts = one.get("volumeMounts") or ()
        names = [str(m.get("name")) for m in mounts if isinstance(m, Table) and m.get("mountPath") == "/dev/shm"]  # noqa: S108
        if _SHARED.search(image) and not any(at(volumes.get(n), "emptyDir.medium") == "Memory" for n in names):
            yield Hit(rule="container-shared-memory", line=line, values={"image": image})


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [str(v) for v in value] if isinstance(value, list) else []


def prometheus_mounts(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find rule files that a Prometheus configuration names and that are not among the files looked at beside it."""
    folder = seen.document.file.rpartition("/")[0]
    beside = {basename(s.document.file) for s in context.seen if s.document.file.rpartition("/")[0] == folder}
    if seen.kind is not Kind.PROMETHEUS or len(beside) < 2:
        return
    for table in seen.tables:
        held = table.get("rule_files") if isinstance(table, Table) else None
        for path, line in zip(held or (), getattr(held, "lines", ()), strict=False):
            name = basename(str(path))
            if "*" not in name and "/" not in str(path) and name not in beside:
                yield Hit(rule="rule-file-missing", line=line, values={"name": name})
