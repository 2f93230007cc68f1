"""Requests from the words of a command line, and back to the exact command.

Every suggestion that tonnage makes is a request with something changed, written out here; so what it suggests is
what it would answer.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tonnage.errors import RequestError, UnknownNameError
from tonnage.estimate.cost.assumptions import parse_given
from tonnage.hardware.currency import parse_rates, rate_of, reference_rates, with_rates
from tonnage.plan.pins import check_goal, read_pin, write_pin
from tonnage.plan.types import Limits, Money, Request, Scalar, Where
from tonnage.units import parse_bits_per_s, parse_bytes, parse_count, parse_seconds, parse_watts
from tonnage.workload.types import LORA_TARGETS, Serving, Training, TrainingKind

REQUIREMENTS: Final = ("ecc", "p2p", "nvlink", "official")
INTENTS: Final = ("experiment", "train", "serve", "batch")
_GOALS: Final = {
    "serve": ("context", "concurrency", "input_tokens", "output_tokens", "ttft", "tpot"),
    "train": ("seq_len", "global_batch", "tokens", "lora_rank", "lora_targets"),
}
_DEFAULTS: Final = {
    "context": 8192, "concurrency": 1, "seq_len": 2048, "global_batch": 8, "lora_rank": 16,
    "lora_targets": "all-linear",
}  # fmt: skip
_OF_ADAPTERS: Final = ("lora_rank", "lora_targets")
_PRETRAIN_DEFAULTS: Final = {"seq_len": 4096, "global_batch": 256}
_MOST_NODES: Final = 1 << 17
_MOST_DEVICES_OF_A_NODE: Final = 1024
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_MONEY: Final = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([A-Za-z]{3})\s*(/\s*h)?\s*", re.ASCII)


def parse_money(text: str, where: str, *, is_hourly: bool = False) -> Money:
    """Read an amount with its currency, and `/h` where it is an hourly one.

    >>> parse_money("25000 CNY", "--budget")
    Money(amount=25000.0, currency='CNY', usd=None)
    >>> parse_money("3 USD/h", "--rent", is_hourly=True).amount
    3.0
    """
    match = _MONEY.fullmatch(text) if len(text) <= 40 else None
    example = '"3 USD/h"' if is_hourly else '"25000 CNY"'
    if match is None or bool(match[3]) != is_hourly:
        raise RequestError(f"'{text[:60]}' is not an amount", where=where, fix=f"write it like {example}")
    amount = float(match[1].replace("_", "").replace(",", ""))
    if amount <= 0:
        raise RequestError(f"'{text}' is not more than zero", where=where, fix=f"write it like {example}")
    return Money(amount=amount, currency=match[2].upper())


def parse_gpu(text: str) -> tuple[str, int]:
    """Split "rtx-4090:2" into a name and a number.

    >>> parse_gpu("rtx-4090:2"), parse_gpu("h100-sxm")
    (('rtx-4090', 2), ('h100-sxm', 1))
    """
    name, colon, number = text.strip().rpartition(":")
    if not colon:
        name, number = number, "1"
    is_number = number.isascii() and number.isdigit() and len(number) <= 7
    if name and is_number and int(number) > _MOST_DEVICES_OF_A_NODE:
        what = f"{number} cards are more than one machine holds"
        raise RequestError(what, where="--gpu", fix=f"write --gpu {name}:8 and --nodes for the number of machines")
    if not name or not is_number or not 0 < int(number) <= _MOST_DEVICES_OF_A_NODE:
        raise RequestError(
            f"'{text[:60]}' names no hardware", where="--gpu", fix="write NAME or NAME:N, like rtx-4090:2"
        )
    return name, int(number)


def make_request(
    model: str,
    *,
    goal: str | None = None,
    finetune: str | None = None,
    load: Mapping[str, str | int | None] | None = None,
    gpus: Iterable[str] = (),
    nodes: int = 1,
    host: str | None = None,
    network: str | None = None,
    driver: str | None = None,
    is_here: bool = False,
    reserve: str | None = None,
    profile: str = "",
    limits: Mapping[str, Any] | None = None,
    pins: Mapping[str, object] | None = None,
    sets: Iterable[str] = (),
) -> Request:
    """Build a request from words, checking each.

    Parameters
    ----------
    model : str
        A hub id, path or catalogue name, as `tonnage model` takes it.
    goal : str, optional
        "serve" (the default), "pretrain" or "finetune".
    finetune : str, optional
        "full", "lora" or "qlora".
    load : mapping, optional
        context, concurrency, input_tokens, output_tokens, ttft, tpot (serving); seq_len, global_batch, tokens,
        lora_rank, lora_targets (training). What is absent gets a default, named in `Request.assumed`.
    gpus : iterable of str
        "NAME" or "NAME:N".
    nodes : int
        Number of equal machines. [1]
    host, reserve : str, optional
        The host's memory in words; what is taken of each device, with its unit.
    network : str
        A name in hardware/links.csv, or a rate such as "400Gb/s": what joins each device to other machines.
    is_here : bool
        This machine as it is found.
    profile : str
        The machine whose own measurements count, as `tonnage calibrate` labelled it; "none" leaves all out.
    limits : mapping, optional
        budget, rent, spend, deadline, max_power, require, engines, prices, rates, assume, today, intent, objective, as text; spot.
    pins : mapping, optional
        Path of `Candidate` to value.
    sets : iterable of str
        "path=value".

    Returns
    -------
    Request
        With every value checked.

    Raises
    ------
    RequestError
        A value that is none; one line with the cure.
    """
    if not model or len(model) > 4096 or "\0" in model:
        raise RequestError("no model is named", where="MODEL", fix="write a hub id such as Qwen/Qwen3.5-27B, or a path")
    if not 1 <= nodes <= _MOST_NODES:
        raise RequestError(
            f"'{nodes}' does not do", where="--nodes", fix=f"write a whole number from 1 to {_MOST_NODES}"
        )
    fixed = dict(read_pin(path, value, where=_flag_of(path)) for path, value in (pins or {}).items())
    fixed |= dict(read_pin(*_split_set(text)) for text in sets)
    check_goal(fixed, is_serving=goal in (None, "serve"))
    workload, assumed = _make_workload(goal, finetune, {k: v for k, v in (load or {}).items() if v is not None})
    where = Where(
        gpus=_merge(parse_gpu(text) for text in gpus),
        num_nodes=nodes,
        host=host,
        network=_read_network(network, nodes),
        driver=_read_driver(driver),
        is_here=is_here,
        reserve_bytes=None if reserve is None else _parse_reserve(reserve),
        profile=profile,
    )
    if is_here and (where.gpus or nodes > 1):
        raise RequestError("--here names this machine", where="--gpu", fix="leave out --gpu and --nodes, or --here")
    if where.driver and where.is_open:
        fix = "name the cards with --gpu, or leave it out"
        raise RequestError("a driver says nothing where cards are searched", where="--driver", fix=fix)
    return Request(
        model=model, workload=workload, where=where, limits=_make_limits(limits or {}), pins=fixed, assumed=assumed
    )


def _read_driver(text: str | None) -> str:
    """Check the version of a driver, "" where none is named."""
    if text is None:
        return ""
    from tonnage.engines.drivers import branch_of  # noqa: PLC0415  few name one

    if branch_of(text) is None:
        fix = "write what nvidia-smi shows, as 535.154.05, or the branch, as R535"
        raise RequestError(f"'{text[:40]}' is no driver's version", where="--driver", fix=fix)
    return text.strip()


def _read_network(name: str | None, num_nodes: int) -> str | None:
    """Check the name of a network; one machine has none."""
    if name is None:
        return None
    from tonnage.hardware.topology import networks  # noqa: PLC0415  only clusters need it

    slug = name.strip().lower()
    if slug[:1].isdigit():
        slug = f"{parse_bits_per_s(name, '--network') / 1e9:.15g}Gb/s"
    elif slug not in networks():
        fix = f"one of {', '.join(networks())}, or a rate for each card such as 400Gb/s"
        raise UnknownNameError(f"'{name[:40]}' is not a network", where="--network", fix=fix)
    if num_nodes == 1:
        raise RequestError("says nothing for one machine", where="--network", fix="leave it out, or add --nodes 2")
    return slug


def _parse_reserve(text: str) -> int:
    """Read a size; here nothing is one too: a card that no desktop uses."""
    return 0 if text.strip() == "0" else parse_bytes(text, "--reserve")


def _merge(gpus: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for name, number in gpus:
        counts[name] = counts.get(name, 0) + number
    return tuple(counts.items())


def _flag_of(path: str) -> str:
    return write_pin(path, 0)[0]


def _split_set(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals:
        raise RequestError(f"'{text[:60]}' sets nothing", where="--set", fix="write path=value, like layout.tp=2")
    return path.strip(), value.strip()


def _make_workload(
    goal: str | None, finetune: str | None, load: Mapping[str, str | int]
) -> tuple[Serving | Training, tuple[str, ...]]:
    kind = "serve" if goal in (None, "serve") else "train"
    wrong = [name for name in load if name not in _GOALS[kind]]
    if wrong:
        fix = "add --finetune or --pretrain" if kind == "serve" else "leave it out, or ask for --serve"
        raise RequestError(f"says nothing for {goal or 'serve'}", where=_load_flag(wrong[0]), fix=fix)
    defaults = _DEFAULTS | (_PRETRAIN_DEFAULTS if goal == "pretrain" else {})
    if goal == "finetune":
        finetune = finetune or "lora"
    has_adapters = finetune in ("lora", "qlora")
    wrong = [name for name in load if name in _OF_ADAPTERS and not has_adapters]
    if wrong:
        fix = "add --finetune lora or qlora, or leave it out"
        raise RequestError(f"says nothing for {finetune or goal}", where=_load_flag(wrong[0]), fix=fix)
    expected = [n for n in _GOALS[kind] if n in defaults and (n not in _OF_ADAPTERS or has_adapters)]
    assumed = tuple(_load_flag(n) for n in expected if n not in load)
    values: dict[str, Any] = {n: defaults[n] for n in expected} | {
        name: _read_load(name, str(v)) for name, v in load.items()
    }
    if kind == "serve":
        assumed += tuple(_load_flag(n) for n in ("input_tokens", "output_tokens") if n not in load)
        return _make_serving(values), (("--serve", *assumed) if goal is None else assumed)
    training = Training(
        kind=TrainingKind.PRETRAIN if goal == "pretrain" else TrainingKind(finetune),
        seq_len=values["seq_len"],
        global_batch_size=values["global_batch"],
        num_tokens=values.get("tokens"),
    )
    if has_adapters:
        training = replace(training, lora_rank=values["lora_rank"], lora_targets=(values["lora_targets"],))
    return training, assumed


def _read_load(name: str, text: str) -> float | int | str:
    if name in ("ttft", "tpot"):
        return parse_seconds(text, _load_flag(name))
    if name != "lora_targets":
        return parse_count(text, _load_flag(name))
    word = text.strip().lower().replace("_", "-")
    if word not in LORA_TARGETS:
        fix = f"one of {', '.join(LORA_TARGETS)}"
        raise RequestError(f"'{text[:40]}' is no choice of matrices", where="--lora-targets", fix=fix)
    return word


def _make_serving(values: Mapping[str, Any]) -> Serving:
    """Fill a serving load; without lengths, a request is an eighth of the context in and a thirty-second out."""
    context = values["context"]
    output = values.get("output_tokens") or max(1, min(256, context // 4))
    prompt = values.get("input_tokens") or max(1, min(1024, context - output))
    if prompt + output > context:
        raise RequestError(
            f"{prompt} tokens in and {output} out are more than a context of {context}",
            where="--context",
            fix=f"write --context {prompt + output} or fewer tokens",
        )
    return Serving(
        context_tokens=context,
        concurrency=values["concurrency"],
        input_tokens=prompt,
        output_tokens=output,
        ttft_limit_seconds=values.get("ttft"),
        tpot_limit_seconds=values.get("tpot"),
    )


def _load_flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _make_limits(words: Mapping[str, Any]) -> Limits:
    require = tuple(
        part.strip().lower() for text in words.get("require") or () for part in text.split(",") if part.strip()
    )
    for name in require:
        if name not in REQUIREMENTS:
            raise RequestError(
                f"'{name[:40]}' is not known", where="--require", fix=f"one of {', '.join(REQUIREMENTS)}"
            )
    prices: dict[str, Money] = {}
    for text in words.get("prices") or ():
        name, equals, amount = text.partition("=")
        if not equals or not name.strip():
            raise RequestError(f"'{text[:60]}' is no price", where="--price", fix='write it like rtx-4090="1800 USD"')
        prices[name.strip()] = parse_money(amount, "--price")
    money = {n: words[n] for n in ("budget", "rent", "spend") if words.get(n) is not None}
    rates = parse_rates(words.get("rates") or ())
    limits = {n: parse_money(text, f"--{n}", is_hourly=n == "rent") for n, text in money.items()}
    for name, amount in (*((f"--{n}", m) for n, m in limits.items()), *(("--price", m) for m in prices.values())):
        rate_of(amount.currency, with_rates(reference_rates(), rates), name)
    engines = tuple(part.strip() for text in words.get("engines") or () for part in text.split(",") if part.strip())
    if words.get("engines") and not engines:
        raise RequestError("names no engine", where="--engine", fix="write one, like --engine vllm, or leave it out")
    return Limits(
        **limits,
        rates=rates,
        assume=parse_given(words.get("assume") or ()),
        is_spot=bool(words.get("spot")),
        deadline_seconds=None if words.get("deadline") is None else parse_seconds(words["deadline"], "--deadline"),
        max_power_watts=None if words.get("max_power") is None else parse_watts(words["max_power"], "--max-power"),
        require=require,
        engines=engines,
        prices=prices,
        today=words.get("today"),
        intent=words.get("intent"),
        objective=words.get("objective"),
    )


def arguments(request: Request) -> tuple[str, ...]:
    """Return the arguments of the command that asks for a request; what is left to its default is left out."""
    return (
        "plan",
        request.model,
        *_goal_arguments(request),
        *_where_arguments(request.where),
        *_limit_arguments(request.limits),
        *_pin_arguments(request.pins),
        *_pairs((("--from", request.measured_run),)),
    )


def command(request: Request) -> str:
    """Return the command that asks for a request, quoted for a shell."""
    return " ".join(shlex.quote(word) for word in ("tonnage", *arguments(request)))


def _goal_arguments(request: Request) -> Sequence[str]:
    load, said = request.workload, request.assumed
    if isinstance(load, Serving):
        words = ["--serve"]
        plain = _make_serving({"context": load.context_tokens, "concurrency": 1})
        values = (
            ("--context", load.context_tokens if "--context" not in said else None),
            ("--concurrency", load.concurrency if "--concurrency" not in said else None),
            ("--input-tokens", load.input_tokens if load.input_tokens != plain.input_tokens else None),
            ("--output-tokens", load.output_tokens if load.output_tokens != plain.output_tokens else None),
            ("--ttft", _write_seconds(load.ttft_limit_seconds)),
            ("--tpot", _write_seconds(load.tpot_limit_seconds)),
        )
    else:
        words = ["--pretrain"] if load.kind is TrainingKind.PRETRAIN else ["--finetune", load.kind.value]
        has_rank = load.kind in (TrainingKind.LORA, TrainingKind.QLORA)
        values = (
            ("--seq-len", load.seq_len if "--seq-len" not in said else None),
            ("--global-batch", load.global_batch_size if "--global-batch" not in said else None),
            ("--tokens", None if load.num_tokens is None else write_count(load.num_tokens)),
            ("--lora-rank", load.lora_rank if has_rank and "--lora-rank" not in said else None),
            ("--lora-targets", ",".join(load.lora_targets) if has_rank and "--lora-targets" not in said else None),
        )
    return [*words, *_pairs(values)]


def _pairs(values: Iterable[tuple[str, object]]) -> list[str]:
    return [word for flag, value in values if value is not None for word in (flag, str(value))]


def _write_seconds(seconds: float | None) -> str | None:
    """Write a duration in the largest unit that tenths of are enough for; read again it is the same.

    >>> _write_seconds(259200.0), _write_seconds(0.25), _write_seconds(1.1), _write_seconds(22.6 * 86400)
    ('3d', '250ms', '1.1s', '22.6d')
    """
    if seconds is None:
        return None
    if seconds < 1:
        return f"{seconds / 1e-3:g}ms"
    fitting = ((s, u) for s, u in _UNITS if seconds >= s and float(f"{seconds / s:.1f}") * s == seconds)
    scale, unit = next(fitting, (1.0, "s"))
    return f"{round(seconds / scale, 6):.15g}{unit}"


def _write_money(money: Money | None, suffix: str = "") -> str | None:
    return None if money is None else f"{money.amount:.15g} {money.currency}{suffix}"


def _where_arguments(where: Where) -> Sequence[str]:
    gpus = [word for name, number in where.gpus for word in ("--gpu", name if number == 1 else f"{name}:{number}")]
    values = (
        ("--nodes", where.num_nodes if where.num_nodes > 1 else None),
        ("--host", where.host),
        ("--network", where.network),
        ("--driver", where.driver or None),
        ("--reserve", None if where.reserve_bytes is None else write_reserve(where.reserve_bytes)),
        ("--profile", where.profile if where.profile not in ("", "none") else None),
    )
    flags = [*(["--here"] if where.is_here else []), *(["--no-profile"] if where.profile == "none" else [])]
    return [*gpus, *flags, *_pairs(values)]


def _limit_arguments(limits: Limits) -> Sequence[str]:
    values = (
        ("--budget", _write_money(limits.budget)),
        ("--rent", _write_money(limits.rent, "/h")),
        ("--spend", _write_money(limits.spend)),
        ("--deadline", _write_seconds(limits.deadline_seconds)),
        ("--max-power", None if limits.max_power_watts is None else f"{limits.max_power_watts:.15g}W"),
        ("--require", ",".join(limits.require) or None),
        ("--engine", ",".join(limits.engines) or None),
        *(("--price", f"{name}={_write_money(money)}") for name, money in limits.prices.items()),
        *(("--rate", f"{currency}={rate:.15g}") for currency, rate in limits.rates.items()),
        *(("--assume", f"{name}={value:.15g}") for name, value in limits.assume.items()),
        ("--today", limits.today),
        ("--intent", limits.intent),
        ("--objective", limits.objective),
    )
    return [*_pairs(values), *(["--spot"] if limits.is_spot else [])]


def _pin_arguments(pins: Mapping[str, Scalar]) -> Sequence[str]:
    return [word for path, value in pins.items() for word in write_pin(path, value)]


def write_count(number: int) -> str:
    """Write a count exactly, with the largest prefix that loses nothing.

    >>> write_count(15 * 10**12), write_count(1234)
    ('15T', '1234')
    """
    for scale, name in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number % scale == 0:
            return f"{number // scale}{name}"
    return str(number)


def write_reserve(num_bytes: int) -> str:
    """Write a size exactly, in the largest unit that loses nothing.

    >>> write_reserve(1 << 30), write_reserve(1500), write_reserve(0)
    ('1GiB', '1500B', '0')
    """
    if not num_bytes:
        return "0"
    for scale, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if num_bytes % scale == 0:
            return f"{num_bytes // scale}{name}"
    return f"{num_bytes}B"
