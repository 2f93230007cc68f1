"""Scheduling with prompts first, as SGLang does: a step reads prompts, or generates, never both.

While requests wait, are expected to fit, and seats are free, steps read prompts up to a chunk; else all that run gain a
token. Whether one fits is judged by an estimate of how long the answers of those that run become: a share of what they
may still generate, that falls with every step and is set anew after too little was kept. Where the cache is full, those
with the shortest answers so far are put back.

Reference: sgl-project/sglang 0.5.23 python/sglang/srt/managers/scheduler.py `get_next_batch_to_run`,
schedule_policy.py `PrefillAdder`, schedule_batch.py `retract_decode`, scheduler_components/new_token_ratio_tracker.py,
environ.py (the four constants).
"""

from __future__ import annotations

from tonnage.simulate.batching.replica import Generating, Job, Replica, steps_until
from tonnage.simulate.step_times import StepTimes
from tonnage.units import Seconds

__all__ = ["PromptsFirst"]

INITIAL_RATIO = 0.7
LEAST_OF_INITIAL = 0.14
DECAY_STEPS = 600
RETRACT_STEPS = 20
MOST_NEW_TOKENS = 4096  # of an answer, that are counted when its fit is judged


class PromptsFirst(Replica):
    """A replica of an engine that reads prompts and generates in turns."""

    def __init__(
        self,
        times: StepTimes,
        *,
        num_tokens: int,
        max_num_seqs: int,
        chunk_tokens: int,
        most_prefill_tokens: int = 16384,
        start_seconds: Seconds = 0.0,
    ) -> None:
        super().__init__(times, start_seconds)
        self.num_tokens = num_tokens
        self.max_num_seqs = max_num_seqs
        self.chunk_tokens = chunk_tokens
        self.most_prefill_tokens = most_prefill_tokens
        self._generating = Generating()
        self._running: dict[Job, None] = {}  # that generate
        self._chunked: Job | None = None  # whose prompt was cut
        self._num_chunked_tokens = 0  # cached of it
        self._is_full = False  # until a request ends nobody is taken in
        self._ratio = INITIAL_RATIO

    @property
    def num_running(self) -> int:
        """Requests that run."""
        return len(self._running) + (self._chunked is not None)

    @property
    def most_request_tokens(self) -> int:
        """Tokens of the longest request, prompt and answer, that can ever end."""
        return self.num_tokens

    @property
    def num_seats(self) -> int:
        """Requests that run at once, at most."""
        return self.max_num_seqs

    @property
    def cache_tokens(self) -> int:
        """Tokens that the cache holds."""
        return self.num_tokens

    def _running_jobs(self) -> list[Job]:
        return [*self._running, *([self._chunked] if self._chunked else [])]

    def _forget(self) -> None:
        self._running.clear()
        self._generating = Generating()
        self._chunked, self._num_chunked_tokens, self._is_full = None, 0, False

    def _used_tokens(self) -> int:
        return self._generating.total_tokens + self._num_chunked_tokens

    def _step(self, until_seconds: Seconds) -> None:
        reading = self._next_prompts()
        if reading:
            self._read(reading)
        else:
            self._generate(until_seconds)

    def _next_prompts(self) -> list[tuple[Job, int]]:
        """Return which prompts the next step reads, and how far."""
        if self._chunked is None and (not self.waiting or self._is_full):
            return []
        room, chunk = self._room(), min(self.chunk_tokens, self.most_prefill_tokens)
        reading: list[tuple[Job, int]] = []
        if self._chunked is not None:
            part = min(self._chunked.num_to_read - self._chunked.num_read, chunk)
            reading.append((self._chunked, part))
            chunk -= part
            room -= part + self._new_tokens(self._chunked)
        while self.waiting and chunk > 0:
            job = self.waiting[0]
            if len(self._running) + len(reading) >= self.max_num_seqs or self._wanted(job) > room:
                self._is_full = True
                break
            self.waiting.popleft()
            job.num_read = min(job.num_cached_tokens, job.num_to_read - 1) if not job.num_preemptions else 0
            part = min(job.num_to_read - job.num_read, chunk)
            room -= self._wanted(job)
            chunk -= part
            reading.append((job, part))
        return reading

    def _room(self) -> float:
        """Tokens of the cache that are free once those that run have ended, as the engine expects it."""
        generating = self._generating
        left = sum(min(job.finish_step - generating.step, MOST_NEW_TOKENS) for job in self._running)
        return self.num_tokens - self._used_tokens() - left * self._ratio

    @staticmethod
    def _new_tokens(job: Job) -> int:
        return min(job.output_tokens - job.num_generated, MOST_NEW_TOKENS)

    def _wanted(self, job: Job) -> int:
        return job.num_to_read + self._new_tokens(job)

    def _read(self, reading: list[tuple[Job, int]]) -> None:
        attention, num_read, ending = 0.0, 0, []
        self._chunked, self._num_chunked_tokens, cached = None, 0, 0
        for job, part in reading:
            attention += self.times.attention(job.num_read, job.num_read + part)
            job.num_read += part
            num_read += part
            if job.num_read >= job.num_to_read:
                ending.append(job)
                cached += job.num_read
            else:  # the last that is read: its chunk is full
                self._chunked, self._num_chunked_tokens = job, job.num_read
        seconds = self.times.mixed(0, 0, num_read, attention)
        if ending:  # its last matrix and sampling
            seconds += self.times.decode(len(ending), 0)
        self._pass(seconds, 1, self._used_tokens() + cached)
        self.running_seconds += seconds * len(ending)
        for job in ending:
            job.num_generated += 1
            if job.first_token_seconds is None:
                job.first_token_seconds = self.clock_seconds
            if job.num_generated >= job.output_tokens:
                self._finish(job)
                self._is_full = False
            else:
                self._running[job] = None
                self._generating.add(job)

    def _generate(self, until_seconds: Seconds) -> None:
        generating = self._generating
        while generating.num > 1 and generating.num > self.num_tokens - generating.total_tokens:
            self._put_back()
        free = self.num_tokens - generating.total_tokens
        most = max(1, min(generating.next_finish(), free // generating.num))
        number, seconds = steps_until(self.times, generating, most, until_seconds - self.clock_seconds)
        decay = INITIAL_RATIO * (1.0 - LEAST_OF_INITIAL) / DECAY_STEPS
        self._ratio = max(self._ratio - decay * number, INITIAL_RATIO * LEAST_OF_INITIAL)
        self._pass(seconds, number, self._used_tokens())
        for job in generating.advance(number):
            del self._running[job]
            self._finish(job)
            self._is_full = False

    def _put_back(self) -> None:
        """Put those with the shortest answers so far back until the next step has room, and expect longer answers."""
        generating = self._generating
        step = generating.step
        order = sorted(
            self._running, key=lambda job: (job.num_generated + step - job.start_step, -job.input_tokens), reverse=True
        )
        while True:
            job = order.pop()
            del self._running[job]
            generating.remove(job)
            job.num_to_read, job.num_read = job.input_tokens + job.num_generated, 0
            job.num_preemptions += 1
            self.num_preemptions += 1
            self.waiting.append(job)
            if len(order) <= 1 or len(order) <= self.num_tokens - generating.total_tokens:
                break
        decoded = sum(job.num_generated + step - job.start_step for job in order)
        wanted = sum(job.output_tokens for job in order)
        self._ratio = min(1.0, (decoded + RETRACT_STEPS * len(order)) / (wanted + 1))
