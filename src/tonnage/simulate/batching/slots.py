"""Scheduling by slots, as llama.cpp's server does: so many requests at once, each with a context of its own.

A request takes a free slot or waits for one. Every step first takes the next token of each slot that generates, then
prompts in the order of the slots up to the batch. A slot's cache is its own: nothing is ever put back, and a request
longer than a slot's context is refused.

Reference: ggml-org/llama.cpp tools/server/server-context.cpp `update_slots`, `get_available_slot`, tools/server/README.md
(`--parallel`, `--batch-size`, `--cont-batching`).
"""

from __future__ import annotations

from heapq import heappop, heappush

from tonnage.simulate.batching.replica import Generating, Job, Replica, steps_until
from tonnage.simulate.step_times import StepTimes
from tonnage.units import Seconds

__all__ = ["Slots"]


class Slots(Replica):
    """A replica of an engine with a fixed number of slots."""

    def __init__(
        self,
        times: StepTimes,
        *,
        num_slots: int,
        slot_tokens: int,
        batch_tokens: int = 2048,
        start_seconds: Seconds = 0.0,
    ) -> None:
        super().__init__(times, start_seconds)
        self.num_slots = num_slots
        self.slot_tokens = slot_tokens
        self.batch_tokens = batch_tokens
        self._forget()

    @property
    def num_running(self) -> int:
        """Requests that have a slot."""
        return len(self._slots)

    @property
    def most_request_tokens(self) -> int:
        """Tokens of the longest request, prompt and answer, that a slot holds."""
        return self.slot_tokens

    @property
    def num_seats(self) -> int:
        """Requests that run at once, at most."""
        return self.num_slots

    @property
    def cache_tokens(self) -> int:
        """Tokens that the cache holds."""
        return self.num_slots * self.slot_tokens

    def _running_jobs(self) -> list[Job]:
        return [self._slots[slot] for slot in sorted(self._slots)]

    def _forget(self) -> None:
        self._generating = Generating()
        self._slots: dict[int, Job] = {}
        self._reading: dict[int, Job] = {}
        self._slot_of: dict[Job, int] = {}
        # The slot used longest ago is taken first; at the start all are alike, in their order.
        self._idle = [(-1.0, slot) for slot in range(self.num_slots)]

    def _step(self, until_seconds: Seconds) -> None:
        while self.waiting and self._idle:
            job = self.waiting.popleft()
            _, slot = heappop(self._idle)
            job.num_read = min(job.num_cached_tokens, job.num_to_read - 1)
            self._slots[slot] = self._reading[slot] = job
            self._slot_of[job] = slot
        if self._reading:
            self._mixed_step()
        else:
            generating = self._generating
            number, seconds = steps_until(
                self.times, generating, generating.next_finish(), until_seconds - self.clock_seconds
            )
            self._pass(seconds, number, self._used_tokens())
            for job in generating.advance(number):
                self._end(job)

    def _mixed_step(self) -> None:
        generating = self._generating
        room = self.batch_tokens - generating.num
        attention, num_read, ending = 0.0, 0, []
        for slot in sorted(self._reading):
            if room <= 0:
                break
            job = self._reading[slot]
            part = min(job.num_to_read - job.num_read, room)
            attention += self.times.attention(job.num_read, job.num_read + part)
            job.num_read += part
            num_read, room = num_read + part, room - part
            if job.num_read >= job.num_to_read:
                ending.append(slot)
        seconds = self.times.mixed(generating.num + len(ending), generating.total_tokens, num_read, attention)
        self._pass(seconds, 1, self._used_tokens())
        for job in generating.advance(1) if generating.num else ():
            self._end(job)
        for slot in ending:
            job = self._reading.pop(slot)
            job.num_generated = 1
            job.first_token_seconds = self.clock_seconds
            if job.output_tokens == 1:
                self._end(job)
            else:
                generating.add(job)

    def _end(self, job: Job) -> None:
        slot = self._slot_of.pop(job)
        del self._slots[slot]
        heappush(self._idle, (self.clock_seconds, slot))
        self._finish(job)

    def _used_tokens(self) -> int:
        return self._generating.total_tokens + sum(job.num_read for job in self._reading.values())
