"""What all schedulers share: a request on its way, a replica's clock, and what it counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from heapq import heappop, heappush
from math import ceil, inf, sqrt

from tonnage.simulate.step_times import StepTimes
from tonnage.units import Count, Seconds

__all__ = ["Job", "Replica"]


class Job:
    """One request while it is served; times are of the replay's clock."""

    __slots__ = (
        "arrival_seconds",
        "client",
        "finish_seconds",
        "finish_step",
        "first_token_seconds",
        "input_tokens",
        "num_blocks",
        "num_cached_tokens",
        "num_generated",
        "num_preemptions",
        "num_read",
        "num_to_read",
        "output_tokens",
        "phase",
        "start_step",
    )

    def __init__(
        self, arrival_seconds: float, input_tokens: int, output_tokens: int, client: int = 0, num_cached_tokens: int = 0
    ) -> None:
        self.arrival_seconds = arrival_seconds
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.client = client
        self.num_cached_tokens = num_cached_tokens  # of the prompt, those whose cache is there already
        self.num_to_read = input_tokens  # tokens to read before it generates; after a preemption, its own answer too
        self.num_read = 0
        self.num_generated = 0
        self.num_blocks = 0
        self.num_preemptions = 0
        self.phase = 0  # of the blocks: at which steps it needs a new one
        self.start_step = 0  # step at which it last began to generate
        self.finish_step = 0  # step that gives its last token; -1 once it was put back
        self.first_token_seconds: float | None = None
        self.finish_seconds: float | None = None

    @property
    def most_tokens(self) -> int:
        """Tokens of prompt and answer together."""
        return self.input_tokens + self.output_tokens


class Replica(ABC):
    """One copy of a server: takes requests, and works until a moment.

    A step, once begun, is finished; what arrives meanwhile takes part in the next.
    """

    def __init__(self, times: StepTimes, start_seconds: Seconds = 0.0) -> None:
        self.times = times
        self.clock_seconds = start_seconds
        self.finished: list[Job] = []
        self.num_preemptions = 0
        self.num_steps = 0
        self.busy_seconds = 0.0
        self.used_token_seconds = 0.0  # integral of the cache in use
        self.running_seconds = 0.0  # integral of the requests that run
        self.most_used_tokens = 0
        self.waiting: deque[Job] = deque()

    @property
    @abstractmethod
    def num_running(self) -> int:
        """Requests that run."""

    @property
    def num_present(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + self.num_running

    def submit(self, job: Job) -> None:
        """Take a request that arrives now."""
        self.waiting.append(job)

    def advance(self, until_seconds: Seconds, *, stops_on_finish: bool = False) -> None:
        """Work until a moment, or until nothing is left to do, or until a request is finished."""
        finished = len(self.finished)
        while self.clock_seconds < until_seconds and self.num_present:
            self._step(until_seconds)
            if stops_on_finish and len(self.finished) > finished:
                return
        if not self.num_present and until_seconds != float("inf"):
            self.clock_seconds = max(self.clock_seconds, until_seconds)

    def take_back(self) -> list[Job]:
        """Give up all requests, as where the machine is taken away; what they generated is lost."""
        jobs = [*self._running_jobs(), *self.waiting]
        self.waiting.clear()
        self._forget()
        for job in jobs:
            job.num_read = job.num_generated = job.num_blocks = 0
            job.num_to_read = job.input_tokens
            job.first_token_seconds = None
        return jobs

    @property
    @abstractmethod
    def most_request_tokens(self) -> int:
        """Tokens of the longest request, prompt and answer, that can ever end."""

    @property
    @abstractmethod
    def num_seats(self) -> int:
        """Requests that run at once, at most."""

    @property
    @abstractmethod
    def cache_tokens(self) -> int:
        """Tokens that the cache holds."""

    @abstractmethod
    def _step(self, until_seconds: Seconds) -> None:
        """Do one step, or many alike, of which the last may end after the moment."""

    @abstractmethod
    def _running_jobs(self) -> list[Job]:
        """Return the requests that run."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop all that runs."""

    def _pass(self, seconds: Seconds, num_steps: int, used_tokens: Count) -> None:
        """Let time pass with what runs now."""
        self.clock_seconds += seconds
        self.busy_seconds += seconds
        self.num_steps += num_steps
        self.running_seconds += seconds * self.num_running
        self.used_token_seconds += seconds * used_tokens
        self.most_used_tokens = max(self.most_used_tokens, int(used_tokens))

    def _finish(self, job: Job) -> None:
        job.finish_seconds = self.clock_seconds
        self.finished.append(job)


class Generating:
    """Sequences that gain one token a step, all together; the steps are counted, not done one by one."""

    __slots__ = ("_heap", "_serial", "num", "step", "total_tokens")

    def __init__(self) -> None:
        self.step = 0  # steps done
        self.num = 0
        self.total_tokens = 0  # cached, of all
        self._heap: list[tuple[int, int, Job]] = []
        self._serial = 0

    def add(self, job: Job) -> None:
        """Begin to generate: the first token, or the next after a preemption, is there."""
        job.start_step = self.step
        job.finish_step = self.step + job.output_tokens - job.num_generated
        self.num += 1
        self.total_tokens += job.num_read
        self._serial += 1
        heappush(self._heap, (job.finish_step, self._serial, job))

    def remove(self, job: Job) -> None:
        """Stop to generate, for now: keep the tokens that it has."""
        done = self.step - job.start_step
        job.num_generated += done
        self.total_tokens -= job.num_read + done
        self.num -= 1
        job.finish_step = -1

    def next_finish(self) -> int:
        """Return the steps until the first of them ends."""
        heap = self._heap
        while heap[0][0] != heap[0][2].finish_step:
            heappop(heap)
        return heap[0][0] - self.step

    def advance(self, num_steps: int) -> list[Job]:
        """Do steps; return those that end with the last of them."""
        self.step += num_steps
        self.total_tokens += self.num * num_steps
        heap, ended = self._heap, []
        while heap and heap[0][0] <= self.step:
            finish, _, job = heappop(heap)
            if finish == job.finish_step:
                self.remove(job)
                ended.append(job)
        return ended

    def jobs(self) -> list[Job]:
        """Return all, the first to end first."""
        return [job for finish, _, job in sorted(self._heap) if finish == job.finish_step]


def steps_until(times: StepTimes, generating: Generating, most_steps: int, seconds: Seconds) -> tuple[int, Seconds]:
    """Return how many steps alike to do, the last of which may pass a moment, and how long they take.

    Notes
    -----
    Derived: the i-th step takes a + b*i, as each adds a token to every sequence, as far as the table's line goes; n of
    them take n*a + b*n*(n - 1)/2.
    """
    first, slope, end = times.decode_line(generating.num, generating.total_tokens)
    depth = generating.total_tokens / generating.num
    most = most_steps if end - depth >= most_steps else max(1, int(end - depth))
    first -= slope / 2.0
    wanted = 2.0 * seconds / (first + sqrt(first * first + 2.0 * slope * seconds)) if seconds < inf else inf
    number = most if wanted >= most else max(1, ceil(wanted - 1e-9))
    return number, number * (first + slope * number / 2.0)
