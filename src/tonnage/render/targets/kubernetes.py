"""Kubernetes: a Deployment with a Service for a server, a Job (indexed over several nodes) for training.

Fields as in the Kubernetes API reference v1.33: apps/v1 Deployment, batch/v1 Job (podFailurePolicy, completionMode),
core/v1 Probe, SecurityContext; device plugins' resource names as each maker documents them.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tonnage.errors import RequestError
from tonnage.messages import say
from tonnage.render.parts import common_files, container_words, install_script
from tonnage.render.quote import kubernetes_words, to_yaml
from tonnage.render.scripts import comment
from tonnage.render.targets.local import start_script
from tonnage.render.types import Bundle, BundleFile, Role, Service

_RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/xe"}
_MASTER_PORT: Final = 29500
_UID: Final = 1000
_LARGEST_CONFIG: Final = 900_000  # a ConfigMap holds 1 MiB


def bundle(service: Service) -> Bundle:
    """Return the files that run a service on Kubernetes."""
    if service.image is None:
        raise RequestError(
            say("deploy.no_image", name=service.plan.estimate.candidate.engine), where="--place kubernetes",
            fix=say("deploy.other_place"),
        )  # fmt: skip
    if service.role is Role.SERVER and service.num_nodes > 1:
        raise RequestError(say("deploy.server_nodes"), where="--place kubernetes", fix=say("deploy.one_node_plan"))
    start = "kubectl apply -f kubernetes.yaml"
    text = comment(say("deploy.head", name=service.name, command="kubectl apply -f kubernetes.yaml")) + "\n"
    text += "---\n".join(to_yaml(one) for one in objects(service))
    made = BundleFile(path="kubernetes.yaml", text=text, purpose=say("deploy.purpose_kubernetes"))
    return Bundle(
        name=service.name,
        place="kubernetes",
        files=(*common_files(service, start, "kubernetes"), made),
        start=start,
        stop="kubectl delete -f kubernetes.yaml",
        notes=(*service.notes, *(say("deploy.secret_note", name=name.lower()) for name in service.secrets)),
    )


def objects(service: Service) -> list[dict[str, Any]]:
    """Return the objects in the order in which they are made."""
    made = [_claim(service)]
    if service.files:
        made.append(_config(service))
    if service.role is Role.SERVER:
        return [*made, _deployment(service), _service(service)]
    if service.num_nodes > 1:
        made.append(_meeting_point(service))
    return [*made, _job(service)]


def _meta(service: Service) -> dict[str, Any]:
    return {"name": service.name, "labels": {"app.kubernetes.io/name": service.name}}


def _claim(service: Service) -> dict[str, Any]:
    storage = service.plan.estimate.storage
    needed = storage.weights_bytes * 1.2 + 2 * (storage.checkpoints_bytes or 0.0)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _meta(service),
        "spec": {
            "accessModes": ["ReadWriteMany" if service.num_nodes * service.num_replicas > 1 else "ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{math.ceil(needed / 2**30) + 10}Gi"}},
        },
    }


def _config(service: Service) -> dict[str, Any]:
    files = dict(service.files)
    if service.role is Role.JOB:
        files |= {file.path: file.text for file in (install_script(service), start_script(service))}
    assert sum(map(len, files.values())) < _LARGEST_CONFIG
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(service), "data": files}


def _deployment(service: Service) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": service.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(service),
        "spec": {
            "replicas": service.num_replicas,
            "selector": {"matchLabels": labels},
            # No spare device to start a new replica on: the old one goes first.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(service)},
        },
    }


def _service(service: Service) -> dict[str, Any]:
    assert service.probe is not None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(service),
        "spec": {
            "selector": {"app.kubernetes.io/name": service.name},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    }


def _meeting_point(service: Service) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(service),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app.kubernetes.io/name": service.name},
            "ports": [{"name": "rendezvous", "port": _MASTER_PORT}],
        },
    }


def _job(service: Service) -> dict[str, Any]:
    pod = _pod(service) | {"restartPolicy": "Never"}
    if service.num_nodes > 1:
        pod["subdomain"] = service.name
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _meta(service),
        "spec": {
            "backoffLimit": 5 * service.num_nodes,
            "completions": service.num_nodes,
            "parallelism": service.num_nodes,
            "completionMode": "Indexed",
            "podFailurePolicy": {
                "rules": [
                    # 2: the request is wrong, 3: given up for good. To start again would not help.
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 3]}},
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {"metadata": {"labels": {"app.kubernetes.io/name": service.name}}, "spec": pod},
        },
    }


def _pod(service: Service) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": "cache", "persistentVolumeClaim": {"claimName": service.name}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(service.shared_memory_bytes)}},
    ]
    if service.files:
        volumes.append({"name": "bundle", "configMap": {"name": service.name}})
    return {
        "containers": [_container(service)],
        "volumes": volumes,
        "terminationGracePeriodSeconds": round(service.stop_seconds),
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _UID,
            "fsGroup": _UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _container(service: Service) -> dict[str, Any]:
    words = kubernetes_words(container_words(service))
    mounts = [{"name": "cache", "mountPath": "/cache"}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
    if service.files:
        mounts.append({"name": "bundle", "mountPath": "/bundle"})
    limits: dict[str, Any] = {"memory": str(service.host_memory_bytes + service.shared_memory_bytes)}
    if service.num_devices:
        limits[_RESOURCES.get(service.vendor, "nvidia.com/gpu")] = service.num_devices
    made: dict[str, Any] = {
        "name": "engine",
        "image": service.image,
        "command": words[:1],
        "args": words[1:],
        "workingDir": "/bundle" if service.files and service.role is Role.SERVER else "/cache",
        "env": _env(service),
        "resources": {"limits": limits, "requests": {"memory": limits["memory"]}},
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if service.probe is not None:
        check = {"httpGet": {"path": service.probe.health_path, "port": "http"}}
        made["ports"] = [{"name": "http", "containerPort": service.probe.port}]
        made["startupProbe"] = {**check, "periodSeconds": 10, "failureThreshold": math.ceil(service.start_seconds / 10)}
        made["readinessProbe"] = {**check, "periodSeconds": 5, "timeoutSeconds": 5}
        made["livenessProbe"] = {**check, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6}
    return made


def _env(service: Service) -> list[dict[str, Any]]:
    fixed = {**service.env, "HF_HOME": "/cache", "HOME": "/cache"}
    made: list[dict[str, Any]] = [{"name": name, "value": value.replace("$", "$$")} for name, value in fixed.items()]
    if service.role is Role.JOB and service.num_nodes > 1:
        index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
        made += [
            {"name": "MASTER_ADDR", "value": f"{service.name}-0.{service.name}"},
            {"name": "NODE_RANK", "valueFrom": index},
            {"name": "JOB_ID", "value": service.name},
        ]
    made += [
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": name.lower().replace("_", "-"), "key": "token", "optional": True}},
        }
        for name in service.secrets
    ]
    return made
