"""What a timeline says: the fullest moment of each part of a step, and what a part leaves behind. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tonnage.oracle.types import Snapshot, Timeline

START, FORWARD, HEAD_BACKWARD, LAST_LAYER, INNER_LAYERS, FIRST_LAYER, REST, STEP = (
    "start", "forward", "backward of head and loss", "backward of the last layer", "backward of inner layers",
    "backward of the first layer", "backward of the embedding", "optimizer step",
)  # fmt: skip


def phases(timeline: Timeline) -> Mapping[str, Snapshot]:
    """Return the fullest moment of each part of a step; of a part that comes twice, the later one.

    >>> from tonnage.oracle.types import Timeline
    >>> line = Timeline(events=((1, 8), (2, 4), (2, -4), (3, 2)), pools={1: "weights", 2: "activations"},
    ...                 marks=((1, "forward"), (3, "step")))
    >>> {name: dict(moment.pools) for name, moment in phases(line).items()}
    {'start': {'weights': 8}, 'forward': {'weights': 8, 'activations': 4}, 'step': {'weights': 8, 'temporaries': 2}}
    """
    alive: dict[str, int] = defaultdict(int)
    found: dict[str, Snapshot] = {}
    total, most = 0, 0
    name, best = START, dict[str, int]()
    marks: dict[int, list[str]] = defaultdict(list)
    for index, begun in timeline.marks:
        marks[index].append(begun)
    for index, (tensor, num_bytes) in enumerate(timeline.events):
        for begun in marks.get(index, ()):
            found[name] = Snapshot(pools=best)
            name, most, best = begun, total, _present(alive)
        alive[timeline.pools.get(tensor, "temporaries")] += num_bytes
        total += num_bytes
        if total > most:
            most, best = total, _present(alive)
    found[name] = Snapshot(pools=best)
    return found


def left(timeline: Timeline, until: str) -> Snapshot:
    """Return what is alive when a part begins for the last time."""
    end = max(index for index, name in timeline.marks if name == until)
    alive: dict[str, int] = defaultdict(int)
    for tensor, num_bytes in timeline.events[:end]:
        alive[timeline.pools.get(tensor, "temporaries")] += num_bytes
    return Snapshot(pools=_present(alive))


def _present(alive: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in alive.items() if value}
