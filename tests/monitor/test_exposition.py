"""Names and text as Prometheus takes them."""

from __future__ import annotations

import math
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.metric_names import METRICS, find_metric
from tonnage.monitor.exposition import Sample, exposition

# prometheus.io/docs/instrumenting/exposition_formats: a label's value in double quotes, \\ \" \n escaped
LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)')
SUFFIXES = re.compile(r"_(seconds|bytes|ratio|tokens_per_s|total|step|steps|loss|norm|rate|tokens|status)$")


def unescaped(text):
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)


def test_names_are_unique_and_carry_their_unit():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"tonnage_[a-z][a-z0-9_]*", metric.name)
        assert SUFFIXES.search(metric.name), metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert metric.help.endswith(".")
        assert metric.labels[0] == "run"


def test_each_metric_is_told_once():
    loss = [Sample(name="tonnage_train_loss", value=n, labels={"run": "a", "rank": str(n)}) for n in (1, 0)]
    step = Sample(name="tonnage_train_step", value=1e6, labels={"run": "a", "rank": "0"})
    text = exposition([loss[0], step, loss[1]])
    assert text.splitlines() == [
        "# HELP tonnage_train_loss Loss of the last step.",
        "# TYPE tonnage_train_loss gauge",
        'tonnage_train_loss{run="a",rank="1"} 1',
        'tonnage_train_loss{run="a",rank="0"} 0',
        "# HELP tonnage_train_step Optimizer steps done.",
        "# TYPE tonnage_train_step gauge",
        'tonnage_train_step{run="a",rank="0"} 1000000',
    ]


@given(st.text(max_size=12), st.floats())
def test_any_label_and_value_stays_one_line(name, value):
    text = exposition([Sample(name="tonnage_train_loss", value=value, labels={"run": name, "rank": "0"})])
    (line,) = [line for line in text.split("\n") if line and not line.startswith("#")]
    match = LINE.fullmatch(line)
    assert match
    inner = re.match(r'run="((?:[^"\\\n]|\\[\\"n])*)",rank="0"', match[2])
    assert unescaped(inner[1]) == name
    told = float(match[3])
    assert told == value or (math.isnan(told) and math.isnan(value))


def test_a_label_that_is_missing_is_our_mistake():
    with pytest.raises(AssertionError):
        exposition([Sample(name="tonnage_train_loss", value=1.0, labels={"run": "a"})])


def test_promtool_has_no_complaint():
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("platform: promtool is not installed")
    values = [Sample(name=m.name, value=1.0, labels=dict.fromkeys(m.labels, "x")) for m in METRICS]
    told = subprocess.run(
        [tool, "check", "metrics"], input=exposition(values), text=True, capture_output=True, check=False
    )
    # `_per_s` is this project's word for a rate, on which the tool's taste in names differs.
    others = [line for line in (told.stdout + told.stderr).splitlines() if "_per_s metric names should not" not in line]
    assert others == []
    assert find_metric("tonnage_train_step").kind == "gauge"
