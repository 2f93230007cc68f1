"""What a file of measurements says: a start-up log, a benchmark's result, rows of measured runs."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from tonnage.calibrate.row_fields import number
from tonnage.engines.llama_cpp import logs as llama_cpp_logs
from tonnage.engines.sglang import logs as sglang_logs
from tonnage.engines.types import LogFacts
from tonnage.engines.vllm import logs as vllm_logs
from tonnage.errors import BadFileError
from tonnage.nouns import noun

__all__ = ["LARGEST_BYTES", "Measurements", "Speed", "read_log", "read_measurements"]

LARGEST_BYTES: Final = 64 << 20
_READERS: Final = (vllm_logs.read_log, sglang_logs.read_log, llama_cpp_logs.read_log)
_KNOWN: Final = (
    "give a start-up log of vLLM, SGLang or llama.cpp, a result of vllm bench serve, llama-bench, sglang.bench_serving or "
    "tonnage bench, or rows of measured runs"
)
_LONGEST_LINE: Final = 8000  # no engine says anything of interest farther on
_LLAMA_BENCH: Final = ("n_prompt", "n_gen", "avg_ts")


@noun
class Speed:
    """One measured rate or time, and the load it was measured under."""

    metric: str  # decode_tps_single, prefill_tps, throughput_tps, ttft_seconds, tpot_seconds
    value: float
    input_tokens: int
    output_tokens: int
    concurrency: int = 1


@noun
class Measurements:
    """All that one file measured of one launch."""

    kind: str
    engine: str = ""  # "": the file does not say
    model: str = ""
    weights: str = ""  # as the file calls the format
    gpus: tuple[str, ...] = ()  # cards as the file names them
    log: LogFacts | None = None
    speeds: tuple[Speed, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict[str, str])  # pins and load, as words of a request
    row: Mapping[str, Any] | None = None  # of a measured run, which tells its launch itself


def read_log(text: str, where: str) -> LogFacts:
    """Return what a start-up log says.

    Raises
    ------
    BadFileError
        No line of an engine that is known, or lines of two.
    """
    text = "\n".join(line[:_LONGEST_LINE] for line in text.splitlines())
    found = [facts for reader in _READERS if (facts := reader(text)) is not None]
    if len(found) > 1:
        names = " and ".join(facts.engine for facts in found)
        raise BadFileError(f"holds lines of {names}", where=where, fix="give the log of one launch alone")
    if found:
        return found[0]
    raise BadFileError("nothing is measured in it", where=where, fix=_KNOWN)


def read_measurements(text: str, where: str) -> tuple[Measurements, ...]:
    """Return what a file measured, of each launch that it tells of.

    Raises
    ------
    BadFileError
        Nothing that is known.
    """
    start = text.lstrip()[:1]
    if start in ("{", "["):
        found = _of_objects(_objects(text), where)
    elif text.lstrip().startswith("build_commit,") or "avg_ts" in text.lstrip().partition("\n")[0]:
        found = (_llama_bench(list(csv.DictReader(io.StringIO(text.lstrip())))),)
    elif re.search(r"^\|[^\n]*\btest\b[^\n]*\bt/s\b", text, re.MULTILINE):
        found = (_llama_bench(_markdown(text)),)
    else:
        facts = read_log(text, where)
        return (
            Measurements(
                kind="start-up log",
                engine=facts.engine,
                model=facts.model,
                log=facts,
                speeds=tuple(_logged(facts)),
                settings=facts.settings,
            ),
        )
    if not any(one.speeds or one.row for one in found):
        raise BadFileError("nothing is measured in it", where=where, fix=_KNOWN)
    return found


def _logged(facts: LogFacts) -> list[Speed]:
    """Return the rates that llama.cpp prints when a request is done."""
    speeds: list[Speed] = []
    prompt = facts.num_prefill_tokens or 1
    if facts.prefill_tokens_per_s:
        speeds.append(
            Speed(metric="prefill_tps", value=facts.prefill_tokens_per_s, input_tokens=prompt, output_tokens=1)
        )
    if facts.decode_tokens_per_s and facts.num_decode_tokens:
        speeds.append(
            Speed(
                metric="decode_tps_single",
                value=facts.decode_tokens_per_s,
                input_tokens=prompt,
                output_tokens=facts.num_decode_tokens,
            )
        )
    return speeds


def _objects(text: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON file: one, a list of them, or one a line."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = []
        for line in text.splitlines():
            try:
                whole.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
    many = whole if isinstance(whole, list) else [whole]
    return [one for one in many if isinstance(one, dict)]


def _of_objects(objects: Sequence[dict[str, Any]], where: str) -> tuple[Measurements, ...]:
    if not objects:
        raise BadFileError("not JSON", where=where, fix=_KNOWN)
    first = objects[0]
    if all(key in first for key in _LLAMA_BENCH):
        return (_llama_bench(objects),)
    if isinstance(first.get("measured"), dict) or "peak_mem_gib" in first or "tokens_per_s_per_gpu" in first:
        return tuple(Measurements(kind="measured run", row=row) for row in objects)
    if "output_throughput" in first:
        return tuple(_serving_bench(one) for one in objects)
    if "output_tokens_per_s" in first and "ttft_seconds" in first:
        return tuple(_own_bench(one) for one in objects)
    raise BadFileError("nothing is measured in it", where=where, fix=_KNOWN)


def _serving_bench(one: Mapping[str, Any]) -> Measurements:
    """Read a result of `vllm bench serve` or of `sglang.bench_serving`.

    vllm/benchmarks/serve.py and python/sglang/bench_serving.py: totals of tokens, means in milliseconds, the rate asked
    for ("inf": all at once) and the most requests in flight.
    """
    completed = int(number(one.get("completed")) or number(one.get("num_prompts")) or 0)
    inputs, outputs = (number(one.get(f"total_{way}_tokens")) or 0.0 for way in ("input", "output"))
    is_sglang = "mean_e2e_latency_ms" in one and "sglang" in str(one.get("backend", "sglang"))
    engine = "sglang" if is_sglang else "vllm" if str(one.get("backend", one.get("endpoint_type", ""))) else ""
    model = str(one.get("model_id") or one.get("model") or "")
    if completed <= 0 or not inputs or not outputs:
        return Measurements(kind="serving benchmark", engine=engine, model=model)
    asked = number(one.get("max_concurrency"))
    lengths = {"input_tokens": max(1, round(inputs / completed)), "output_tokens": max(1, round(outputs / completed))}
    is_offered = number(one.get("request_rate")) is not None and not asked
    in_flight = int(asked) if asked else completed
    speeds: list[Speed] = []
    if not is_offered:
        value = number(one.get("output_throughput")) or 0.0
        speeds.append(Speed(metric="throughput_tps", value=value, concurrency=min(in_flight, completed), **lengths))
    if in_flight == 1 or is_offered:
        for metric, key in (("ttft_seconds", "mean_ttft_ms"), ("tpot_seconds", "mean_tpot_ms")):
            value = number(one.get(key))
            if value and in_flight == 1:
                speeds.append(Speed(metric=metric, value=value / 1e3, concurrency=1, **lengths))
    kind = "sglang.bench_serving" if is_sglang else "vllm bench serve"
    return Measurements(kind=kind, engine=engine, model=model, speeds=tuple(s for s in speeds if s.value > 0))


def _own_bench(one: Mapping[str, Any]) -> Measurements:
    """Read a result of `tonnage bench --json`; lengths and requests in flight are those of the plan where it is silent."""
    speeds: list[Speed] = []
    load = {key: int(number(one.get(key)) or 0) for key in ("input_tokens", "output_tokens", "concurrency")}
    value = number(one.get("output_tokens_per_s"))
    if value:
        speeds.append(Speed(metric="throughput_tps", value=value, **load))
    if load["concurrency"] == 1:
        for metric in ("ttft_seconds", "tpot_seconds"):
            spread = one.get(metric)
            middle = number(spread.get("p50")) if isinstance(spread, dict) else None
            if middle:
                speeds.append(Speed(metric=metric, value=middle, **load))
    return Measurements(kind="tonnage bench", model=str(one.get("model") or ""), speeds=tuple(speeds))


def _markdown(text: str) -> list[dict[str, Any]]:
    """Return the rows of llama-bench's table with the names of its other outputs."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]
    head = next(i for i, row in enumerate(rows) if "test" in row and "t/s" in row)
    found: list[dict[str, Any]] = []
    for cells in rows[head + 1 :]:
        row = dict(zip(rows[head], cells, strict=False))
        test = re.fullmatch(r"(?:pp(\d+))?\+?(?:tg(\d+))?(?: @ d(\d+))?", row.get("test", ""))
        rate = re.match(r"([\d.]+)", row.get("t/s", ""))
        if test is None or rate is None or not (test[1] or test[2]):
            continue
        found.append(
            {
                "model_type": row.get("model", ""),
                "n_prompt": test[1] or 0,
                "n_gen": test[2] or 0,
                "n_depth": test[3] or 0,
                "avg_ts": rate[1],
                "type_k": row.get("type_k", ""),
                "n_ubatch": row.get("n_ubatch", ""),
                "n_cpu_moe": row.get("n_cpu_moe", ""),
                "backends": row.get("backend", ""),
            }
        )
    return found


