"""Kubernetes: a Deployment with a Service for a server, a Job (indexed over several nodes) for training.

Fields as in the Kubernetes API reference v1.33: apps/v1 Deployment, batch/v1 Job (podFailurePolicy, completionMode),
core/v1 Probe, SecurityContext; autoscaling/v2 HorizontalPodAutoscaler; keda.sh/v1alpha1 ScaledObject with the Prometheus
scaler (keda.sh/docs/scalers/prometheus); device plugins' resource names as each maker documents them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from tonnage.errors import RequestError
from tonnage.messages import say
from tonnage.render.network import is_rdma
from tonnage.render.parts import (
    LINK_TEST,
    before_start,
    common_files,
    container_env,
    container_words,
    image_notes,
    install_script,
    job_script,
    link_test,
    num_cores,
    weights_script,
)
from tonnage.render.quote import kubernetes_words, to_yaml
from tonnage.render.scripts import comment
from tonnage.render.targets.local import start_script
from tonnage.render.types import Bundle, BundleFile, Role, Scaling, Service
from tonnage.workload.types import Serving

_RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/xe"}
_START: Final = "kubectl apply -f kubernetes.yaml"
_TEST: Final = "kubectl apply -f nccl-test.yaml"
_MASTER_PORT: Final = 29500
_LARGEST_CONFIG: Final = 900_000  # a ConfigMap holds 1 MiB


def bundle(service: Service) -> Bundle:
    """Return the files that run a service on Kubernetes."""
    if service.image is None:
        raise RequestError(
            say("deploy.no_image", name=service.engine_name), where="--place kubernetes",
            fix=say("deploy.other_place"),
        )  # fmt: skip
    if service.role is Role.SERVER and service.num_nodes > 1:
        raise RequestError(say("deploy.server_nodes"), where="--place kubernetes", fix=say("deploy.one_node_plan"))
    notes = (
        *service.notes,
        *image_notes(service),
        *(say("deploy.secret_note", name=_secret(name)) for name in service.secrets),
        say("places.static_cores"),
        *((say("places.rdma_resource"),) if _has_rdma(service) else ()),
        *(
            (say("places.model_in_volume", folder=service.model_folder, name=service.name),)
            if service.model_folder
            else ()
        ),
        *_weights_notes(service),
        *_scaling_notes(service),
    )
    own = replace(service, files={path: text for path, text in service.files.items() if path != "all_reduce.py"})
    made = [_file("kubernetes.yaml", say("deploy.head", name=service.name, command=_START), objects(own),
                  say("deploy.purpose_kubernetes"))]  # fmt: skip
    if service.has_collectives:
        head = say("deploy.head", name=LINK_TEST, command=_TEST)
        made.append(_file("nccl-test.yaml", head, test_objects(service), say("places.purpose_test")))
    if service.role is Role.SERVER and service.queue_metric:
        made += _scaling_files(service)
    return Bundle(
        name=service.name,
        place="kubernetes",
        files=(*common_files(service, _START, "kubernetes", _TEST, notes), *made),
        start=_START,
        stop="kubectl delete -f kubernetes.yaml",
        notes=notes,
        before=before_start(service, "kubernetes"),
    )


def _file(path: str, head: str, made: list[dict[str, Any]], purpose: str) -> BundleFile:
    text = comment(head) + "\n" + "---\n".join(to_yaml(one) for one in made)
    return BundleFile(path=path, text=text, purpose=purpose)


def _has_rdma(service: Service) -> bool:
    return service.num_nodes > 1 and is_rdma(service.candidate.cluster.inter_link)


def _threshold(service: Service) -> int:
    """Return the requests that may wait for a replica: a tenth of those that the plan runs at once, and one at least."""
    workload = service.candidate.workload
    return max(1, round(workload.concurrency / 10)) if isinstance(workload, Serving) else 1


def _scaling(service: Service) -> Scaling:
    """Return how replicas follow the load: as asked, else from the replicas there are to four times as many."""
    least = service.num_replicas
    return service.scaling or Scaling(least=least, most=4 * least, target=_threshold(service))


def _weights_notes(service: Service) -> tuple[str, ...]:
    if service.role is not Role.SERVER or service.weights is None or not service.weights.is_made:
        return ()
    return (say("places.weights_in_volume", name=service.name),)


def _scaling_notes(service: Service) -> tuple[str, ...]:
    if service.role is not Role.SERVER:
        return ()
    if service.queue_metric is None:
        return (say("places.no_scaling", name=service.candidate.engine),)
    return (say("places.scaling_note", threshold=f"{_scaling(service).target:g}"),)


def _scaling_files(service: Service) -> list[BundleFile]:
    """Return two ways to add replicas while requests wait, and the rule that the first one needs."""
    metric, scaling = service.queue_metric or "", _scaling(service)
    also = service.running_metric if scaling.counts_running else None
    named, purpose = (also or metric).replace(":", "_"), say("places.purpose_scaling")
    named = f"{named}_and_waiting" if also else named
    wanted = f"{scaling.target:g}"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name}
    # A replica takes minutes to start: none is given up for a short lull.
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 600, "policies": [
        {"type": "Pods", "value": 1, "periodSeconds": 300}]}}  # fmt: skip
    pods = {"metric": {"name": named}, "target": {"type": "AverageValue", "averageValue": wanted}}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _meta(service),
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": max(scaling.least, 1),  # none at all is KEDA's to give
            "maxReplicas": scaling.most,
            "metrics": [{"type": "Pods", "pods": pods}],
            "behavior": behavior,
        },
    }
    rule = {
        "rules": {"custom": [{
            "seriesQuery": f'{{__name__="{metric}",namespace!="",pod!=""}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"as": named},
            "metricsQuery": " + ".join(
                f"sum({series}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)" for series in ("<<.Series>>", also) if series
            ),
        }]}
    }  # fmt: skip
    trigger = {
        "serverAddress": "http://prometheus-operated.monitoring.svc:9090",
        "query": " + ".join(f'sum({one}{{pod=~"{service.name}-.*"}})' for one in (metric, also) if one),
        "threshold": wanted,
    }
    keda = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": _meta(service),
        "spec": {
            "scaleTargetRef": target,
            "minReplicaCount": scaling.least,
            "maxReplicaCount": scaling.most,
            "pollingInterval": 15,
            "cooldownPeriod": 600,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
        },
    }
    words = {"name": service.name, "metric": metric}
    return [
        _file("hpa.yaml", say("places.scaling_hpa", **words), [hpa], purpose),
        _file("adapter-rule.yaml", say("places.scaling_rule"), [rule], purpose),
        _file("keda.yaml", say("places.scaling_keda", **words), [keda], purpose),
    ]


def objects(service: Service) -> list[dict[str, Any]]:
    """Return the objects in the order in which they are made."""
    made = [_claim(service)]
    if _files(service):
        made.append(_config(service))
    if service.role is Role.SERVER:
        return [*made, _deployment(service), _service(service)]
    if service.num_nodes > 1:
        made.append(_meeting_point(service))
    return [*made, _job(service)]


def test_objects(service: Service) -> list[dict[str, Any]]:
    """Return a job that tests the links between the devices, on as many machines as the plan has."""
    name = f"{service.name[:50]}-links"
    files = {LINK_TEST: link_test(service).text, "all_reduce.py": service.files["all_reduce.py"]}
    if "interface.py" in service.files:
        files["interface.py"] = service.files["interface.py"]
    tested = replace(service, name=name, role=Role.JOB, files=files, probe=None, secrets=())
    words = f"cp -L /bundle/* /scratch && exec bash /scratch/{LINK_TEST}"
    job = _job(tested)
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container |= {"command": ["bash"], "args": ["-c", words], "workingDir": "/scratch"}
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] != "cache"]
    pod["volumes"] = [one for one in pod["volumes"] if one["name"] != "cache"]
    job["spec"]["backoffLimit"] = 0
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(tested), "data": files}
    return [config, *([_meeting_point(tested)] if service.num_nodes > 1 else []), job]


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


def _job_script(service: Service) -> tuple[BundleFile, ...]:
    return (job_script(),) if service.has_launcher else ()


def _files(service: Service) -> dict[str, str]:
    files = dict(service.files)
    if service.role is Role.JOB:
        own = [install_script(service), start_script(service), *_job_script(service)]
        if service.weights is not None and service.weights.is_made:
            own.append(weights_script(service.weights))
        files |= {file.path: file.text for file in own}
    return files


def _config(service: Service) -> dict[str, Any]:
    files = _files(service)
    assert sum(map(len, files.values())) < _LARGEST_CONFIG
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(service),
        "data": {_key(path): text for path, text in files.items()},
    }


def _paths(service: Service) -> dict[str, Any]:
    """Return where the files of the map lie, if some lie in folders."""
    files = _files(service)
    return (
        {"items": [{"key": _key(path), "path": path} for path in files]} if any("/" in path for path in files) else {}
    )


def _key(path: str) -> str:
    """Return what a file is called in the map, whose keys hold no slash."""
    return path.replace("/", "..")


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
            "template": {"metadata": {"labels": labels, "annotations": _scraped(service)}, "spec": _pod(service)},
        },
    }


def _scraped(service: Service) -> dict[str, str]:
    """Return the annotations by which Prometheus finds a pod's metrics, as its Kubernetes example configuration reads."""
    if service.probe is None or service.probe.metrics_path is None:
        return {}
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(service.probe.port),
        "prometheus.io/path": service.probe.metrics_path,
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
    if service.role is Role.JOB:
        volumes.append({"name": "scratch", "emptyDir": {}})
    if _files(service):
        volumes.append({"name": "bundle", "configMap": {"name": service.name, **_paths(service)}})
    return {
        "containers": [_container(service)],
        "volumes": volumes,
        "terminationGracePeriodSeconds": round(service.stop_seconds),
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": int(service.image_user.partition(":")[0]),
            "runAsGroup": int(service.image_user.partition(":")[2]),
            "fsGroup": int(service.image_user.partition(":")[0]),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _in_volume(service: Service, word: str) -> str:
    """Return a word of the command, where weights that were made lie in the volume."""
    made = service.weights
    return f"/cache/{word}" if made is not None and made.is_made and word == made.name else word


def _container(service: Service) -> dict[str, Any]:
    words = kubernetes_words(_in_volume(service, word) for word in container_words(service))
    mounts = [{"name": "cache", "mountPath": "/cache"}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
    if _files(service):
        mounts.append({"name": "bundle", "mountPath": "/bundle"})
    if service.role is Role.JOB:
        mounts.append({"name": "scratch", "mountPath": "/scratch"})
    limits: dict[str, Any] = {
        "cpu": str(num_cores(service)),
        "memory": str(service.host_memory_bytes + service.shared_memory_bytes),
    }
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    if _has_rdma(service):
        capabilities["add"] = ["IPC_LOCK"]  # memory that the adapter reads has to stay where it is
    if service.num_devices:
        limits[_RESOURCES.get(service.vendor, "nvidia.com/gpu")] = service.num_devices
    made: dict[str, Any] = {
        "name": "engine",
        "image": service.image,
        "command": words[:1],
        "args": words[1:],
        "workingDir": "/bundle" if _files(service) and service.role is Role.SERVER else "/cache",
        "env": _env(service),
        "resources": {"limits": limits, "requests": {key: limits[key] for key in ("cpu", "memory")}},
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": capabilities},
    }
    if service.probe is not None:
        check = {"httpGet": {"path": service.probe.health_path, "port": "http"}}
        made["ports"] = [{"name": "http", "containerPort": service.probe.port}]
        made["startupProbe"] = {**check, "periodSeconds": 10, "failureThreshold": math.ceil(service.start_seconds / 10)}
        made["readinessProbe"] = {**check, "periodSeconds": 5, "timeoutSeconds": 5}
        made["livenessProbe"] = {**check, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6}
    return made


def _secret(name: str) -> str:
    """Return the name of the secret that holds a variable: RFC 1123 has no underscore."""
    return name.lower().replace("_", "-")


def _env(service: Service) -> list[dict[str, Any]]:
    fixed = container_env(service)
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
            "valueFrom": {"secretKeyRef": {"name": _secret(name), "key": "token", "optional": True}},
        }
        for name in service.secrets
    ]
    return made
