"""Docker Compose: one container a replica with its own devices, and a router in front where there are several.

Keys as in the Compose specification (compose-spec/spec.md): services, deploy.resources.reservations.devices,
healthcheck, ulimits, shm_size.
"""

from __future__ import annotations

from typing import Any, Final

from tonnage.errors import RequestError
from tonnage.messages import say
from tonnage.render.parts import (
    LINK_TEST,
    before_start,
    common_files,
    container_env,
    container_words,
    health_words,
    image_notes,
    supervise_script,
)
from tonnage.render.quote import compose_value, to_yaml
from tonnage.render.scripts import comment
from tonnage.render.targets.local import start_script
from tonnage.render.types import Bundle, BundleFile, Role, Service

_EXPORTER: Final = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"
_EXPORTER_PORT: Final = 9400
_START: Final = "docker compose up -d"
_ROUTER: Final = "nginx:1.28.0-alpine"
_ROUTER_PORT: Final = 8080
_LOGS: Final = {"driver": "json-file", "options": {"max-size": "100m", "max-file": "3"}}


def bundle(service: Service) -> Bundle:
    """Return the files that run a service under Docker Compose."""
    if service.image is None:
        raise RequestError(
            say("deploy.no_image", name=service.engine_name), where="--place compose",
            fix=say("deploy.other_place"),
        )  # fmt: skip
    if max(service.num_nodes, service.num_machines) > 1:
        raise RequestError(say("deploy.one_node"), where="--place compose", fix=say("deploy.many_nodes"))
    is_job = service.role is Role.JOB
    notes = (
        *service.notes,
        *image_notes(service, *((_ROUTER,) if service.num_replicas > 1 else ())),
        *((say("places.exporter"),) if service.num_devices and service.vendor == "nvidia" else ()),
        *((say("places.results_in_volume", name=service.name),) if is_job else ()),
    )
    test = "docker compose run --rm nccl-test"
    files = [*common_files(service, _START, "compose", test, notes), _file(service)]
    files += [supervise_script(service.program), start_script(service)] if is_job else []
    if service.num_replicas > 1:
        files.append(BundleFile(path="router.conf", text=router(service), purpose=say("deploy.purpose_router")))
    return Bundle(
        name=service.name,
        place="compose",
        files=tuple(files),
        start=_START,
        stop="docker compose down",
        notes=notes,
        before=before_start(service, "compose"),
    )


def _file(service: Service) -> BundleFile:
    head = comment(say("deploy.head", name=service.name, command=_START)) + "\n"
    text = head + to_yaml(compose_value(project(service)))
    return BundleFile(path="compose.yaml", text=text, purpose=say("deploy.purpose_compose"))


def project(service: Service) -> dict[str, Any]:
    """Return the whole Compose file as a value, every word literal."""
    servers = {
        (service.name if service.num_replicas == 1 else f"{service.name}-{n}"): container(service, n)
        for n in range(service.num_replicas)
    }
    if service.num_replicas > 1:
        servers["router"] = _router_container(list(servers))
    if service.has_collectives:
        servers["nccl-test"] = _link_test(service)
    if service.num_devices and service.vendor == "nvidia":
        servers["gpu-exporter"] = _exporter()
    return {"services": {"volume-owner": _owner(service), **servers}, "volumes": {"cache": {}}}


def _owner(service: Service) -> dict[str, Any]:
    """Return the container that hands the volume to the user of the others, and ends."""
    return {
        "image": service.image,
        "entrypoint": ["chown", service.image_user, "/cache"],
        "user": "0:0",
        "network_mode": "none",
        "volumes": ["cache:/cache"],
        "security_opt": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
        "cap_add": ["CHOWN"],
        "restart": "no",
    }


def _exporter() -> dict[str, Any]:
    """Return the container that shows the devices' metrics to Prometheus, started only when it is asked for."""
    device = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    return {
        "image": _EXPORTER,
        "user": "0:0",
        "cap_drop": ["ALL"],
        "cap_add": ["SYS_ADMIN"],  # DCGM's profiling counters ask for it
        "security_opt": ["no-new-privileges:true"],
        "ports": [f"127.0.0.1:{_EXPORTER_PORT}:{_EXPORTER_PORT}"],
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
        "profiles": ["monitor"],
        "restart": "unless-stopped",
        "logging": _LOGS,
    }


