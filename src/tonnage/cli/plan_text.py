"""An answer as a person reads it: what was assumed, yes or no, the plans, what would make it fit, why others lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tonnage.cli.money_text import money_lines
from tonnage.cli.tables import style, table, wrap
from tonnage.estimate.cost.assumptions import with_given
from tonnage.estimate.parameters import count
from tonnage.estimate.types import Estimate, Footprint, Interval
from tonnage.estimate.weights import checkpoint_format
from tonnage.messages import say
from tonnage.model.types import Model
from tonnage.plan.coin import Coin, both, coin_of
from tonnage.plan.report import launch_words, limits_of
from tonnage.plan.scene import share_label, where_it_lives
from tonnage.plan.types import Answer, Plan, Rejection, Request
from tonnage.units import GIB, format_bytes, format_count, format_kwh, format_seconds
from tonnage.workload.types import Serving

_COLUMNS = 100
_MANY = 1000  # candidates: fewer are not worth a word
_MOST_REASONS = 3


def to_lines(answer: Answer) -> list[str]:
    """Return the lines that `tonnage plan` prints."""
    lines = _assumed(answer)
    lines += [*_headline(answer), ""]
    if answer.plans:
        lines += [*_plans(answer), *_notes(answer.plans, answer.warnings), *_rule(answer.request), ""]
    lines += [*_changes(answer), *_lost(answer), *_ruled_out(answer), *money_lines(answer)]
    warnings = [line for text in answer.warnings for line in wrap(say("plan.warning", text=text), columns=_COLUMNS)]
    lines += [*warnings, ""] if warnings else []
    lines += _next(answer) if answer.plans else []
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _assumed(answer: Answer) -> list[str]:
    if not answer.assumptions:
        return []
    text = say("plan.assumed", text=say("plan.comma").join(answer.assumptions))
    return [*(style(line, "dim") for line in wrap(text, columns=_COLUMNS)), ""]


def hardware(request: Request, estimate: Estimate | None = None) -> str:
    """Name the hardware: "2 x GeForce RTX 4090", with nodes where there are several."""
    if estimate is None:
        if request.where.is_open:
            return say("plan.where_open")
        gpus, nodes = request.where.gpus, request.where.num_nodes
        text = " + ".join(name if number == 1 else f"{number} x {name}" for name, number in gpus)
        return text if nodes == 1 else f"{nodes} x ({text})"
    cluster = estimate.candidate.cluster
    counts: dict[str, int] = {}
    for device in cluster.node.devices:
        counts[device.name] = counts.get(device.name, 0) + 1
    named = " + ".join(name if number == 1 else f"{number} x {name}" for name, number in counts.items())
    return named if cluster.num_nodes == 1 else f"{cluster.num_nodes} x ({named})"


def _headline(answer: Answer) -> list[str]:
    request = answer.request
    first = answer.plans[0].estimate if answer.plans else None
    refused = answer.rejections[0] if answer.rejections else None
    shown = first or (refused.estimate if refused else None)
    where = hardware(request, None if request.where.is_open else shown)
    model = shown.candidate.model.name if shown else request.model
    if first is not None:
        name = "plan.yes" if first.footprint.fits_surely else "plan.yes_unsure"
        text = say(name, model=model, where=where) + _speed(first) + _with(first)
        lines = [style(line, "green") for line in wrap(text, columns=_COLUMNS)]
    elif refused is not None and refused.short_by_bytes is not None:
        text = say("plan.no", model=model, where=where, short=format_bytes(refused.short_by_bytes))
        lines = [style(say("plan.bracketed", text=text, more=refused.what), "red")]
        lines += wrap(_memory(refused), columns=_COLUMNS, indent="  ")
    else:
        reason = refused.reason if refused else "?"
        lines = wrap(say("plan.no_reason", model=model, where=where, reason=reason), columns=_COLUMNS)
    return lines + (_experts(shown) if shown else [])


def _speed(estimate: Estimate) -> str:
    rate, job = estimate.performance.tokens_per_s, estimate.performance.job_seconds
    if rate is None:
        return ""
    text = say("plan.speed", rate=_rate(rate.best), low=_rate(rate.low), high=_rate(rate.high))
    if job is not None:
        best, low, high = (format_seconds(value) for value in (job.best, job.low, job.high))
        text += say("plan.job", time=best, low=low, high=high)
    return text


def _with(estimate: Estimate) -> str:
    candidate = estimate.candidate
    place = where_it_lives(estimate)
    return say("plan.with", engine=candidate.engine, weights=candidate.precision.weights, place=place)


def _memory(refused: Rejection) -> str:
    """Name the pools of what does not fit, the largest first."""
    if refused.estimate is None:
        return refused.reason
    held = refused.estimate.footprint
    is_host = held.host_total.high - held.host_capacity_bytes > max(held.total.high - held.capacity_bytes, 0.0)
    shown = (pool for pool in held.pools if held.is_shared or pool.is_on_host is is_host)
    pools = sorted(shown, key=lambda pool: pool.bytes, reverse=True)
    listed = say("plan.comma").join(f"{share_label('pool', pool.name)} {format_bytes(pool.bytes)}" for pool in pools)
    return say("plan.memory_line", reason=refused.reason, pools=listed)


def _experts(estimate: Estimate) -> list[str]:
    """Say what a mixture of experts must hold, and what only sets its speed."""
    model: Model = estimate.candidate.model
    if not model.is_moe:
        return []
    counts = count(model)
    active = getattr(counts, "active", None)
    if active is None:
        return []
    text = say(
        "plan.moe_note",
        total=format_count(counts.total),
        size=format_bytes(2 * counts.total),
        active=format_count(active),
        active_size=format_bytes(2 * active),
    )
    return wrap(text, columns=_COLUMNS, indent="  ")


def _rate(value: float) -> str:
    """Write a rate with two or more digits.

    >>> _rate(1086.6), _rate(32.3), _rate(4.28)
    ('1,087', '32', '4.3')
    """
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _disk(plan: Plan) -> list[str]:
    """Say what a training plan asks of its disks: sizes, and the rate at which they must be read."""
    held = plan.estimate.storage
    sizes = (
        ("weights", held.weights_bytes),
        ("data", held.data_bytes),
        ("checkpoint", held.checkpoints_bytes),
        ("offload", held.offload_bytes),
    )
    told = [say(f"plan.disk_{name}", size=format_bytes(size)) for name, size in sizes if size]
    if held.read_bytes_per_s:
        load = with_given(plan.request.limits.assume).best("load_time")
        told.append(say("plan.disk_rate", rate=format_bytes(held.read_bytes_per_s), time=format_seconds(load)))
    if held.feed_bytes_per_s:
        told.append(say("plan.disk_feed", rate=format_bytes(held.feed_bytes_per_s)))
    text = say("plan.disk", rank=plan.rank, text=say("plan.comma").join(told))
    return wrap(text, columns=_COLUMNS, indent="  ")


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "?"
    return f"{_rate(interval.best)} ({_rate(interval.low)}–{_rate(interval.high)})"


def _gib(held: Footprint) -> str:
    """Write what a device holds of what it has; where only the best estimate fits, its need and the upper end."""
    total, capacity = held.taken, f"{held.capacity_bytes / GIB:.1f} GiB"
    if held.fits and total.high > held.capacity_bytes:
        least = total.best if held.least_bytes is None else held.least_bytes
        return say("plan.up_to", used=f"{least / GIB:.1f}", high=f"{total.high / GIB:.1f}", capacity=capacity)
    spread = (total.high - total.low) / 2 / GIB
    return say("plan.of", used=f"{total.best / GIB:.1f} ±{spread:.1f}", capacity=capacity)


def _plans(answer: Answer) -> list[str]:
    is_serving = isinstance(answer.request.workload, Serving)
    is_open = answer.request.where.is_open
    columns = _serving_columns if is_serving else _training_columns
    coin = coin_of(answer.request.limits)
    cells = [
        {"rank": str(plan.rank), **columns(plan.estimate), **_common(plan.estimate, coin)} for plan in answer.plans
    ]
    several = any(plan.estimate.candidate.cluster.num_devices > 1 for plan in answer.plans)
    names = ["rank"]
    names += ["gpu"] if is_open else []
    names += ["engine" if is_serving else "software", "weights"]
    names += ["place"] + (["layout"] if several else [])
    names += [] if is_serving else ["recompute", "micro"]
    names += ["device"]
    names += ["host"] if any(plan.estimate.footprint.host_total.best > GIB for plan in answer.plans) else []
    names += ["rate"] + (["ttft"] if is_serving else []) + (["cost"] if is_open else [])
    right = tuple(i for i, name in enumerate(names) if name in ("rank", "micro", "host", "ttft"))
    header = [say(f"plan.col_{name}") for name in names]
    return table(header, [[row[name] for name in names] for row in cells], right=right)


def _common(estimate: Estimate, coin: Coin) -> dict[str, str]:
    held, cost, candidate = estimate.footprint, estimate.cost, estimate.candidate
    layout = candidate.layout
    ways = [f"{name}{getattr(layout, name)}" for name in ("dp", "tp", "pp", "cp", "ep") if getattr(layout, name) > 1]
    ways += [f"vpp{layout.num_virtual_stages}"] if layout.num_virtual_stages > 1 else []
    ways += [f"zero{layout.zero_stage}"] if layout.zero_stage else []
    money = [both(cost.purchase_usd.best, coin)] if cost.purchase_usd else []
    money += [both(cost.usd_per_hour.best, coin, "/h")] if cost.usd_per_hour else []
    return {
        "gpu": f"{candidate.cluster.num_devices} x {candidate.cluster.node.devices[0].slug}",
        "place": where_it_lives(estimate),
        "layout": " ".join(ways) or "-",
        "device": _gib(held),
        "host": format_bytes(held.host_total.best) if held.host_total.best else "-",
        "rate": _interval(estimate.performance.tokens_per_s),
        "cost": ", ".join(money) or say("plan.no_price"),
    }


def _serving_columns(estimate: Estimate) -> dict[str, str]:
    candidate, first = estimate.candidate, estimate.performance.ttft_seconds
    kv = candidate.precision.kv
    weights = candidate.precision.weights
    return {
        "engine": candidate.engine,
        "weights": weights if kv in ("fp16", "bf16") else say("plan.weights_and_cache", weights=weights, kv=kv),
        "ttft": "?" if first is None else format_seconds(first.best),
    }


def _training_columns(estimate: Estimate) -> dict[str, str]:
    candidate = estimate.candidate
    precision = candidate.precision
    weights = f"{precision.weights}+fp32" if precision.has_fp32_master else precision.weights
    if precision.experts and precision.experts != precision.weights:
        weights = say("plan.experts_in", weights=weights, experts=precision.experts)
    words = [weights]
    words += [candidate.optimizer] if candidate.optimizer != "adamw" else []
    words += [precision.compute] if precision.compute in ("fp8", "fp4") else []
    return {
        "software": candidate.engine,
        "weights": ", ".join(words),
        "recompute": candidate.recompute.value
        + (f" /{candidate.recompute_every}" if candidate.recompute_every > 1 else ""),
        "micro": str(candidate.micro_batch_size),
    }


def _limits(plan: Plan) -> Iterator[str]:
    """Say how far a serving plan goes with all else as it is, and the least memory of a device that does."""
    found, load = limits_of(plan), plan.estimate.candidate.workload
    if found is None or not isinstance(load, Serving):
        return
    context, requests = f"{found.max_context_tokens:,}", f"{found.max_concurrency:,}"
    if found.max_concurrency > 1:
        yield say("plan.limits", context=context, requests=requests, asked=f"{load.context_tokens:,}")
    else:
        yield say("plan.limits_one", context=context)
    if found.least_memory_bytes is not None:
        yield say("plan.least_memory", memory=format_bytes(found.least_memory_bytes))
    yield from _under_load(plan.estimate, load)


def _under_load(estimate: Estimate, load: Serving) -> Iterator[str]:
    """Say what many requests at once see: how many are answered, and how late the latest of a hundred are."""
    performance = estimate.performance
    first, each, rate = performance.ttft_p99_seconds, performance.tpot_p99_seconds, performance.requests_per_s
    if load.concurrency == 1 or first is None or each is None or rate is None:
        return
    yield say(
        "load.requests",
        number=f"{load.concurrency:,}",
        rate=f"{rate.best:,.2g}" if rate.best < 10 else f"{rate.best:,.0f}",
        first=format_seconds(first.best),
        each=format_seconds(each.best),
    )
    kept = performance.goodput_requests_per_s
    if kept is not None and rate.best and (load.ttft_limit_seconds or load.tpot_limit_seconds):
        yield say("load.goodput", share=f"{100 * kept.best / rate.best:.0f} %")


def _notes(plans: tuple[Plan, ...], warned: tuple[str, ...]) -> list[str]:
    """Say why each plan stands where it stands, and what stands against it; what the answer warns of is said there."""
    lines: list[str] = []
    first = next(iter(plans))
    shared = [text for text in first.risks if all(text in plan.risks for plan in plans)]
    for plan in plans:
        risks = (text for text in plan.risks if text not in (*shared, *warned))
        limits = _limits(plan) if plan.rank == 1 else ()
        texts = [
            *plan.reasons,
            *limits,
            *_room(plan),
            *_job(plan),
            *plan.estimate.provenance.measured,
            *plan.warnings,
            *filter(None, (plan.binding, plan.rival)),
            *risks,
        ]
        if texts:
            lines += wrap(f"#{plan.rank}: {say('plan.comma').join(texts)}", columns=_COLUMNS, indent="  ")
    for text in shared:
        if text not in warned:
            said = say("choice.all", text=text) if len(plans) > 1 else text
            lines += wrap(said, columns=_COLUMNS, indent="  ")
    candidate = first.estimate.candidate
    own = checkpoint_format(candidate.model)
    is_serving = isinstance(candidate.workload, Serving)
    lines += [] if is_serving else _disk(first)
    if is_serving and any(plan.estimate.candidate.precision.weights not in (own, "fp16") for plan in plans):
        text = say("plan.other_checkpoint", model=candidate.model.name, own=own)
        lines += [style(line, "dim") for line in wrap(text, columns=_COLUMNS, indent="  ")]
    return lines


def _room(plan: Plan) -> list[str]:
    """Say how far a training plan reaches."""
    if plan.room is None:
        return []
    batch, length = plan.room.micro_batch_size, plan.room.seq_len
    is_sure = (batch.surely, length.surely) == (batch.best, length.best)
    name = "room_sure" if is_sure else "room" if batch.surely and length.surely else "room_unsure"
    sizes = {"batch": batch.best, "length": length.best}
    if name == "room":
        sizes |= {"batch_surely": batch.surely, "length_surely": length.surely}
    return [say(f"plan.{name}", **sizes)]


def _job(plan: Plan) -> list[str]:
    """Say what a training job to a number of tokens takes."""
    cost = plan.estimate.cost
    if cost.job is None:
        return []
    held, joules, rent, own = cost.job.held_seconds, cost.job.joules, cost.usd_total, cost.job.own_usd
    energy = "" if joules is None else say("plan.job_energy", kwh=format_kwh(joules.best))
    coin = coin_of(plan.request.limits)
    money = "" if rent is None else say("plan.job_rent", amount=both(rent.best, coin))
    money += "" if own is None else say("plan.job_own", amount=both(own.best, coin))
    low, high = format_seconds(held.low), format_seconds(held.high)
    number = format_count(cost.job.num_tokens)
    seconds = format_seconds(held.best)
    return [say("plan.whole_job", num=number, seconds=seconds, low=low, high=high, energy=energy, money=money)]


def _changes(answer: Answer) -> list[str]:
    """Return what would make it fit, each with its figures and its command."""
    if answer.plans or not answer.rejections:
        return []
    changes = answer.rejections[0].changes
    if not changes:
        return [*wrap(say("plan.no_change", num=512), columns=_COLUMNS), ""]
    rows = [
        (
            change.what,
            _gib(change.estimate.footprint),
            _interval(change.estimate.performance.tokens_per_s),
        )
        for change in changes
    ]
    header = [say(f"plan.col_{name}") for name in ("change", "device", "rate")]
    lines = [say("plan.changes"), *table(header, rows, indent="  "), ""]
    lines += [say("plan.col_command"), *(f"  {change.command}" for change in changes), ""]
    return lines


def _lost(answer: Answer) -> list[str]:
    """Return why the others lost; the commands of the nearest plans that fit are printed once each."""
    rest = answer.rejections if answer.plans else answer.rejections[1:]
    if not rest:
        return []
    lines = [say("plan.lost")]
    told: set[str] = set()
    for one in rest:
        lines += wrap(f"{one.what}: {one.reason}", columns=_COLUMNS, indent="  ")
        if one.command and answer.plans and one.command not in told:
            told.add(one.command)
            lines.append(style(f"    {say('plan.instead')} {one.command}", "dim"))
    return [*lines, ""]


def _ruled_out(answer: Answer) -> list[str]:
    """Say how many candidates were looked at, and for what most of those that cannot be are out."""
    if not answer.why_not or answer.num_candidates < _MANY:
        return []
    most = say("plan.comma").join(
        say("search.took", num=f"{one.num_candidates:,}", name=one.engine, reason=one.reason)
        for one in answer.why_not[:_MOST_REASONS]
    )
    text = say("search.looked", num=f"{answer.num_candidates:,}", reasons=most)
    return [*(style(line, "dim") for line in wrap(text, columns=_COLUMNS)), ""]


def _next(answer: Answer) -> list[str]:
    from tonnage.plan.request import command

    first = answer.plans[0]
    rows = [
        (f"{command(answer.request)} --pick 1 -o plan.toml", say("plan.next_keep")),
        ("tonnage explain plan.toml", say("plan.next_explain")),
    ]
    launch = launch_words(first.estimate)
    lines = [say("plan.next"), *(f"  {left}  {style('# ' + right, 'dim')}" for left, right in rows)]
    if launch is not None:
        import shlex

        words = _with_files(launch, answer.request, first.estimate)
        lines.append(f"  {shlex.join(words)}  {style('# ' + _starts(words, first.estimate), 'dim')}")
    return lines


def _with_files(launch: list[str], request: Request, estimate: Estimate) -> list[str]:
    """Put the files that the person named in the place of the model's name and of a file yet to be made."""
    model = estimate.candidate.model
    given = Path(request.model)
    if request.model.endswith(".gguf") and estimate.candidate.precision.weights == checkpoint_format(model):
        return [request.model if word.endswith(".gguf") else word for word in launch]
    if model.status not in ("config", "header") or given.suffix == ".gguf":
        return launch
    folder = given if given.is_dir() else given.parent
    return [str(folder.absolute()) if word == model.name and folder.is_dir() else word for word in launch]


def _starts(launch: list[str], estimate: Estimate) -> str:
    """Say what the command does, and which checkpoint it needs where the model's own is of another format."""
    model, weights = estimate.candidate.model, estimate.candidate.precision.weights
    is_made = any(word in ("--quantization", "--dtype") or word.endswith(".gguf") for word in launch)
    if estimate.candidate.engine == "ik_llama.cpp":
        return say("plan.next_start_ik")
    if is_made or weights in (checkpoint_format(model), "bf16", "fp16", "fp32"):
        return say("plan.next_start")
    return say("plan.next_start_other", weights=weights)


def _rule(request: Request) -> list[str]:
    """Say what the plans are ordered by."""
    goal = "serve" if isinstance(request.workload, Serving) else "train"
    text = say(f"plan.rule_{goal}", objective=say(f"plan.objective_{_objective(request)}"))
    return [style(line, "dim") for line in wrap(text, columns=_COLUMNS, indent="  ")]


def _objective(request: Request) -> str:
    if request.where.is_open:
        from tonnage.plan.browse import wanted

        return wanted(request)
    from tonnage.plan.scene import objective

    return objective(request)
