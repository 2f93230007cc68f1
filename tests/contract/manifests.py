"""Kubernetes objects held against the API's schemas, and against what the API server checks beside them.

The published schemas name no values of enumerations (Kubernetes API reference v1.33, the fields' own descriptions) and
do not tie objects to one another; both are looked at here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

VERSION = "1.33"
# Custom resources, whose schemas a cluster has only where their controller is installed: the fields that we may write.
CUSTOM: dict[str, set[str]] = {
    "keda.sh/v1alpha1 ScaledObject": {
        "scaleTargetRef", "pollingInterval", "cooldownPeriod", "minReplicaCount", "maxReplicaCount", "triggers",
        "idleReplicaCount", "initialCooldownPeriod", "fallback", "advanced",
    },
}  # fmt: skip
# Values of fields, by the end of their path; a list's items have no step of their own.
VALUES: dict[str, set[str]] = {
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
    "concurrencyPolicy": {"Allow", "Forbid", "Replace"},
    "completionMode": {"NonIndexed", "Indexed"},
    "podReplacementPolicy": {"TerminatingOrFailed", "Failed"},
    "podManagementPolicy": {"OrderedReady", "Parallel"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "dnsPolicy": {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
    "accessModes": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"},
    "seccompProfile.type": {"RuntimeDefault", "Unconfined", "Localhost"},
    "strategy.type": {"Recreate", "RollingUpdate"},
    "updateStrategy.type": {"OnDelete", "RollingUpdate"},
    "emptyDir.medium": {"", "Memory", "HugePages"},
    "podFailurePolicy.rules.action": {"FailJob", "FailIndex", "Ignore", "Count"},
    "onExitCodes.operator": {"In", "NotIn"},
    "matchExpressions.operator": {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"},
    "tolerations.operator": {"Exists", "Equal"},
    "tolerations.effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    "whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"},
    "httpGet.scheme": {"HTTP", "HTTPS"},
    "metrics.type": {"Resource", "Pods", "Object", "External", "ContainerResource"},
    "target.type": {"Utilization", "Value", "AverageValue"},
    "policies.type": {"Pods", "Percent"},
    "selectPolicy": {"Max", "Min", "Disabled"},
    "externalTrafficPolicy": {"Cluster", "Local"},
    "internalTrafficPolicy": {"Cluster", "Local"},
    "sessionAffinity": {"ClientIP", "None"},
}
OF_A_KIND: dict[tuple[str, str], set[str]] = {
    ("Service", "spec.type"): {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"},
    ("Secret", "type"): {"Opaque", "kubernetes.io/basic-auth", "kubernetes.io/tls"},
    ("Job", "spec.template.spec.restartPolicy"): {"OnFailure", "Never"},
    ("CronJob", "spec.jobTemplate.spec.template.spec.restartPolicy"): {"OnFailure", "Never"},
    ("Deployment", "spec.template.spec.restartPolicy"): {"Always"},
    ("StatefulSet", "spec.template.spec.restartPolicy"): {"Always"},
}
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123
QUANTITY = re.compile(r"\d+(\.\d+)?(m|[kMGTPE]|[KMGTPE]i)?")


def complaints(objects: list[Any]) -> list[str]:
    """Return what is wrong with the objects of one file."""
    found = [f"{one.get('kind')}: {said}" for one in objects for said in of_one(json.dumps(one, sort_keys=True))]
    return found + list(_ties(objects))


@cache
def of_one(text: str) -> tuple[str, ...]:
    """Return what is wrong with one object, written as JSON."""
    one = json.loads(text)
    kind = f"{one.get('apiVersion')} {one.get('kind')}"
    if kind in CUSTOM:
        unknown = set(one.get("spec", {})) - CUSTOM[kind]
        found = [f"unknown fields {sorted(unknown)}"] if unknown else []
    else:
        import kubernetes_validate as schemas

        try:
            schemas.validate(one, VERSION, strict=True)
            found = []
        except (schemas.ValidationError, schemas.SchemaNotFoundError, schemas.InvalidSchemaError) as error:
            found = [str(getattr(error, "message", error)).split("\n")[0]]
    return (*found, *_values(one), *_names(one))


def _values(one: dict[str, Any]) -> Iterator[str]:
    for path, value in _leaves(one, ()):
        allowed = OF_A_KIND.get((one.get("kind", ""), path)) or next(
            (values for end, values in VALUES.items() if f".{path}".endswith(f".{end}")), None
        )
        if allowed is not None and value not in allowed:
            yield f"{path}: {value!r} is not one of {sorted(allowed)}"
        if re.search(r"resources\.(limits|requests)\.[^.]+$", path) and not QUANTITY.fullmatch(str(value)):
            yield f"{path}: {value!r} is no quantity"


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, held in value.items():
            yield from _leaves(held, (*path, str(key).replace(".", "/")))
    elif isinstance(value, list):
        for held in value:
            yield from _leaves(held, path)
    else:
        yield ".".join(path), value


def _names(one: dict[str, Any]) -> Iterator[str]:
    name = str(one.get("metadata", {}).get("name", ""))
    if not LABEL.fullmatch(name):
        yield f"metadata.name: {name!r} is no DNS label"
    for value in one.get("metadata", {}).get("labels", {}).values():
        if not re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", str(value)):
            yield f"metadata.labels: {value!r} is no label"
    if one.get("kind") == "ConfigMap":
        yield from (
            f"data: {key!r} is no key" for key in one.get("data", {}) if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key)
        )


def _ties(objects: list[Any]) -> Iterator[str]:
    """What one object says of another: claims, maps, labels, ports, the target of a scaler."""
    by_kind = {(one.get("kind"), one.get("metadata", {}).get("name")): one for one in objects}
    pods = [one["spec"]["template"] for one in objects if one.get("kind") in ("Deployment", "Job", "StatefulSet")]
    for template in pods:
        yield from _volumes(template["spec"], by_kind)
    for one in objects:
        spec = one.get("spec", {})
        if one.get("kind") in ("Deployment", "StatefulSet"):
            wanted, held = spec["selector"]["matchLabels"].items(), spec["template"]["metadata"]["labels"].items()
            if not wanted <= held:
                yield f"{one['kind']}: its selector does not choose its own pods"
        if one.get("kind") == "Service" and pods:
            chosen = [pod for pod in pods if spec.get("selector", {}).items() <= pod["metadata"]["labels"].items()]
            if not chosen:
                yield "Service: it chooses no pods"
            named = {
                port["name"] for pod in chosen for box in pod["spec"]["containers"] for port in box.get("ports", ())
            }
            for port in spec.get("ports", ()):
                target = port.get("targetPort")
                if isinstance(target, str) and target not in named:
                    yield f"Service: no container has a port named {target}"
        target = spec.get("scaleTargetRef")
        if target is not None and pods and (target.get("kind", "Deployment"), target.get("name")) not in by_kind:
            yield f"{one['kind']}: {target.get('name')} is not there to be scaled"


def _volumes(spec: dict[str, Any], by_kind: dict[Any, Any]) -> Iterator[str]:
    held = {volume["name"]: volume for volume in spec.get("volumes", ())}
    for box in (*spec["containers"], *spec.get("initContainers", ())):
        yield from (
            f"{box['name']}: mounts {mount['name']}, which is no volume of the pod"
            for mount in box.get("volumeMounts", ())
            if mount["name"] not in held
        )
    for volume in held.values():
        claim, config = volume.get("persistentVolumeClaim"), volume.get("configMap")
        if claim and ("PersistentVolumeClaim", claim["claimName"]) not in by_kind:
            yield f"volume {volume['name']}: no claim {claim['claimName']}"
        if config and ("ConfigMap", config["name"]) not in by_kind:
            yield f"volume {volume['name']}: no map {config['name']}"
