"""A training job of nothing but arithmetic, that keeps the interface of `jobs/train.py`; the supervisor is tried on it.

    python fake_job.py job.json

It is its own launcher: it forks the ranks, hands their sums round, and does as torchrun does when one ends badly: names
its code in a line, ends the others, and exits with 1. The state after a number of steps depends on every step's data,
their order and a random state, so that a resume that loses one of them ends with another loss.

The job: `ranks`, `training_arguments.max_steps`, `save_every`, `step_seconds`, `save_seconds`, and for faults `nan_at`
(a step; once, unless `nan_always`), `fail_at`, `exit_with`, `hang_at` with `hang_rank`, `work_at`
with `work_rank` and `work_seconds`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import select
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

KEPT = 3  # checkpoints
WIDTH = 4


class Rank:
    """One rank: it computes, tells, saves."""

    def __init__(self, job, rank, talk):
        self.job, self.rank, self.talk = job, rank, talk
        self.folder = Path(os.environ["TONNAGE_RUN_DIR"])
        self.attempt = int(os.environ["TONNAGE_ATTEMPT"])
        for name in ("metrics", "heartbeat", "checkpoints", "errors", "dumps"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.random = random.Random(7 + rank)
        self.weights = [0.0] * WIDTH
        self.step = 0
        self.is_asked = False
        signal.signal(signal.SIGTERM, self.ask)
        signal.signal(signal.SIGUSR1, self.dump)

    def ask(self, *_):
        self.is_asked = True

    def dump(self, _, frame):
        path = self.folder / "dumps" / f"attempt-{self.attempt:03d}-rank-{self.rank:05d}.stacks.txt"
        path.write_text("".join(traceback.format_stack(frame)))

    def beat(self, phase):
        path = self.folder / "heartbeat" / f"rank-{self.rank:05d}.json"
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        table = {"step": self.step, "phase": phase, "time": time.time(), "pid": os.getpid()}
        try:
            aside.write_text(json.dumps(table))
            aside.replace(path)
        except OSError:
            pass

    def tell(self, event, **more):
        line = {"time": time.time(), "event": event, "attempt": self.attempt, "rank": self.rank, "step": self.step}
        append(self.folder / "events.jsonl", {**line, **more})

    def sum(self, value):
        """Return the sum over all ranks, and whether any was asked to stop."""
        self.talk.send(json.dumps([value, self.is_asked]))
        total, is_asked = json.loads(self.talk.receive())
        return total, is_asked

    def run(self):
        self.beat("starting")
        self.resume()
        last = self.job["training_arguments"]["max_steps"]
        self.tell("resumed" if self.step else "started", num_steps=last)
        while self.step < last:
            is_asked = self.train()
            if is_asked or self.step % self.job.get("save_every", 5) == 0 or self.step == last:
                self.save()
            if is_asked and self.step < last:
                self.tell("stopping")
                return 75
        self.tell("finished")
        return 0

    def train(self):
        begun = time.time()
        self.beat("training")
        self.maybe_fail()
        noise = self.random.random()
        value = math.sin(self.step * 1.7 + self.rank) + 0.1 * noise
        if self.job.get("nan_at") == self.step + 1 and self.is_first_time("nan"):
            value = math.nan
        total, is_asked = self.sum(value)
        if math.isnan(total):
            self.tell("nonfinite", what="loss")
            raise FloatingPointError("the loss is not finite")
        place = self.step % WIDTH
        self.weights[place] = 0.9 * self.weights[place] + 0.1 * total + 0.01 * self.weights[place - 1]
        self.step += 1
        time.sleep(self.job.get("step_seconds", 0.004))
        loss = sum((1 - weight) ** 2 for weight in self.weights)
        seconds = time.time() - begun
        figures = {"tokens": 64, "tokens_per_s": 64 / seconds, "step_seconds": seconds, "host_memory_bytes": 1 << 24}
        append(
            self.folder / "metrics" / f"rank-{self.rank:05d}.jsonl",
            {"time": time.time(), "step": self.step, "loss": loss, "grad_norm": None, **figures},
        )
        print(f"[rank{self.rank}]: step {self.step} loss {loss:.6f} token {os.environ.get('HF_TOKEN', '')}", flush=True)
        return is_asked

    def maybe_fail(self):
        now = self.step + 1
        if self.job.get("exit_with") is not None:
            os._exit(self.job["exit_with"])
        if self.job.get("fail_at") == now:
            raise ValueError(f"broken at {time.time()} {os.environ.get('HF_TOKEN', '')}")
        if self.job.get("work_at") == now and self.job.get("work_rank") == self.rank:
            self.work()
        if self.job.get("hang_at") == now and self.job.get("hang_rank", 0) == self.rank and self.is_first_time("hang"):
            self.hang()

    def work(self):
        """Work for a while that the other ranks wait for, and tell so."""
        until = time.time() + self.job["work_seconds"]
        while time.time() < until:
            self.beat("encoding")
            time.sleep(0.05)

    def hang(self):
        """Do nothing for ever, but write a flight recorder's file when asked through its pipe, as NCCL's ranks do."""
        pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{self.rank}.pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        while True:
            time.sleep(0.02)
            if os.read(reader, 64):
                Path(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{self.rank}").write_text("recorded")

    def is_first_time(self, what):
        if self.job.get(f"{what}_always"):
            return True
        try:
            (self.folder / f"was-{what}-{self.rank}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def save(self):
        self.beat("saving")
        place = self.folder / "checkpoints" / f"step-{self.step:08d}"
        if place.is_dir():  # saved before, and found whole on resuming
            self.sum(0)
            return
        aside = place.with_name(f".writing-{place.name}")
        aside.mkdir(parents=True, exist_ok=True)
        name = f"rank-{self.rank:05d}.json"
        text = json.dumps(
            {
                "step": self.step,
                "weights": [weight.hex() for weight in self.weights],
                "random": self.random.getstate(),
            }
        )
        with (aside / name).open("w") as file:
            for start in range(0, len(text), 4096):
                file.write(text[start : start + 4096])
                file.flush()
                time.sleep(self.job.get("save_seconds", 0.01) / 3)
            os.fsync(file.fileno())
        self.sum(0)  # all have written
        if self.rank == 0:
            files = [
                {
                    "name": path.name,
                    "bytes": path.stat().st_size,
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                }
                for path in sorted(aside.glob("rank-*.json"))
            ]
            table = {"schema": 1, "step": self.step, "world_size": self.job["ranks"], "engine": "fake", "files": files}
            (aside / "manifest.json").write_text(json.dumps(table))
            aside.rename(place)
            self.tell("checkpoint_saved", name=place.name)
            for old in sorted((self.folder / "checkpoints").glob("step-*"))[:-KEPT]:
                shutil.rmtree(old, ignore_errors=True)
        self.beat("training")

    def resume(self):
        for place in sorted((self.folder / "checkpoints").glob("step-*"), reverse=True):
            if not is_whole(place):
                self.tell("checkpoint_skipped", name=place.name)
                continue
            state = json.loads((place / f"rank-{self.rank:05d}.json").read_text())
            self.step = state["step"]
            self.weights = [float.fromhex(text) for text in state["weights"]]
            kind, inner, gauss = state["random"]
            self.random.setstate((kind, tuple(inner), gauss))
            return


def is_whole(place):
    try:
        table = json.loads((place / "manifest.json").read_text())
        return bool(table["files"]) and all(
            hashlib.sha256((place / one["name"]).read_bytes()).hexdigest() == one["sha256"] for one in table["files"]
        )
    except (OSError, ValueError, KeyError):
        return False


def append(path, value):
    line = json.dumps(value).encode() + b"\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(handle, line)
        os.close(handle)
    except OSError:
        pass


class Talk:
    """Lines over two pipes."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.rest = reader, writer, b""

    def send(self, text):
        os.write(self.writer, text.encode() + b"\n")

    def receive(self):
        while b"\n" not in self.rest:
            data = os.read(self.reader, 65536)
            if not data:
                raise ConnectionResetError("Connection reset by peer")
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line


