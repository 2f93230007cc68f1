"""Docker Compose: one container a replica with its own devices, and a router in front where there are several.

Keys as in the Compose specification (compose-spec/spec.md): services, deploy.resources.reservations.devices,
healthcheck, ulimits, shm_size.
"""

from __future__ import annotations

from typing import Any, Final

from tonnage.errors import RequestError
from tonnage.messages import say
from tonnage.render.parts import common_files, container_words, health_words
from tonnage.render.quote import compose_value, to_yaml
from tonnage.render.scripts import comment
from tonnage.render.types import Bundle, BundleFile, Role, Service

_ROUTER: Final = "nginx:1.28.0-alpine"
_ROUTER_PORT: Final = 8080
_USER: Final = "1000:1000"
_LOGS: Final = {"driver": "json-file", "options": {"max-size": "100m", "max-file": "3"}}


def bundle(service: Service) -> Bundle:
    """Return the files that run a service under Docker Compose."""
    if service.image is None:
        raise RequestError(
            say("deploy.no_image", name=service.plan.estimate.candidate.engine), where="--place compose",
            fix=say("deploy.other_place"),
        )  # fmt: skip
    if max(service.num_nodes, service.num_machines) > 1:
        raise RequestError(say("deploy.one_node"), where="--place compose", fix=say("deploy.many_nodes"))
    files = [*common_files(service, "docker compose up -d", "compose"), _file(service)]
    if service.num_replicas > 1:
        files.append(BundleFile(path="router.conf", text=router(service), purpose=say("deploy.purpose_router")))
    return Bundle(
        name=service.name,
        place="compose",
        files=tuple(files),
        start="docker compose up -d",
        stop="docker compose down",
        notes=service.notes,
    )


def _file(service: Service) -> BundleFile:
    head = comment(say("deploy.head", name=service.name, command="docker compose up -d")) + "\n"
    text = head + to_yaml(compose_value(project(service)))
    # The one value that Compose is to fill in: the token of the person's own environment.
    return BundleFile(path="compose.yaml", text=text, purpose=say("deploy.purpose_compose"))


def project(service: Service) -> dict[str, Any]:
    """Return the whole Compose file as a value, every word literal."""
    servers = {
        (service.name if service.num_replicas == 1 else f"{service.name}-{n}"): container(service, n)
        for n in range(service.num_replicas)
    }
    if service.num_replicas > 1:
        servers["router"] = _router_container(list(servers))
    return {"services": servers, "volumes": {"cache": {}}}


def container(service: Service, replica: int) -> dict[str, Any]:
    """Return one container: what runs, what it may take, and when it counts as healthy."""
    first = replica * service.num_devices
    is_server = service.role is Role.SERVER
    words = container_words(service)
    made: dict[str, Any] = {
        "image": service.image,
        "entrypoint": [words[0]],
        "command": list(words[1:]),
        "environment": {**service.env, "HF_HOME": "/cache", "HOME": "/cache", **dict.fromkeys(service.secrets)},
        "user": _USER,
        "init": True,
        "working_dir": "/bundle",
        "volumes": ["./:/bundle" + (":ro" if is_server else ""), "cache:/cache"],
        "shm_size": service.shared_memory_bytes,
        "mem_limit": service.host_memory_bytes,
        "ulimits": {"memlock": -1, "stack": 67108864, "nofile": 1048576},
        "security_opt": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
        "restart": "unless-stopped" if is_server else "on-failure:5",
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
