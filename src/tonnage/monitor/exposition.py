"""Samples as text that Prometheus scrapes, by its text format 0.0.4.

Source: prometheus.io/docs/instrumenting/exposition_formats (escapes of help and labels, NaN, +Inf, -Inf).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field

from tonnage.metric_names import find_metric
from tonnage.nouns import noun

__all__ = ["Sample", "exposition"]


@noun
class Sample:
    """One value of a metric; unknown ones are left out, never 0."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def exposition(samples: Iterable[Sample]) -> str:
    """Return the text: each metric with its help and kind once, its samples below.

    >>> print(exposition([Sample(name="tonnage_train_loss", value=2.5, labels={"run": "a", "rank": "0"})]), end="")
    # HELP tonnage_train_loss Loss of the last step.
    # TYPE tonnage_train_loss gauge
    tonnage_train_loss{run="a",rank="0"} 2.5
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for name, held in by_name.items():
        metric = find_metric(name)
        text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {metric.kind}"]
        lines += [f"{name}{_labels(sample.labels, metric.labels)} {_number(sample.value)}" for sample in held]
    return "".join(f"{line}\n" for line in lines)


def _labels(values: Mapping[str, str], names: tuple[str, ...]) -> str:
    assert set(values) == set(names), (values, names)
    return "{" + ",".join(f'{name}="{_escaped(values[name])}"' for name in names) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
