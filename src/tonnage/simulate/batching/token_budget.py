"""Scheduling by a budget of tokens a step, as vLLM V1 does; TensorRT-LLM's way with room kept to the end.

Those that run come first, each with its next token or the next part of its prompt; what is left of the budget goes to
those that wait, in the order of their arrival, in parts where a prompt is longer (chunked prefill). Where the cache has
no block for a token, the request taken in last is put back and later reads everything again.

References: vllm-project/vllm 0.33.0 vllm/v1/core/sched/scheduler.py `schedule`, vllm/v1/core/kv_cache_manager.py
`allocate_slots`; NVIDIA/TensorRT-LLM, capacity scheduler policy GUARANTEED_NO_EVICT (its default).
"""

from __future__ import annotations

from tonnage.simulate.batching.replica import Generating, Job, Replica, steps_until
from tonnage.simulate.step_times import StepTimes
from tonnage.units import Seconds

__all__ = ["TokenBudget"]


class TokenBudget(Replica):
    """A replica of an engine that fills each step with tokens up to a budget."""

    def __init__(
        self,
        times: StepTimes,
        *,
        num_blocks: int,
        block_tokens: int = 16,
        max_num_seqs: int,
        max_batched_tokens: int,
        keeps_room: bool = False,  # for the whole answer when a request is taken in: nothing is ever put back
        start_seconds: Seconds = 0.0,
    ) -> None:
        super().__init__(times, start_seconds)
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self.max_num_seqs = max_num_seqs
        self.max_batched_tokens = max_batched_tokens
        self.keeps_room = keeps_room
        self._num_free = num_blocks
        self._running: dict[Job, None] = {}  # in the order in which they were taken in
        self._reading: list[Job] = []  # those of them whose prompt is not read to its end
        self._generating = Generating()
        self._needs = [0] * block_tokens  # how many of them need a block at each step, by the step's remainder

    @property
    def num_running(self) -> int:
        """Requests that run."""
        return len(self._running)

    @property
    def most_request_tokens(self) -> int:
        """Tokens of the longest request, prompt and answer, that can ever end."""
        return self.num_blocks * self.block_tokens

    @property
    def num_seats(self) -> int:
        """Requests that run at once, at most."""
        return self.max_num_seqs

    @property
    def cache_tokens(self) -> int:
        """Tokens that the cache holds."""
        return self.num_blocks * self.block_tokens

    def _running_jobs(self) -> list[Job]:
        return list(self._running)

    def _forget(self) -> None:
        self._running.clear()
        self._reading.clear()
        self._generating = Generating()
        self._needs = [0] * self.block_tokens
        self._num_free = self.num_blocks

    def _step(self, until_seconds: Seconds) -> None:
        if self._reading or self._takes_in():
            self._mixed_step()
        else:
            self._steps_alike(until_seconds)

    def _takes_in(self) -> bool:
        """Whether the first that waits can be taken in, as far as seats and blocks go."""
        if not self.waiting or len(self._running) >= self.max_num_seqs:
            return False
        return self._blocks_of(self.waiting[0]) <= self._num_free

    def _blocks_of(self, job: Job) -> int:
        tokens = job.most_tokens - 1 if self.keeps_room else job.num_to_read
        return -(-tokens // self.block_tokens)

    def _steps_alike(self, until_seconds: Seconds) -> None:
        """Do steps in which everyone generates, up to the first that ends, wants a block in vain, or passes the moment."""
        generating = self._generating
        steps, blocks = self._steps_with_room(generating.next_finish())
        if not steps:
            self._make_room()
            steps, blocks = self._steps_with_room(1)
        number, seconds = steps_until(self.times, generating, steps, until_seconds - self.clock_seconds)
        if number != steps:
            blocks = self._blocks_within(number)
        self._num_free -= blocks
        self._pass(seconds, number, self._used_tokens())
        for job in generating.advance(number):
            self._end(job)

    def _blocks_within(self, num_steps: int) -> int:
        """Return how many blocks the next steps need."""
        if self.keeps_room:
            return 0
        whole, rest = divmod(num_steps, self.block_tokens)
        start = self._generating.step + 1
        some = sum(self._needs[(start + at) % self.block_tokens] for at in range(rest))
        return whole * self._generating.num + some

    def _steps_with_room(self, most: int) -> tuple[int, int]:
        """Return how many of the next steps have the blocks that they need, and how many blocks that is."""
        blocks = self._blocks_within(most)
        if blocks <= self._num_free:
            return most, blocks
        number = self._num_free // self._generating.num * self.block_tokens
        blocks, start = self._blocks_within(number), self._generating.step + 1
        while blocks + self._needs[(start + number) % self.block_tokens] <= self._num_free:
            blocks += self._needs[(start + number) % self.block_tokens]
            number += 1
        return number, blocks

    def _make_room(self) -> None:
        """Put requests back, the last taken in first, until the next step has its blocks."""
        while self._blocks_within(1) > self._num_free:
            self._put_back(next(reversed(self._running)))

    def _put_back(self, job: Job) -> None:
        if job in self._reading:
            self._reading.remove(job)
        else:
            self._let_go(job)
            self._generating.remove(job)
        del self._running[job]
        self._num_free += job.num_blocks
        job.num_blocks = 0
        job.num_to_read = job.input_tokens + job.num_generated
        job.num_read = 0
        job.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(job)

    def _end(self, job: Job) -> None:
        """Give a finished request's blocks back."""
        self._let_go(job)
        self._num_free += job.num_blocks
        del self._running[job]
        self._finish(job)

    def _let_go(self, job: Job) -> None:
        """Count the blocks of a request that generated, and forget when it needs more.

        Of its tokens the last is not cached: the step that gave it cached all before.
        """
        if not self.keeps_room:
            cached = job.num_read + self._generating.step - job.start_step
            job.num_blocks = -(-cached // self.block_tokens)
            self._needs[job.phase] -= 1

    def _mixed_step(self) -> None:
        """Do one step in which prompts are read, beside those that generate."""
        generating, put_back = self._generating, self.num_preemptions
        if generating.num:
            self._make_room()
            self._num_free -= self._blocks_within(1)
        budget = self.max_batched_tokens - generating.num
        attention, num_read, ending = 0.0, 0, []
        for job in self._reading:
            part = min(job.num_to_read - job.num_read, budget)
            if part <= 0:
                break
            attention += self.times.attention(job.num_read, job.num_read + part)
            job.num_read += part
            num_read, budget = num_read + part, budget - part
        if self.num_preemptions == put_back:
            while budget > 0 and self._takes_in():
                job = self._take_in()
                part = min(job.num_to_read - job.num_read, budget)
                attention += self.times.attention(job.num_read, job.num_read + part)
                job.num_read += part
                num_read, budget = num_read + part, budget - part
        ending = [job for job in self._reading if job.num_read >= job.num_to_read]
        seconds = self.times.mixed(generating.num + len(ending), generating.total_tokens, num_read, attention)
        self._pass(seconds, 1, self._used_tokens())
        for job in generating.advance(1) if generating.num else ():
            self._end(job)
        if ending:
            self._reading = [job for job in self._reading if job.num_read < job.num_to_read]
            for job in ending:
                self._begin(job)

    def _take_in(self) -> Job:
        job = self.waiting.popleft()
        job.num_blocks = self._blocks_of(job)
        self._num_free -= job.num_blocks
        job.num_read = min(job.num_cached_tokens, job.num_to_read - 1) if not job.num_preemptions else 0
        self._running[job] = None
        self._reading.append(job)
        return job

    def _begin(self, job: Job) -> None:
        """Give a request its token after the last of its prompt; let it generate the rest."""
        job.num_generated += 1
        if job.first_token_seconds is None:
            job.first_token_seconds = self.clock_seconds
        if job.num_generated >= job.output_tokens:
            self._num_free += job.num_blocks
            del self._running[job]
            self._finish(job)
            return
        self._generating.add(job)
        if not self.keeps_room:
            job.phase = (self._generating.step + 1 - job.num_read) % self.block_tokens
            self._needs[job.phase] += 1

    def _used_tokens(self) -> int:
        return (self.num_blocks - self._num_free) * self.block_tokens
