"""How long one step of a server takes, from what runs in it: tables of the estimate's own formulae, read quickly.

A replay asks for the time of a step a hundred thousand times. The formulae of `estimate.serving_speed` are asked once,
for columns of batch sizes, depths and prompt lengths; between the entries the time is interpolated.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from tonnage.estimate.serving import DecodeWork, PrefillWork, ServingLoad, ServingRates
from tonnage.estimate.serving_memory import at_least
from tonnage.estimate.serving_speed import (
    batch_of_step,
    busy_step_seconds,
    decode_work,
    prefill_seconds,
    prefill_work,
    tokens_per_step,
)
from tonnage.units import Count, Seconds

__all__ = ["StepTimes", "step_times"]

_DEPTHS = (0, *(2**power for power in range(6, 25)))
_ATTENTION = (0, *(2**power for power in range(4, 25)))


class StepTimes:
    """Times of the steps of one replica."""

    __slots__ = (
        "_attention",
        "_batches",
        "_depth_slopes",
        "_depth_values",
        "_mixed",
        "_prompts",
        "_scale",
        "most_running",
    )

    def __init__(
        self,
        depth_values: list[list[float]],
        prompts: list[int],
        batches: list[int],
        mixed: list[list[float]],
        attention: list[float],
        scale: list[float],
    ) -> None:
        self.most_running = len(depth_values) - 1
        self._depth_values = depth_values  # by batch size and depth; row 0 is empty
        self._depth_slopes = [
            [(b - a) / (y - x) for a, b, x, y in zip(row, row[1:], _DEPTHS, _DEPTHS[1:], strict=False)] + [0.0]
            for row in depth_values
        ]
        self._prompts, self._batches, self._mixed = prompts, batches, mixed
        self._attention, self._scale = attention, scale

    def decode(self, num_sequences: int, total_tokens: float) -> Seconds:
        """Time of a step in which only sequences that generate take part, with so many tokens cached in all."""
        depth = total_tokens / num_sequences
        at = bisect_right(_DEPTHS, depth) - 1
        return self._depth_values[num_sequences][at] + (depth - _DEPTHS[at]) * self._depth_slopes[num_sequences][at]

    def decode_line(self, num_sequences: int, total_tokens: float) -> tuple[Seconds, Seconds, float]:
        """Time of such a step, what each token of depth more adds, and up to which depth that holds."""
        depth = total_tokens / num_sequences
        at = bisect_right(_DEPTHS, depth) - 1
        slope = self._depth_slopes[num_sequences][at]
        end = _DEPTHS[at + 1] if at + 1 < len(_DEPTHS) else float("inf")
        return self._depth_values[num_sequences][at] + (depth - _DEPTHS[at]) * slope, slope, end

    def attention(self, start_tokens: int, end_tokens: int) -> Seconds:
        """Time of what grows with a prompt's length in reading its tokens from one place to another, alone."""
        return self._read_attention(end_tokens) - (self._read_attention(start_tokens) if start_tokens else 0.0)

    def _read_attention(self, tokens: int) -> Seconds:
        at = min(bisect_right(_ATTENTION, tokens) - 1, len(_ATTENTION) - 2)
        low, high = _ATTENTION[at], _ATTENTION[at + 1]
        share = (tokens - low) / (high - low)
        return tokens * (self._attention[at] * (1.0 - share) + self._attention[at + 1] * share)

    def mixed(self, num_sequences: int, total_tokens: float, prompt_tokens: int, attention_seconds: Seconds) -> Seconds:
        """Time of a step that reads so many tokens of prompts beside sequences that generate.

        The sequences include those whose prompt ends in the step: its last part gives their first token.
        """
        prompts = self._prompts
        at = min(bisect_right(prompts, prompt_tokens) - 1, len(prompts) - 2)
        share = (prompt_tokens - prompts[at]) / (prompts[at + 1] - prompts[at])
        batches = self._batches
        row = min(bisect_right(batches, num_sequences) - 1, len(batches) - 1)
        low = self._mixed[row]
        seconds = low[at] * (1.0 - share) + low[at + 1] * share
        if batches[row] != num_sequences and row + 1 < len(batches):
            high = self._mixed[row + 1]
            part = (num_sequences - batches[row]) / (batches[row + 1] - batches[row])
            seconds += part * (high[at] * (1.0 - share) + high[at + 1] * share - seconds)
        if num_sequences:
            seconds += self.decode(num_sequences, total_tokens) - self._depth_values[num_sequences][0]
        return seconds + attention_seconds * self._scale[num_sequences]


