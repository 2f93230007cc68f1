"""The nouns `Bundle` and `Service`: files that start a plan, and what is to run, before a place is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from tonnage.nouns import noun

if TYPE_CHECKING:
    from tonnage.estimate.types import Candidate
    from tonnage.plan.types import Plan
    from tonnage.render.build import Build
    from tonnage.render.weights import Weights


class Role(StrEnum):
    """What a service is to its supervisor: a server runs for ever, a job ends."""

    SERVER = "server"
    JOB = "job"


@noun
class BundleFile:
    """One file of a bundle; `path` is relative to the bundle's folder, with forward slashes."""

    path: str
    text: str
    purpose: str
    is_executable: bool = False


@noun
class Bundle:
    """The files that start a plan in a place, and the one command that does."""

    name: str
    place: str
    files: tuple[BundleFile, ...]
    start: str  # run inside the folder
    stop: str = ""
    before: tuple[str, ...] = ()  # commands that come first, once; run again they change nothing
    notes: tuple[str, ...] = ()  # what a person has to know or do


@noun
class Setting:
    """A variable that the plan asks for, and why."""

    name: str
    value: str
    reason: str


@noun
class Probe:
    """How a server tells that it is there, and where it shows its metrics."""

    port: int
    health_path: str
    metrics_path: str | None = None
    command: tuple[str, ...] = ()  # inside an image that has no curl


@noun
class Scaling:
    """How replicas follow the load, as `tonnage simulate --autoscale` compares it."""

    least: int
    most: int
    target: float  # requests a replica
    counts_running: bool = False  # requests in flight; else only those that wait


@noun
class Service:
    """What runs on each node, with the needs that a place has to meet. Words are literal: no place may expand them."""

    plan: Plan
    name: str  # of letters, digits and dashes
    role: Role
    argv: tuple[str, ...]  # of the process on one node, or of the launcher that starts one process a device
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])  # beside the command
    packages: tuple[str, ...] = ()  # pip requirements of the engine where no image carries it
    build: Build | None = None  # of a program that no package carries
    image: str | None = None  # None: the engine has no image that is known
    image_program: tuple[str, ...] = ()  # what stands for `argv[0]` in the image, where its path differs
    probe: Probe | None = None
    secrets: tuple[str, ...] = ()  # names of variables that the person sets; values never enter a file
    num_devices: int = 0  # a node
    num_nodes: int = 1
    vendor: str = "nvidia"
    num_replicas: int = 1
    host_memory_bytes: int = 0  # the process may take so much; more is a leak
    shared_memory_bytes: int = 0  # /dev/shm
    start_seconds: float = 600.0  # until a healthy server answers, at the slowest
    stop_seconds: float = 60.0  # to drain, or to write a checkpoint
    weights: Weights | None = None  # where they come from, where a launch names other ones than the plan
    notes: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()  # variables with their reasons; a person's own win
    is_torch_job: bool = False  # the command starts PyTorch to train
    has_launcher: bool = False  # one that ends with a code of its own, whatever its processes end with
    has_collectives: bool = False  # devices talk to each other through NCCL
    follower_words: tuple[str, ...] = ()  # on all nodes but the first
    own: Candidate | None = None  # what one replica runs, where the plan's copies are servers of their own
    num_machines: int = 1  # that replicas are spread over
    image_user: str = "1000:1000"  # uid:gid inside a container
    queue_metric: str | None = None  # requests that wait, as the metrics page names them
    running_metric: str | None = None  # requests that run
    scaling: Scaling | None = None  # None: by requests that wait, as the plan's concurrency suggests
    engine: str = ""  # program that runs it; none: the one that the plan was counted for
    model_folder: str = ""  # where a model of this machine lies; none: the engine fetches it

    @property
    def engine_name(self) -> str:
        """Name of the program that runs it."""
        return self.engine or self.candidate.engine

    @property
    def program(self) -> str:
        """Script that places start: it ends with the code of the processes."""
        return "job.sh" if self.has_launcher else "start.sh"

    @property
    def candidate(self) -> Candidate:
        """What one replica runs."""
        return self.own or self.plan.estimate.candidate
