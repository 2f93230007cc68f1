"""When requests come and how long they are: read from a trace, or drawn at a rate."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import numpy as np

from tonnage.errors import BadFileError
from tonnage.nouns import noun
from tonnage.units import Count, Ratio, RequestsPerS, Seconds

__all__ = ["Requests", "bursty", "constant", "faster", "first_of", "poisson", "read_requests"]

MOST_REQUESTS = 2_000_000
MOST_TOKENS = 100_000_000
# Names of columns as public traces write them, in small letters.
_ARRIVAL = ("timestamp", "arrival_seconds", "arrival", "time", "arrived_at")
_INPUT = ("contexttokens", "input_tokens", "prompt_tokens", "request tokens", "num_prefill_tokens")
_OUTPUT = ("generatedtokens", "output_tokens", "completion_tokens", "response tokens", "num_decode_tokens")


@noun
class Requests:
    """Requests in the order of their arrival; one entry each in three tuples."""

    arrival_seconds: tuple[float, ...]  # after the start of the replay
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        """Hold what every reader relies on."""
        assert len(self.arrival_seconds) == len(self.input_tokens) == len(self.output_tokens)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_seconds)

    @property
    def span_seconds(self) -> Seconds:
        """Time from the first arrival to the last; derived."""
        return self.arrival_seconds[-1] - self.arrival_seconds[0] if self.arrival_seconds else 0.0

    @property
    def requests_per_s(self) -> RequestsPerS | None:
        """Mean rate; None where all come at once. Derived: intervals over the time they take."""
        return (len(self) - 1) / self.span_seconds if self.span_seconds > 0 else None


def read_requests(text: str, name: str = "requests.csv") -> Requests:
    """Read a trace of requests.

    Parameters
    ----------
    text : str
        Comma-separated lines under a header that names three columns: when (`TIMESTAMP` or `arrival_seconds`: a date
        with a time, or seconds), tokens of the prompt (`ContextTokens` or `input_tokens`) and tokens of the answer
        (`GeneratedTokens` or `output_tokens`). Other columns are left alone.
    name : str
        The file's name, for messages.

    Returns
    -------
    Requests
        Sorted by arrival, the first at second 0.

    Raises
    ------
    BadFileError
        A column is missing, a value is none, or there is no request.

    References
    ----------
    .. [1] P. Patel et al., "Splitwise", ISCA 2024, arXiv:2311.18677: the Azure LLM inference traces and their columns.

    Examples
    --------
    >>> read_requests("TIMESTAMP,ContextTokens,GeneratedTokens\\n2023-11-16 18:15:46.68,374,44\\n"
    ...               "2023-11-16 18:15:50.99,396,109\\n").arrival_seconds
    (0.0, 4.31)
    """
    lines = csv.reader(text.lstrip("\ufeff").splitlines())
    try:
        columns = _columns(next(lines, []), name)
        rows = sorted(_rows(lines, columns, name), key=lambda row: row[0])
    except csv.Error as error:
        raise BadFileError(f"is no comma-separated table: {error}", where=name, fix=_FORM) from None
    if not rows:
        raise BadFileError("holds no request", where=name, fix=_FORM)
    start = rows[0][0]
    return Requests(
        arrival_seconds=tuple(round(row[0] - start, 9) for row in rows),
        input_tokens=tuple(row[1] for row in rows),
        output_tokens=tuple(row[2] for row in rows),
    )


_FORM = "write lines under the header arrival_seconds,input_tokens,output_tokens"


def _columns(header: list[str], name: str) -> tuple[int, int, int]:
    words = [word.strip().lower() for word in header]
    found = []
    for names in (_ARRIVAL, _INPUT, _OUTPUT):
        at = next((words.index(one) for one in names if one in words), None)
        if at is None:
            raise BadFileError(f"has no column {names[0]} or {names[1]}", where=f"{name}:1", fix=_FORM)
        found.append(at)
    return found[0], found[1], found[2]


def _rows(lines: Iterable[list[str]], columns: tuple[int, int, int], name: str) -> Iterator[tuple[float, int, int]]:
    when: Callable[[str], float] | None = None
    for number, row in enumerate(lines, 2):
        if not any(cell.strip() for cell in row):
            continue
        if number > MOST_REQUESTS:
            raise BadFileError(f"holds more than {MOST_REQUESTS} requests", where=name, fix="give a shorter trace")
        try:
            arrival, prompt, answer = (row[column].strip() for column in columns)
            when = when or (_seconds if _is_number(arrival) else _date)
            yield when(arrival), _tokens(prompt), _tokens(answer)
        except (ValueError, IndexError) as error:
            raise BadFileError(f"is no request: {error}"[:200], where=f"{name}:{number}", fix=_FORM) from None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _seconds(word: str) -> float:
    seconds = float(word)
    if not math.isfinite(seconds):
        raise ValueError(f"'{word[:40]}' is no time")
    return seconds


def _date(word: str) -> float:
    moment = datetime.fromisoformat(word)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _tokens(word: str) -> int:
    number = float(word)
    if number != int(number) or not 1 <= number <= MOST_TOKENS:
        raise ValueError(f"'{word[:40]}' is no number of tokens")
    return int(number)


def faster(requests: Requests, ratio: Ratio) -> Requests:
    """Return the same requests at a multiple of their rate: gaps shrink, lengths stay.

    Parameters
    ----------
    requests : Requests
        The trace.
    ratio : numeric
        New rate over old. [1]

    Returns
    -------
    Requests
        The trace in another time.

    Notes
    -----
    Derived.
    """
    return Requests(
        arrival_seconds=tuple(seconds / ratio for seconds in requests.arrival_seconds),
        input_tokens=requests.input_tokens,
        output_tokens=requests.output_tokens,
    )


def first_of(requests: Requests, number: int) -> Requests:
    """Return the first requests of a load.

    Parameters
    ----------
    requests : Requests
        The load.
    number : int
        How many. [1]

    Returns
    -------
    Requests
        They.

    Notes
    -----
    Derived.
    """
    return Requests(
        arrival_seconds=requests.arrival_seconds[:number],
        input_tokens=requests.input_tokens[:number],
        output_tokens=requests.output_tokens[:number],
    )


def constant(num_requests: int, requests_per_s: RequestsPerS, input_tokens: Count, output_tokens: Count) -> Requests:
    """Return requests of one length at even distances.

    Parameters
    ----------
    num_requests : int
        How many. [1]
    requests_per_s : numeric
        Rate. [1/s]
    input_tokens : numeric
        Tokens of each prompt. [1]
    output_tokens : numeric
        Tokens of each answer. [1]

    Returns
    -------
    Requests
        The load.

    Notes
    -----
    Derived.
    """
    return Requests(
        arrival_seconds=tuple(number / float(requests_per_s) for number in range(num_requests)),
        input_tokens=(int(input_tokens),) * num_requests,
        output_tokens=(int(output_tokens),) * num_requests,
    )


def poisson(
    num_requests: int, requests_per_s: RequestsPerS, input_tokens: Count, output_tokens: Count, seed: int = 0
) -> Requests:
    """Return requests of one length at random: gaps are exponential.

    Parameters
    ----------
    num_requests : int
        How many. [1]
    requests_per_s : numeric
        Mean rate. [1/s]
    input_tokens : numeric
        Tokens of each prompt. [1]
    output_tokens : numeric
        Tokens of each answer. [1]
    seed : int
        The same seed gives the same load.

    Returns
    -------
    Requests
        The load.

    Notes
    -----
    Derived: a Poisson process.
    """
    return bursty(num_requests, requests_per_s, input_tokens, output_tokens, 1.0, seed)


def bursty(
    num_requests: int,
    requests_per_s: RequestsPerS,
    input_tokens: Count,
    output_tokens: Count,
    variation_ratio: Ratio,
    seed: int = 0,
) -> Requests:
    """Return requests of one length whose gaps vary as asked: Gamma-distributed, 1 is Poisson, more comes in bursts.

    Parameters
    ----------
    num_requests : int
        How many. [1]
    requests_per_s : numeric
        Mean rate. [1/s]
    input_tokens : numeric
        Tokens of each prompt. [1]
    output_tokens : numeric
        Tokens of each answer. [1]
    variation_ratio : numeric
        Standard deviation of the gaps over their mean. [1]
    seed : int
        The same seed gives the same load.

    Returns
    -------
    Requests
        The load; the first request comes at second 0.

    References
    ----------
    .. [1] Y. Wang et al., "BurstGPT", KDD 2025, arXiv:2401.17644: gaps of real services are Gamma-distributed.
    """
    shape = 1.0 / float(variation_ratio) ** 2
    gaps = np.random.default_rng(seed).gamma(shape, 1.0 / (shape * float(requests_per_s)), num_requests)
    gaps[:1] = 0.0
    return Requests(
        arrival_seconds=tuple(np.cumsum(gaps).tolist()),
        input_tokens=(int(input_tokens),) * num_requests,
        output_tokens=(int(output_tokens),) * num_requests,
    )
