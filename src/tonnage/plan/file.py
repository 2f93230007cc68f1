"""The plan file: a plan to TOML and back to the same plan, older formats migrated on the way."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final

from tonnage import __version__
from tonnage.errors import BadFileError
from tonnage.plan.codec import Decoder, encode, to_toml
from tonnage.plan.request import command
from tonnage.plan.types import Plan
from tonnage.workload.types import Serving

FORMAT: Final = 1
LARGEST_BYTES: Final = 8 << 20
# From a format to the next one; each takes the whole table and returns it.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

_PARTS: Final = ("footprint", "step_time", "performance", "cost", "storage", "provenance")


def write_plan(plan: Plan) -> str:
    """Return a plan as the text of a plan file.

    Parameters
    ----------
    plan : Plan
        Any plan of an answer.

    Returns
    -------
    str
        TOML: format version, request, candidate, estimates and provenance; `read_plan` gives the same plan back.
    """
    whole = encode(plan)
    estimate = whole.pop("estimate")
    candidate = estimate.pop("candidate")
    model, cluster = candidate.pop("model"), candidate.pop("cluster")
    table = {"format": FORMAT, "written_by": f"tonnage {__version__}"}
    table |= {name: held for name, held in whole.items() if name != "request"}
    table |= {"request": whole["request"], "candidate": candidate, "cluster": cluster, **estimate, "model": model}
    lines = (
        "# " + " ".join(command(plan.request).split()),
        "# tonnage explain shows where every byte, second and coin of this plan goes.",
        to_toml(table),
    )
    return "\n".join(lines) + "\n"


def read_plan(text: str, where: str = "plan.toml") -> Plan:
    """Return the plan that a plan file holds.

    Parameters
    ----------
    text : str
        The file's text.
    where : str
        Its name, for error messages.

    Returns
    -------
    Plan
        Equal to the plan that was written.

    Raises
    ------
    BadFileError
        Not TOML, not a plan, a format of the future, or a value that a plan cannot hold.
    """
    if len(text) > LARGEST_BYTES:
        raise BadFileError("larger than any plan", where=where, fix="give the file that tonnage plan -o wrote")
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise BadFileError(
            f"not a TOML file: {error}", where=where, fix="give the file that tonnage plan -o wrote"
        ) from None
    table = _migrate(table, where)
    table.pop("verify", None)  # a person's own limits, read by `record.accept`
    decoder = Decoder(where)
    parts = {name: _take(table, name, decoder) for name in (*_PARTS, "request", "candidate", "cluster", "model")}
    candidate = {**parts.pop("candidate"), "model": parts.pop("model"), "cluster": parts.pop("cluster")}
    estimate = {"candidate": candidate, **{name: parts[name] for name in _PARTS}}
    del table["written_by"], table["format"]
    plan = decoder.read(Plan, {**table, "request": parts["request"], "estimate": estimate}, "plan")
    for what, is_so in _sanity(plan):
        if not is_so:
            raise decoder.fail(what)
    return plan


def _sanity(plan: Plan) -> Iterator[tuple[str, bool]]:
    """Yield what every plan that was written keeps, and whether this one does."""
    held, footprint = plan.estimate.candidate, plan.estimate.footprint
    layout, node = held.layout, held.cluster.node
    yield f"the engine '{held.engine[:40]}' is not known", held.engine in _engines()
    yield "the model has no layers", bool(held.model.layers)
    yield "the cluster has no devices", bool(node.devices)
    counts = (layout.dp, layout.tp, layout.pp, layout.cp, layout.ep, held.micro_batch_size, held.recompute_every)
    yield "a count of the candidate is not above zero", min(counts) > 0
    offload = (held.offload.num_cpu_expert_layers, held.offload.num_cpu_layers)
    is_held = all(0 <= num <= held.model.num_layers + 1 for num in offload)
    yield "the layers in host memory are not those of the model", is_held
    limits = (held.settings.max_num_seqs, held.settings.max_batched_tokens)
    yield "a limit of the engine is not above zero", all(limit is None or limit > 0 for limit in limits)
    sizes = (held.model.hidden_size, held.model.vocab_size, held.cluster.num_nodes, plan.rank)
    sizes += tuple(device.memory_bytes for device in node.devices)
    yield "a size of the model or the cluster is not above zero", min(sizes) > 0
    load = held.workload
    asked = (
        (load.context_tokens, load.concurrency, load.input_tokens, load.output_tokens)
        if isinstance(load, Serving)
        else (load.seq_len, load.global_batch_size)
    )
    yield "a size of the load is not above zero", min(asked) > 0
    yield "a pool of memory is below zero", all(p.bytes >= 0 and p.relative_error >= 0 for p in footprint.pools)
    for total, is_on_host in ((footprint.total, False), (footprint.host_total, True)):
        parts = math.fsum(pool.bytes for pool in footprint.pools if pool.is_on_host == is_on_host)
        place = "host" if is_on_host else "device"
        yield (
            f"the pools of the {place} do not sum to its total",
            math.isclose(parts, total.best, rel_tol=1e-6, abs_tol=1024),
        )
    yield "a part of the step takes less than no time", all(p.seconds >= 0 for p in plan.estimate.step_time.parts)


def _engines() -> set[str]:
    from tonnage.engines import ENGINES, TRAINERS  # noqa: PLC0415  heavy, and only reading a plan needs them
    from tonnage.search.training_space import training_ways  # noqa: PLC0415

    return {one.name for one in (*ENGINES, *TRAINERS, *training_ways())}


def _take(table: dict[str, Any], name: str, decoder: Decoder) -> dict[str, Any]:
    part = table.pop(name, {})
    if not isinstance(part, dict):
        raise decoder.fail(f"[{name}] is not a table")
    return part


def _migrate(table: dict[str, Any], where: str) -> dict[str, Any]:
    """Bring a table of an older format to today's."""
    version = table.get("format")
    if type(version) is not int or "written_by" not in table:
        raise BadFileError("not a plan file", where=where, fix="write one with tonnage plan … -o plan.toml")
    if version > FORMAT:
        raise BadFileError(
            f"format {version} is newer than this tonnage knows ({FORMAT})", where=where, fix="upgrade tonnage"
        )
    while version < FORMAT:
        if version not in MIGRATIONS:
            raise BadFileError(f"format {version} is not known", where=where, fix="write the plan again")
        table = MIGRATIONS[version](table)
        version += 1
    return {**table, "format": FORMAT}