def step_times(load: ServingLoad, rates: ServingRates, most_running: int, most_prompt_tokens: int) -> StepTimes:
    """Work out the tables of one replica.

    Parameters
    ----------
    load : ServingLoad
        The load; its lengths and concurrency play no part.
    rates : ServingRates
        Achieved fractions and fixed costs of the engine.
    most_running : int
        Most sequences that ever run together. [1]
    most_prompt_tokens : int
        Most tokens of prompts that one step reads. [1]

    Returns
    -------
    StepTimes
        The tables.

    Notes
    -----
    Derived: the same functions as the closed form of `estimate.serving_speed`; what of a prompt grows with its length
    squared is kept apart, as chunks of it begin at any depth. Stages each pass their share of a step's tokens.
    """
    sizes = np.arange(1, most_running + 1)
    drafting = (1.0 + load.num_draft_tokens * rates.draft_cost_ratio) / (
        tokens_per_step(load.num_draft_tokens, rates) if load.num_draft_tokens else 1.0
    )
    depths = np.array(_DEPTHS, dtype=float)
    nothing = _without_length(prefill_work(replace(load, input_tokens=1)))
    by_depth = busy_step_seconds(_decode(load, rates, sizes[:, None], depths[None, :]), nothing, rates, 0.0, drafting)
    batches = [0, *_spread(most_running)]
    prompts = [0, *_spread(max(most_prompt_tokens, 1))]
    share = load.pp if rates.is_pipelined else 1
    tokens = np.array(prompts[1:], dtype=float) / share
    reading = prefill_work(replace(load, input_tokens=tokens))
    plain = _without_length(reading)
    some = np.array(batches[1:])
    filled = busy_step_seconds(_decode(load, rates, some[:, None], 0.0), plain, rates, 1.0, drafting)
    empty = np.array([by_depth[number - 1, 0] for number in batches[1:]])[:, None]
    alone = np.concatenate(([0.0], np.broadcast_to(prefill_seconds(plain, rates), tokens.shape)))
    mixed = [
        alone.tolist(),
        *np.concatenate((empty, np.broadcast_to(filled, (len(some), len(tokens)))), axis=1).tolist(),
    ]
    return StepTimes(
        depth_values=[[], *np.broadcast_to(by_depth, (most_running, len(_DEPTHS))).tolist()],
        prompts=prompts,
        batches=batches,
        mixed=mixed,
        attention=_attention_per_token(load, rates),
        scale=_scale(load, rates, most_running, share),
    )


def _decode(load: ServingLoad, rates: ServingRates, num_sequences: Count, depth: Count) -> DecodeWork:
    return decode_work(load, batch_of_step(load, num_sequences, rates), depth)


def _spread(most: int) -> list[int]:
    """Whole numbers from 1 to the most: all of the first, then an eighth apart."""
    numbers = [1]
    while numbers[-1] < most:
        numbers.append(min(most, max(numbers[-1] + 1, numbers[-1] * 9 // 8)))
    return numbers


def _without_length(work: PrefillWork) -> PrefillWork:
    return replace(work, attention_flop_seconds=0.0, score_element_seconds=0.0)


def _attention_per_token(load: ServingLoad, rates: ServingRates) -> list[float]:
    """Time a token of what grows with a prompt's length, at the lengths of the table."""
    tokens = np.array((1, *_ATTENTION[1:]), dtype=float)
    work = prefill_work(replace(load, input_tokens=tokens))
    seconds = (
        work.attention_flop_seconds / rates.attention_compute_ratio + work.score_element_seconds * rates.score_bytes
    )
    return (np.broadcast_to(seconds, tokens.shape) / tokens).tolist()


def _scale(load: ServingLoad, rates: ServingRates, most_running: int, share: Count) -> list[float]:
    """Return what a second of a prompt alone takes of a step with so many sequences, as `busy_step_seconds` has it."""
    sizes = np.arange(1, most_running + 1)
    micro = at_least(sizes / share, 1)
    probe = decode_work(load, 1, 0)
    longest = 1.0 + rates.is_pipelined * (probe.stage_ratio - 1.0)
    return [1.0 / share, *(longest * rates.batch_ratio ** (1.0 - 1.0 / micro) / share).tolist()]
