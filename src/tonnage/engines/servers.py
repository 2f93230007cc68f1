"""How an engine's server is installed, reached and asked for its health, from `[server]` of its data file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tonnage import datafiles
from tonnage.engines.types import Late
from tonnage.nouns import noun

__all__ = ["ServerFacts", "is_image_seen", "server_of"]


@noun
class ServerFacts:
    """What a supervisor needs to know of a server."""

    port: int
    health_path: str
    source: str
    flags: tuple[str, ...] = ()  # with {host} and {port}
    env: Mapping[str, str] = field(default_factory=dict[str, str])  # with {host} and {port}
    metrics_path: str | None = None
    packages: tuple[str, ...] = ()  # pip requirements; none: not a Python program
    image: Mapping[str, str] = field(default_factory=dict[str, str])  # by maker of the device, "cpu" without one
    image_program: tuple[str, ...] = ()  # the program's path in the image, where it is not on PATH
    health_command: tuple[str, ...] = ()  # inside an image that has no curl
    node_flags: tuple[str, ...] = ()  # that join several machines, with {num_nodes} and variables of `Late`
    follower_flags: tuple[str, ...] = ()  # on all machines but the first
    image_user: str | None = None  # "uid:gid" that the image was prepared for, beside root
    queue_metric: str | None = None  # requests that wait, as its metrics page names them
    running_metric: str | None = None  # requests that run

    def flags_of_nodes(self, num_nodes: int) -> tuple[str, ...]:
        """Return the flags that make one server of several machines."""
        made = (flag.replace("{num_nodes}", str(num_nodes)) for flag in self.node_flags)
        return tuple(Late(flag) if "$" in flag else flag for flag in made)

    def flags_at(self, host: str, port: int) -> tuple[str, ...]:
        """Return the flags that make it listen."""
        return tuple(flag.format(host=host, port=port) for flag in self.flags)

    def env_at(self, host: str, port: int) -> dict[str, str]:
        """Return the variables that make it listen."""
        return {name: value.format(host=host, port=port) for name, value in self.env.items()}


def server_of(data: str) -> ServerFacts:
    """Return the facts of an engine's data file, its version put in.

    >>> server_of("vllm").image["nvidia"]
    'vllm/vllm-openai:v0.33.0'
    """
    table = datafiles.table(f"engines/{data}.toml")
    found, version = table["server"], table["version"]

    def with_version(text: str) -> str:
        return text.replace("{version}", version)

    return ServerFacts(
        port=found["port"],
        health_path=found["health_path"],
        source=found["source"],
        flags=tuple(found.get("flags", ())),
        env=found.get("env", {}),
        metrics_path=found.get("metrics_path"),
        packages=tuple(with_version(one) for one in found.get("packages", ())),
        image={maker: with_version(one) for maker, one in found.get("image", {}).items()},
        image_program=tuple(found.get("image_program", ())),
        health_command=tuple(found.get("health_command", ())),
        node_flags=tuple(found.get("node_flags", ())),
        follower_flags=tuple(found.get("follower_flags", ())),
        image_user=found.get("image_user"),
        queue_metric=found.get("queue_metric"),
        running_metric=found.get("running_metric"),
    )


def is_image_seen(image: str) -> bool:
    """Return whether a tag was read in a public source; others are built from a version by the repository's habit.

    >>> is_image_seen("ollama/ollama:0.12.0")
    True
    """
    return any(row["image"] == image and row["is_seen"] == "yes" for row in datafiles.rows("engines/images.csv"))