def child(job, rank, talk):
    """Be a rank, to its end."""
    os.setsid()
    one = Rank(job, rank, talk)
    try:
        code = one.run()
    except BaseException as error:  # noqa: BLE001  told to the file, and the code
        traceback.print_exc()
        table = {"type": type(error).__name__, "message": str(error), "step": one.step, "phase": "training"}
        try:
            path = one.folder / "errors" / f"attempt-{one.attempt:03d}-rank-{rank:05d}.json"
            path.write_text(json.dumps({**table, "time": time.time()}))
        except OSError:
            pass
        code = 1
    sys.stdout.flush()
    os._exit(code)


def launch(job):
    """Fork the ranks, pass sums round, and end as torchrun ends."""
    ranks, talks, ours = {}, {}, []
    for rank in range(job["ranks"]):
        down, up = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            for handle in (*ours, down[1], up[0]):
                os.close(handle)
            child(job, rank, Talk(down[0], up[1]))
        os.close(down[0])
        os.close(up[1])
        ours += [down[1], up[0]]
        ranks[pid], talks[rank] = rank, Talk(up[0], down[1])
    if ranks:
        signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGTERM) for pid in ranks])
    codes, said = {}, {}
    while ranks:
        ready, _, _ = select.select(
            [t.reader for r, t in talks.items() if r not in said and r not in codes], [], [], 0.02
        )
        for rank, talk in talks.items():
            if talk.reader in ready:
                try:
                    said[rank] = json.loads(talk.receive())
                except ConnectionResetError:
                    said.pop(rank, None)
                    talks = {r: t for r, t in talks.items() if r != rank}
                    break
        if len(said) == job["ranks"]:
            total = math.fsum(value for value, _ in said.values())  # the order of arrival must not show
            answer = json.dumps([total, any(asked for _, asked in said.values())])
            said = {}
            for talk in talks.values():
                with contextlib.suppress(OSError):
                    talk.send(answer)
        for pid in tuple(ranks):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                rank = ranks.pop(pid)
                codes[rank] = os.waitstatus_to_exitcode(status)
                if codes[rank]:
                    words = f"failed (exitcode: {codes[rank]}) local_rank: {rank} (pid: {pid}) of binary: fake"
                    print(words, file=sys.stderr, flush=True)
                if codes[rank] not in (0, 75):
                    for other in ranks:
                        os.kill(other, signal.SIGKILL)
    return 0 if set(codes.values()) == {0} else 1


if __name__ == "__main__":
    sys.exit(launch(json.loads(Path(sys.argv[1]).read_text())))