def _llama_bench(rows: Sequence[Mapping[str, Any]]) -> Measurements:
    """Read llama-bench's JSON, CSV or table (ggml-org/llama.cpp tools/llama-bench/README.md): each test a rate."""
    speeds: list[Speed] = []
    for row in rows:
        prompt, made, depth = (int(number(row.get(key)) or 0) for key in ("n_prompt", "n_gen", "n_depth"))
        rate = number(row.get("avg_ts")) or 0.0
        if rate <= 0 or (prompt and made):
            continue
        if prompt:
            speeds.append(Speed(metric="prefill_tps", value=rate, input_tokens=prompt, output_tokens=1))
        elif made:
            speeds.append(Speed(metric="decode_tps_single", value=rate, input_tokens=max(depth, 1), output_tokens=made))
    first = rows[0] if rows else {}
    settings: dict[str, str] = {}
    if kv := str(first.get("type_k") or ""):
        settings["precision.kv"] = kv
    if batch := str(first.get("n_ubatch") or ""):
        settings["settings.max_batched_tokens"] = batch
    if int(number(first.get("n_cpu_moe")) or 0):
        settings["offload.num_cpu_expert_layers"] = str(first["n_cpu_moe"])
    return Measurements(
        kind="llama-bench",
        engine="llama.cpp",
        model=str(first.get("model_filename") or ""),
        weights=str(first.get("model_type") or ""),
        gpus=tuple(name.strip() for name in str(first.get("gpu_info") or "").split(",") if name.strip()),
        speeds=tuple(speeds),
        settings=settings,
    )
