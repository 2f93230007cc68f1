"""How long requests wait for each other on a server that keeps a number of them in flight: means, tails, goodput."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from tonnage.nouns import noun
from tonnage.units import Count, Ratio, RequestsPerS, Seconds

if TYPE_CHECKING:
    from statistics import NormalDist

__all__ = ["Waiting", "share_within", "tail_seconds", "waiting"]


@cache
def _normal() -> NormalDist:
    from statistics import NormalDist  # noqa: PLC0415  one request at a time waits for nobody

    return NormalDist()


@noun
class Waiting:
    """What requests see of a server that is never short of them."""

    requests_per_s: RequestsPerS
    busy_ratio: Ratio  # of the server's time, what reading prompts takes
    queue_seconds: Seconds  # until a request may run
    wait_seconds: Seconds  # mean wait of a prompt for those before it, then
    prompt_seconds: Seconds  # a prompt of its own, and its first token
    tpot_seconds: Seconds  # mean over requests
    tpot_deviation_seconds: Seconds  # between requests

    @property
    def ttft_seconds(self) -> Seconds:
        """Mean time to the first token; derived."""
        return self.queue_seconds + self.wait_seconds + self.prompt_seconds

    def ttft_quantile_seconds(self, quantile: Ratio) -> Seconds:
        """Time that a share of the requests have their first token within, at least the mean above the middle."""
        wait = tail_seconds(self.wait_seconds, self.busy_ratio, quantile)
        return self.queue_seconds + max(wait, self.wait_seconds if quantile > 0.5 else 0.0) + self.prompt_seconds

    def tpot_quantile_seconds(self, quantile: Ratio) -> Seconds:
        """Time a token that a share of the requests stay under; derived: many prompts pass, so they vary normally."""
        return self.tpot_seconds + _normal().inv_cdf(quantile) * self.tpot_deviation_seconds

    def goodput_per_s(self, ttft_limit_seconds: Seconds | None, tpot_limit_seconds: Seconds | None) -> RequestsPerS:
        """Return the requests a second that keep both limits; derived: the two are taken as independent."""
        share = 1.0
        if ttft_limit_seconds is not None:
            room = ttft_limit_seconds - self.queue_seconds - self.prompt_seconds
            share *= share_within(self.wait_seconds, self.busy_ratio, room)
        if tpot_limit_seconds is not None:
            share *= _share_under(self.tpot_seconds, self.tpot_deviation_seconds, tpot_limit_seconds)
        return self.requests_per_s * share


def waiting(
    *,
    num_requests: Count,
    num_running: Count,
    output_tokens: Count,
    token_seconds: Seconds,
    busy_token_seconds: Seconds,
    prompt_seconds: Seconds,
    first_token_seconds: Seconds,
) -> Waiting:
    """Work out what each of a fixed number of clients sees, who ask again as soon as they are answered.

    Parameters
    ----------
    num_requests : numeric
        Requests in flight, those that wait for room included. [1]
    num_running : numeric
        Those that the server runs together. [1]
    output_tokens : numeric
        Tokens that each generates. [1]
    token_seconds : numeric
        Time of a step for all that run, without prompts. [s]
    busy_token_seconds : numeric
        Time in which each of them gains a token, the prompts read meanwhile included. [s]
    prompt_seconds : numeric
        Time to read one prompt alone. [s]
    first_token_seconds : numeric
        Time of the step that gives the first token. [s]

    Returns
    -------
    Waiting
        Rates, means and spreads.

    Notes
    -----
    Derived. Each cycle of `output_tokens` steps reads as many prompts as run; what steps take longer is theirs. A prompt
    that arrives finds others before it as in a queue with random arrivals and one length of service, never more than all
    others; a request's tokens are slowed by those that arrive while it runs, a Poisson number.

    References
    ----------
    .. [1] D. Gross et al., "Fundamentals of Queueing Theory", 4th edition, Wiley 2008, section 5.1 (Pollaczek and
       Khintchine: the mean wait of M/D/1).

    Examples
    --------
    >>> one = waiting(num_requests=1, num_running=1, output_tokens=100, token_seconds=0.01, busy_token_seconds=0.012,
    ...               prompt_seconds=0.2, first_token_seconds=0.01)
    >>> round(one.requests_per_s, 4), round(one.ttft_seconds, 3), one.tpot_seconds
    (0.8333, 0.21, 0.01)
    """
    rate = num_running / (output_tokens * busy_token_seconds)
    others = num_running - 1.0
    slowed = max(busy_token_seconds - token_seconds, 0.0)
    busy = slowed / busy_token_seconds * others / max(num_running, 1.0)
    wait = busy * prompt_seconds / (2.0 * max(1.0 - busy, 1e-9))
    share = slowed / max(num_running, 1.0)  # of a token's time, what one other prompt takes
    return Waiting(
        requests_per_s=rate,
        busy_ratio=busy,
        queue_seconds=(num_requests - num_running) / rate,
        wait_seconds=min(wait, others * prompt_seconds),
        prompt_seconds=prompt_seconds + first_token_seconds,
        tpot_seconds=token_seconds + others * share,
        tpot_deviation_seconds=math.sqrt(others) * share,
    )


def tail_seconds(mean_seconds: Seconds, busy_ratio: Ratio, quantile: Ratio) -> Seconds:
    """Wait that a share of arrivals do not exceed.

    Parameters
    ----------
    mean_seconds : numeric
        Mean wait of all, those that do not wait included. [s]
    busy_ratio : numeric
        Share that has to wait at all. [0-1]
    quantile : numeric
        Share of arrivals. [0-1]

    Returns
    -------
    numeric
        Wait. [s]

    Notes
    -----
    Those that wait do so exponentially long, with the mean that makes the mean of all right.

    References
    ----------
    .. [1] J. F. C. Kingman, "The heavy traffic approximation in the theory of queues", 1965.

    Examples
    --------
    >>> tail_seconds(0.5, 0.5, 0.4), round(tail_seconds(0.5, 0.5, 0.99), 2)
    (0.0, 3.91)
    """
    waits = 1.0 - quantile
    if busy_ratio <= waits:
        return 0.0
    return mean_seconds / busy_ratio * math.log(busy_ratio / waits)


def share_within(mean_seconds: Seconds, busy_ratio: Ratio, limit_seconds: Seconds) -> Ratio:
    """Share of arrivals whose wait stays within a limit; the inverse of `tail_seconds`.

    Parameters
    ----------
    mean_seconds : numeric
        Mean wait of all. [s]
    busy_ratio : numeric
        Share that has to wait at all. [0-1]
    limit_seconds : numeric
        The longest wait that will do. [s]

    Returns
    -------
    numeric
        Share; 0 below no wait at all. [0-1]

    References
    ----------
    .. [1] J. F. C. Kingman, "The heavy traffic approximation in the theory of queues", 1965.

    Examples
    --------
    >>> share_within(0.5, 0.5, -1.0), round(share_within(0.5, 0.5, 3.912), 2)
    (0.0, 0.99)
    """
    if limit_seconds < 0.0:
        return 0.0
    if mean_seconds <= 0.0 or busy_ratio <= 0.0:
        return 1.0
    return 1.0 - busy_ratio * math.exp(-limit_seconds * busy_ratio / mean_seconds)


def _share_under(mean_seconds: Seconds, deviation_seconds: Seconds, limit_seconds: Seconds) -> Ratio:
    if deviation_seconds <= 0.0:
        return float(mean_seconds <= limit_seconds)
    return _normal().cdf((limit_seconds - mean_seconds) / deviation_seconds)
