"""A Slurm cluster of two pretended machines with sixteen devices each, on loopback, for as long as the tests run.

Controller and both node daemons are real and run as the person who runs the tests, with files in a folder of their own;
users are not told apart (auth/none), so that neither munge nor root is needed.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.contract import readers

NODES = ("big1", "big2")
_CONFIGURATION = """ClusterName=contract
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
PlugStackConfig={folder}/plugins.conf
NodeName={first} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port_1} CPUs=256 RealMemory=4000000 Gres=gpu:16
NodeName={second} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port_2} CPUs=256 RealMemory=4000000 Gres=gpu:16
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """Start the daemons, yield the configuration file, and end them."""
    programs = {name: readers.tool(name) for name in ("slurmctld", "slurmd", "sbatch", "srun", "sinfo", "scontrol")}
    ports = free_ports(3)
    text = _CONFIGURATION.format(
        controller=ports[0], port_1=ports[1], port_2=ports[2], user=getpass.getuser(), folder=folder,
        first=NODES[0], second=NODES[1],
    )  # fmt: skip
    for name in ("state", *NODES):
        (folder / name).mkdir()
    for n in range(16):
        (folder / f"gpu{n}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-15]\n", encoding="utf-8")
    (folder / "plugins.conf").touch()
    configuration = folder / "slurm.conf"
    configuration.write_text(text, encoding="utf-8")
    commands = [[programs["slurmctld"], "-D", "-f", str(configuration)]]
    commands += [[programs["slurmd"], "-D", "-N", node, "-f", str(configuration)] for node in NODES]
    started = []
    try:
        for command in commands:
            with (folder / f"out{len(started)}").open("w", encoding="utf-8") as log:
                started.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
                )
        _wait_until_idle(programs["sinfo"], configuration, folder)
        yield configuration
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def free_ports(number: int) -> list[int]:
    """Return ports of loopback that nobody listens on now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def run(configuration: Path, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands against the cluster."""
    return subprocess.run(
        [readers.tool(words[0]), *words[1:]], cwd=folder, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "SLURM_CONF": str(configuration)},
    )  # fmt: skip


def wait_for(what, seconds: float = 30.0) -> bool:
    """Wait until something holds; return whether it came to hold."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.1)
    return False


def _wait_until_idle(sinfo: str, configuration: Path, folder: Path) -> None:
    def is_idle() -> bool:
        said = run(configuration, "sinfo", "--noheader", "--Node", "--format=%T").stdout.split()
        return said == ["idle"] * len(NODES)

    if not wait_for(is_idle):
        logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("*.log")))
        raise AssertionError(f"{sinfo} shows no idle nodes:\n{logs}")
