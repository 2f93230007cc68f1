"""Requests to an OpenAI-compatible server, streamed, each with the moments at which its tokens came.

In an open loop requests go out when they are due, whatever the server does, and latencies count from when they were due:
a server that stalls is charged for all that it kept waiting (no coordinated omission). In a closed loop each of a number
of clients asks again as soon as it is answered.

References: Gil Tene, "How NOT to Measure Latency", 2013 (coordinated omission); platform.openai.com/docs/api-reference,
streaming of completions and chat completions, `stream_options.include_usage`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tonnage.errors import OutsideError
from tonnage.load.prompts import Prompt
from tonnage.load.types import Api, Outcome, Sample, Target

__all__ = ["send_at", "send_by_clients"]

_MOST_LINE_BYTES = 8 << 20
_MOST_REASON = 120
_WORDS = {429: Outcome.TOO_MANY}


def _aiohttp() -> Any:
    try:
        import aiohttp  # noqa: PLC0415  the extra's, and slow to import
    except ImportError:
        raise OutsideError("aiohttp is not installed", where="bench", fix="pip install 'tonnage[bench]'") from None
    return aiohttp


class _Sender:
    """A connection pool and a clock."""

    def __init__(self, target: Target, session: Any, aiohttp: Any) -> None:
        self.target, self.session, self.aiohttp = target, session, aiohttp
        self.start = time.perf_counter()
        path = "/v1/chat/completions" if target.api is Api.CHAT else "/v1/completions"
        self.url = target.url.rstrip("/") + path
        self.headers = {"Content-Type": "application/json"}
        if target.key:
            self.headers["Authorization"] = f"Bearer {target.key}"

    def now(self) -> float:
        return time.perf_counter() - self.start

    def body(self, prompt: Prompt) -> bytes:
        target = self.target
        asked: dict[str, Any] = {
            "model": target.model,
            "max_tokens": prompt.output_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if target.asks_to_go_on:
            asked["ignore_eos"] = True
        if target.api is Api.CHAT:
            asked["messages"] = [{"role": "user", "content": prompt.text}]
        else:
            asked["prompt"] = prompt.text
        return json.dumps(asked).encode()

    async def ask(self, prompt: Prompt, due: float, *, is_warmup: bool) -> Sample:
        """Send one request and read its stream to the end; never raises for what the server does."""
        sent = self.now()
        stream = _Stream(self.target.api, self.now)
        outcome, reason = Outcome.OK, ""
        try:
            async with self.session.post(self.url, data=self.body(prompt), headers=self.headers) as response:
                if response.status != 200:
                    outcome = _WORDS.get(
                        response.status, Outcome.CLIENT_FAULT if response.status < 500 else Outcome.SERVER_FAULT
                    )
                    text = (await response.content.read(2000)).decode("utf-8", "replace")
                    reason = f"{response.status} {' '.join(text.split())}"
                else:
                    await stream.read(response.content)
                    outcome, reason = stream.judged()
        except TimeoutError:
            outcome, reason = Outcome.TIMED_OUT, f"after {self.target.timeout_seconds:g} s"
        except self.aiohttp.ClientConnectorError as error:
            outcome, reason = Outcome.REFUSED, str(error)
        except (self.aiohttp.ClientError, ConnectionError, ValueError) as error:
            outcome, reason = Outcome.CLOSED, str(error) or type(error).__name__
        return Sample(
            scheduled_seconds=due,
            sent_seconds=sent,
            first_token_seconds=stream.first,
            end_seconds=stream.last if outcome is Outcome.OK and stream.last is not None else self.now(),
            input_tokens=stream.input_tokens,
            output_tokens=stream.output_tokens or stream.num_chunks,
            outcome=outcome,
            is_warmup=is_warmup,
            worst_gap_seconds=stream.worst_gap,
            reason=reason[:_MOST_REASON],
        )


class _Stream:
    """What the server sends, event by event."""

    def __init__(self, api: Api, now: Callable[[], float]) -> None:
        self.api, self.now = api, now
        self.first: float | None = None
        self.last: float | None = None
        self.worst_gap: float | None = None
        self.num_chunks = 0
        self.input_tokens: int | None = None
        self.output_tokens = 0
        self.is_done = False
        self.fault = ""

    async def read(self, content: Any) -> None:
        rest = b""
        async for data in content.iter_any():
            moment = self.now()
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            if len(rest) > _MOST_LINE_BYTES:
                self.fault = "a line without end"
                return
            for line in lines:
                if line.startswith(b"data:"):
                    self.event(line[5:].strip(), moment)
                    if self.fault:
                        return
        if rest.startswith(b"data:"):
            self.event(rest[5:].strip(), self.now())

    def event(self, data: bytes, moment: float) -> None:
        if data == b"[DONE]":
            self.is_done = True
            return
        try:
            value = json.loads(data)
            if "error" in value:
                self.fault = f"error in the stream: {value['error']}"
                return
            if usage := value.get("usage"):
                self.input_tokens, self.output_tokens = usage.get("prompt_tokens"), int(usage["completion_tokens"])
            said = any(self.text_of(choice) for choice in value.get("choices", ()))
        except (ValueError, TypeError, AttributeError, KeyError):
            self.fault = f"no event: {data[:60].decode('utf-8', 'replace')}"
            return
        if not said:
            return
        self.num_chunks += 1
        if self.first is None:
            self.first = moment
        elif self.last is not None:
            self.worst_gap = max(self.worst_gap or 0.0, moment - self.last)
        self.last = moment

    def text_of(self, choice: dict[str, Any]) -> str:
        if self.api is Api.COMPLETIONS:
            return choice.get("text") or ""
        delta = choice.get("delta") or {}
        return delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""

    def judged(self) -> tuple[Outcome, str]:
        if self.fault:
            return Outcome.MALFORMED, self.fault
        if not self.is_done:
            return Outcome.CLOSED, "the stream ended without its last event"
        return (Outcome.OK, "") if self.num_chunks else (Outcome.EMPTY, "")


def _session(target: Target, aiohttp: Any) -> Any:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=False),
        timeout=aiohttp.ClientTimeout(total=target.timeout_seconds),
        read_bufsize=1 << 16,
    )


async def _warmed(
    target: Target,
    prompts: Sequence[Prompt],
    warmup: int,
    load: Callable[[_Sender, list[Sample]], Awaitable[None]],
) -> list[Sample]:
    """Send the warm-up one by one, set the clock to zero, and load; return all that was sent."""
    aiohttp = _aiohttp()
    async with _session(target, aiohttp) as session:
        sender = _Sender(target, session, aiohttp)
        samples = [await sender.ask(prompts[at % len(prompts)], sender.now(), is_warmup=True) for at in range(warmup)]
        sender.start = time.perf_counter()
        await load(sender, samples)
    return samples


def send_at(
    target: Target,
    prompts: Sequence[Prompt],
    due_seconds: Sequence[float],
    *,
    warmup: int = 0,
    told: Callable[[int], None] | None = None,
) -> list[Sample]:
    """Send requests when they are due, whatever became of those before (an open loop).

    Parameters
    ----------
    target : Target
        The server.
    prompts : sequence of Prompt
        What is asked, in order.
    due_seconds : sequence of numeric
        When each is sent. [s]
    warmup : int
        Requests sent one after another before, that count for nothing. [1]
    told : callable
        Called with the number of requests that ended.

    Returns
    -------
    list of Sample
        One a request, warm-up first.

    Raises
    ------
    OutsideError
        The client's library is not installed.

    Notes
    -----
    Derived.
    """

    async def load(sender: _Sender, samples: list[Sample]) -> None:
        tasks = []
        for prompt, due in zip(prompts, due_seconds, strict=True):
            wait = due - sender.now()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(sender.ask(prompt, due, is_warmup=False)))
            if told and not len(tasks) % 64:
                told(sum(task.done() for task in tasks))
        samples += await asyncio.gather(*tasks)

    return asyncio.run(_warmed(target, prompts, warmup, load))


def send_by_clients(
    target: Target,
    prompts: Sequence[Prompt],
    *,
    num_clients: int,
    until_seconds: float | None = None,
    warmup: int = 0,
    told: Callable[[int], None] | None = None,
) -> list[Sample]:
    """Let a number of clients ask, each again as soon as it is answered (a closed loop).

    Parameters
    ----------
    target : Target
        The server.
    prompts : sequence of Prompt
        What is asked, in order; begun anew at their end where a duration is given.
    num_clients : int
        Requests in flight. [1]
    until_seconds : numeric
        No request is begun after it; None sends each prompt once. [s]
    warmup : int
        Requests before, that count for nothing. [1]
    told : callable
        Called with the number of requests that ended.

    Returns
    -------
    list of Sample
        One a request, warm-up first.

    Raises
    ------
    OutsideError
        The client's library is not installed.

    Notes
    -----
    Derived. A request is due when its client is free.
    """

    async def load(sender: _Sender, samples: list[Sample]) -> None:
        numbers = iter(range(len(prompts)) if until_seconds is None else range(1 << 62))

        async def client() -> None:
            for number in numbers:
                due = sender.now()
                if until_seconds is not None and due >= until_seconds:
                    return
                samples.append(await sender.ask(prompts[number % len(prompts)], due, is_warmup=False))
                if told:
                    told(len(samples) - warmup)
                if samples[-1].outcome is Outcome.REFUSED:
                    await asyncio.sleep(0.05)  # nobody listens: do not spin

        await asyncio.gather(*(client() for _ in range(num_clients)))

    return asyncio.run(_warmed(target, prompts, warmup, load))