def _link_test(service: Service) -> dict[str, Any]:
    """Return the container that tests the links, started only when it is asked for."""
    words = f"cp /bundle/all_reduce.py /bundle/{LINK_TEST} /tmp && exec bash /tmp/{LINK_TEST}"
    made = container(service, 0)
    kept = ("image", "environment", "user", "init", "shm_size", "ulimits", "security_opt", "cap_drop", "deploy",
            "devices", "group_add")  # fmt: skip
    return {
        **{key: made[key] for key in kept if key in made},
        "entrypoint": ["bash"],
        "command": ["-c", words],
        "volumes": ["./:/bundle:ro"],
        "profiles": ["test"],
        "restart": "no",
    }


def container(service: Service, replica: int) -> dict[str, Any]:
    """Return one container: what runs, what it may take, and when it counts as healthy."""
    first = replica * service.num_devices
    is_server = service.role is Role.SERVER
    words = container_words(service, "/cache/work")
    folder = service.model_folder
    model = [{"type": "bind", "source": folder, "target": folder, "read_only": True}] if folder else []
    made: dict[str, Any] = {
        "image": service.image,
        "entrypoint": [words[0]],
        "command": list(words[1:]),
        "environment": {**container_env(service), **dict.fromkeys(service.secrets)},
        "user": service.image_user,
        "init": True,
        "depends_on": {"volume-owner": {"condition": "service_completed_successfully"}},
        "working_dir": "/bundle",
        "volumes": ["./:/bundle:ro", "cache:/cache", *model],
        "shm_size": service.shared_memory_bytes,
        # What lies in /dev/shm counts as the container's; without swap a leak ends it instead of slowing the host.
        "mem_limit": service.host_memory_bytes + service.shared_memory_bytes,
        "memswap_limit": service.host_memory_bytes + service.shared_memory_bytes,
        "oom_score_adj": 500,
        "ulimits": {"memlock": -1, "stack": 67108864, "nofile": 1048576},
        "security_opt": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
        "restart": "unless-stopped" if is_server else "no",
        "stop_grace_period": f"{round(service.stop_seconds)}s",
        "logging": _LOGS,
    }
    if service.num_devices and service.vendor == "nvidia":
        ids = [str(first + n) for n in range(service.num_devices)]
        device = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
        made["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    elif service.num_devices and service.vendor == "amd":
        made |= {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video", "render"]}
    if service.probe is not None:
        if service.num_replicas == 1:
            made["ports"] = [f"127.0.0.1:{service.probe.port}:{service.probe.port}"]
        made["healthcheck"] = {
            "test": ["CMD", *health_words(service)],
            "interval": "10s",
            "timeout": "5s",
            "retries": 6,
            "start_period": f"{round(service.start_seconds)}s",
        }
    return made


def _router_container(servers: list[str]) -> dict[str, Any]:
    return {
        "image": _ROUTER,
        "user": "101:101",  # nginx of the image
        "read_only": True,
        "tmpfs": ["/tmp", "/var/cache/nginx:uid=101,gid=101", "/run:uid=101,gid=101"],  # noqa: S108
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "healthcheck": {
            "test": ["CMD", "wget", "-q", "-O", "/dev/null", f"http://127.0.0.1:{_ROUTER_PORT}/router-health"],
            "interval": "10s",
            "timeout": "5s",
            "retries": 3,
        },
        "volumes": ["./router.conf:/etc/nginx/conf.d/default.conf:ro"],
        "ports": [f"127.0.0.1:{_ROUTER_PORT}:{_ROUTER_PORT}"],
        "depends_on": {name: {"condition": "service_healthy"} for name in servers},
        "restart": "unless-stopped",
        "logging": _LOGS,
    }


def router(service: Service) -> str:
    """Return nginx's configuration: a request goes to the server with the fewest open connections, and streams."""
    assert service.probe is not None
    servers = "".join(
        f"    server {service.name}-{n}:{service.probe.port} max_fails=3 fail_timeout=10s;\n"
        for n in range(service.num_replicas)
    )
    return f"""upstream servers {{
    least_conn;
{servers}}}
server {{
    listen {_ROUTER_PORT};
    client_max_body_size 64m;
    location = /router-health {{ access_log off; return 200; }}
    location / {{
        proxy_pass http://servers;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_buffering off;
        proxy_read_timeout 1h;
        proxy_next_upstream error timeout http_502 http_503;
    }}
}}
"""
