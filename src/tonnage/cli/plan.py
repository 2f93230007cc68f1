"""`tonnage plan`: the ways to do it, ranked and explained."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli.options import common, emit_json, note, put_text, waiting
from tonnage.messages import say

if TYPE_CHECKING:
    from tonnage.oracle.compare import Comparison
    from tonnage.plan.adopt import Adopted
    from tonnage.plan.measured import Run
    from tonnage.plan.today import Stack
    from tonnage.plan.types import Answer, Request

_LOAD = ("context", "concurrency", "input_tokens", "output_tokens", "ttft", "tpot", "seq_len", "global_batch", "tokens",
         "lora_rank", "lora_targets")  # fmt: skip
_LIMITS = {
    "budget": "budget", "rent": "rent", "spend": "spend", "deadline": "deadline", "max_power": "max_power",
    "require": "require", "engine": "engines", "price": "prices", "today": "today", "intent": "intent",
    "objective": "objective",
    "rate": "rates", "assume": "assume", "spot": "spot",
}  # fmt: skip
_PIN_OPTIONS = {
    "tp": "layout.tp", "pp": "layout.pp", "cp": "layout.cp", "ep": "layout.ep", "dp": "layout.dp",
    "zero": "layout.zero_stage", "micro_batch": "micro_batch_size", "recompute": "recompute", "optimizer": "optimizer",
    "precision": "precision.compute", "quant": "precision.weights", "kv": "precision.kv",
    "max_num_seqs": "settings.max_num_seqs", "max_batched_tokens": "settings.max_batched_tokens",
    "utilization": "settings.utilization_ratio", "cpu_experts": "offload.num_cpu_expert_layers",
}  # fmt: skip


def _complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    del ctx, param
    from tonnage.model.catalogue import names

    return [name for name in names() if name.lower().startswith(incomplete.lower())]


def _complete_gpu(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    del ctx, param
    from tonnage.hardware.catalogue import slugs

    return [slug for slug in slugs() if slug.startswith(incomplete.lower())]


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options, in the order in which --help shows them."""
    for decorate in reversed(
        (
            click.option("--serve", is_flag=True, help="Serve it (the default)."),
            click.option("--pretrain", is_flag=True, help="Train it from nothing."),
            click.option("--finetune", type=click.Choice(("full", "lora", "qlora")), help="Train it further."),
            click.option("--context", metavar="N", help="Serving: tokens that a request may hold. [8192]"),
            click.option("--concurrency", metavar="N", help="Serving: requests in flight. [1]"),
            click.option("--input-tokens", metavar="N", help="Serving: tokens of a prompt. [1024]"),
            click.option("--output-tokens", metavar="N", help="Serving: tokens of an answer. [256]"),
            click.option("--ttft", metavar="TIME", help='Serving: longest time to the first token, "2s".'),
            click.option("--tpot", metavar="TIME", help='Serving: longest time for a token, "50ms". [250ms]'),
            click.option("--seq-len", metavar="N", help="Training: tokens of a sequence."),
            click.option("--global-batch", metavar="N", help="Training: sequences of one optimizer step."),
            click.option("--tokens", metavar="N", help='Training: tokens of the whole job, "15T".'),
            click.option("--lora-rank", metavar="N", help="LoRA and QLoRA: rank of the adapters. [16]"),
            click.option("--lora-targets", metavar="WHICH", help="Adapters on: attention, all-linear, all (experts)."),
            click.option(
                "--gpu",
                multiple=True,
                metavar="NAME:N",
                shell_complete=_complete_gpu,
                help="Cards of a machine.",
            ),
            click.option("--nodes", type=int, default=1, metavar="N", help="Equal machines. [1]"),
            click.option("--host", metavar="TEXT", help='The machine around them: "64 GiB ddr5-5600 x2, nvme 2 TB".'),
            click.option(
                "--network", metavar="NAME|RATE", help="Between machines, for each card: ib-ndr, eth-100, … or 400Gb/s."
            ),
            click.option(
                "--driver",
                metavar="VERSION",
                help="NVIDIA's on these machines, 535.154: engines that need newer are out.",
            ),
            click.option("--here", is_flag=True, help="This machine as it is: free memory counts."),
            click.option("--reserve", metavar="SIZE", help='Taken of each card by desktop and others, "1 GiB".'),
            click.option("--profile", metavar="NAME", default="", help="A machine that tonnage calibrate measured."),
            click.option("--no-profile", is_flag=True, help="Leave out what was measured on this machine."),
            click.option("--budget", metavar="MONEY", help='To buy, the whole machine: "25000 CNY".'),
            click.option("--rent", metavar="MONEY", help='To rent: "3 USD/h".'),
            click.option("--spend", metavar="MONEY", help='For the whole job: "200 USD".'),
            click.option("--deadline", metavar="TIME", help='For the whole job: "3d".'),
            click.option("--max-power", metavar="POWER", help='Of all cards: "800W".'),
            click.option("--require", multiple=True, metavar="NAMES", help="ecc, p2p, nvlink, official."),
            click.option("--engine", multiple=True, metavar="NAMES", help="Only these engines."),
            click.option("--price", multiple=True, metavar="GPU=MONEY", help='A price: rtx-4090="1800 USD".'),
            click.option("--rate", multiple=True, metavar="CUR=N", help="Units of a currency for a dollar: CNY=7.1."),
            click.option(
                "--assume",
                multiple=True,
                metavar="NAME=N",
                help="What is assumed of money: tariff=0.30, use_per_day=24.",
            ),
            click.option("--spot", is_flag=True, help="Rent machines that may be taken away."),
            click.option("--today", metavar="FILE", help="Today's stack, for what carries over."),
            click.option(
                "--intent", type=click.Choice(("experiment", "train", "serve", "batch")), help="What matters."
            ),
            click.option(
                "--objective",
                type=click.Choice(("throughput", "latency", "cost", "time", "price", "energy", "change")),
                help="What plans are ranked by; by default what the load or --intent asks for.",
            ),
            click.option("--tp", metavar="N", help="Pin: tensor parallel."),
            click.option("--pp", metavar="N", help="Pin: pipeline parallel."),
            click.option("--cp", metavar="N", help="Pin: context parallel."),
            click.option("--ep", metavar="N", help="Pin: expert parallel."),
            click.option("--dp", metavar="N", help="Pin: data parallel (copies)."),
            click.option("--zero", metavar="0-3", help="Pin: ZeRO stage; FSDP2 is 3."),
            click.option("--micro-batch", metavar="N", help="Pin: micro-batch size."),
            click.option("--recompute", metavar="MODE", help="Pin: none, selective or full."),
            click.option("--optimizer", metavar="NAME", help="Pin: adamw, adamw_8bit, adafactor, …"),
            click.option("--precision", metavar="TYPE", help="Pin: what is computed in: bf16, fp16, fp8, fp32."),
            click.option("--quant", metavar="FORMAT", help="Pin: format of the weights: bf16, fp8, awq, q4_k_m, …"),
            click.option("--kv", metavar="FORMAT", help="Pin: format of the cache: fp16, fp8, q8_0, …"),
            click.option("--max-num-seqs", metavar="N", help="Pin: sequences that an engine schedules together."),
            click.option("--max-batched-tokens", metavar="N", help="Pin: tokens of one engine step."),
            click.option("--utilization", metavar="0-1", help="Pin: the engine's share of a card's memory."),
            click.option("--cpu-experts", metavar="N|all", help="Pin: layers whose experts stay in host memory."),
            click.option("--set", multiple=True, metavar="PATH=VALUE", help="Pin any field of a plan."),
            click.option("--import", metavar="FILE", help="Read pins from a configuration or launch line."),
            click.option(
                "--oracle", is_flag=True, help="Training: run its layers without data in PyTorch, beside the formulae."
            ),
            click.option("--from", metavar="RUN", help="A measured run, FILE or folder: it corrects what is near it."),
            click.option("--pick", type=click.IntRange(1), default=1, metavar="N", help="Which plan -o keeps. [1]"),
            click.option("-o", "--output", metavar="FILE", help="Keep a plan in a file; - prints it."),
            click.option(
                "--poc", is_flag=True, help="What is least certain of a plan, and the shortest run to settle it."
            ),
            click.option("--csv", "sheet", metavar="FILE", help="Write the plans as a table; - prints it."),
            click.option(
                "--html", "page", metavar="FILE", help="Write a page with charts, whole in itself; - prints it."
            ),
        )
    ):
        function = decorate(function)
    return function


@click.command("plan")
@click.argument("spec", metavar="MODEL", required=False, shell_complete=_complete_model)
@_options
@common
def command(
    spec: str | None,
    pick: int,
    output: str | None,
    oracle: bool,
    poc: bool,
    sheet: str | None,
    page: str | None,
    is_json: bool,
    is_quiet: bool,
    **words: Any,
) -> int:
    """Find the ways to serve or train MODEL: ranked plans, why the others lost, what would make it fit.

    Exit code 3 says that nothing fits.

    \b
    tonnage plan Qwen/Qwen3.5-35B-A3B --serve --gpu rtx-4080
    tonnage plan Qwen/Qwen3.5-27B --finetune qlora --gpu rtx-4090
    tonnage plan Qwen/Qwen3.5-27B --gpu rtx-4080 --quant fp16
    tonnage plan Qwen/Qwen3.5-35B-A3B --budget "25000 CNY"
    """
    from tonnage import api
    from tonnage.errors import RequestError

    printed = [name for name, path in (("-o", output), ("--csv", sheet), ("--html", page)) if path == "-"]
    printed += ["--json"] if is_json else []
    if len(printed) > 1:
        what = f"{printed[0]} and {printed[1]} both write there"
        raise RequestError(what, where="standard output", fix="leave out one of them")
    adopted = _adopt(words["import"], is_quiet=is_quiet)
    run, ran = (None, None) if words["from"] is None else _measured(words["from"])
    if ran is not None:
        spec, words = _as_it_ran(spec, words, ran)
    request = replace(_request(spec, words, adopted), measured_run=words["from"])
    today = None if request.limits.today is None else _today(request.limits.today, is_quiet=is_quiet)
    if oracle:
        traced = _traced_alone(request, is_json=is_json)
        if traced is not None:
            return traced
    with waiting(say("search.searching"), is_quiet=is_quiet):
        answer = _named(api.plan(request, today=today, run=run), adopted)
    if answer.plans and pick > len(answer.plans):
        raise RequestError(f"there are {len(answer.plans)} plans", where="--pick", fix=f"pick 1 to {len(answer.plans)}")
    comparison = _cross_check(answer, pick) if oracle else None
    if output is not None:
        _keep(answer, pick, output, is_quiet=is_quiet)
    if sheet is not None:
        from tonnage.plan.sheet import write_sheet

        _write(write_sheet(answer), sheet, "page.sheet", answer, is_quiet=is_quiet)
    if page is not None:
        from tonnage.plan.answer_page import write_answer_page

        _write(write_answer_page(answer, pick), page, "page.written", answer, is_quiet=is_quiet)
    proof = api.proof(answer, pick) if poc and answer.plans else None
    if is_json:
        from tonnage.plan.report import answer_object, proof_object

        beside = {} if comparison is None else {"oracle": _oracle_object(comparison)}
        emit_json(answer_object(answer) | beside | ({"poc": proof_object(proof) if proof else None} if poc else {}))
    elif not printed:
        from tonnage.cli.plan_text import to_lines

        print("\n".join(to_lines(answer)))
        if proof is not None:
            from tonnage.cli.proof_text import proof_lines

            print("\n".join(("", *proof_lines(proof))))
        if comparison is not None:
            from tonnage.cli.oracle_text import comparison_lines

            print("\n".join(("", *comparison_lines(comparison))))
    return 0 if answer.plans else 3


def _oracle_object(comparison: Comparison) -> dict[str, Any]:
    from tonnage.oracle.report import comparison_object

    return comparison_object(comparison)


def _traced_alone(request: Request, *, is_json: bool) -> int | None:
    """Answer by traces where no formula covers the family; None where formulae do."""
    from tonnage import api
    from tonnage.errors import RequestError
    from tonnage.oracle.model import require_torch
    from tonnage.workload.types import Serving

    if isinstance(request.workload, Serving):
        raise RequestError("it traces training", where="--oracle", fix="add --pretrain or --finetune full|lora|qlora")
    require_torch()
    found = api.fits_by_trace(request)
    if found is None:
        return None
    if is_json:
        from tonnage.oracle.report import fits_object
        from tonnage.plan.report import request_object

        emit_json(
            {
                "request": request_object(request),
                "plans": [],
                "rejections": [],
                "num_candidates": len(found.ways),
                "oracle": fits_object(found),
            }
        )
    else:
        from tonnage.cli.oracle_text import fits_lines

        print("\n".join(fits_lines(found, request)))
    return 0 if found.ways[0].short_by_bytes == 0 else 3


def _cross_check(answer: Answer, pick: int) -> Comparison | None:
    """Trace the plan that is picked, or the nearest that was turned down; None where nothing was estimated."""
    from tonnage import api

    estimates = [plan.estimate for plan in answer.plans[pick - 1 : pick]]
    estimates += [one.estimate for one in answer.rejections if one.estimate is not None]
    return api.cross_check(estimates[0], answer.request.model) if estimates else None


def _measured(path: str) -> tuple[Run, Request | None]:
    """Read a measured run from a file, or from the `run.json` of a folder; `FILE#ID` names a row of several."""
    from tonnage import api
    from tonnage.calibrate.run_file import LARGEST_BYTES

    file, mark, name = path.partition("#")
    if Path(file).is_dir():
        file = str(Path(file) / "run.json")
    return api.read_run(read_text(file, LARGEST_BYTES), f"{file}{mark}{name}")


def _as_it_ran(spec: str | None, words: dict[str, Any], ran: Request) -> tuple[str, dict[str, Any]]:
    """Take from the run what the command leaves open: its model, goal, load and hardware, and none of its pins."""
    from tonnage.workload.types import Training

    load = ran.workload
    assert isinstance(load, Training), "runs of serving teach by calibrate"
    full = dict(words)
    if not any(words[name] for name in ("serve", "pretrain", "finetune")):
        full["pretrain"] = load.kind.value == "pretrain"
        full["finetune"] = None if full["pretrain"] else load.kind.value
        said = {"seq_len": load.seq_len, "global_batch": load.global_batch_size}
        if load.kind.value in ("lora", "qlora"):
            said |= {"lora_rank": load.lora_rank, "lora_targets": load.lora_targets[0]}
        for name, value in said.items():
            full[name] = words[name] if words[name] is not None else str(value)
    if not words["gpu"] and not words["here"]:
        full["gpu"] = tuple(f"{name}:{number}" for name, number in ran.where.gpus)
        full["nodes"] = words["nodes"] if words["nodes"] != 1 else ran.where.num_nodes
    return spec or ran.model, full


def _adopt(path: str | None, *, is_quiet: bool) -> Adopted | None:
    """Read a configuration or launch line, and say what of it is not counted."""
    if path is None:
        return None
    from tonnage.plan.adopt import LARGEST_BYTES, adopt

    adopted = adopt(read_text(path, LARGEST_BYTES), path)
    pins = ", ".join(f"{name}={value}" for name, value in (*adopted.load.items(), *adopted.pins.items()))
    note(say("plan.imported", path=path, kind=adopted.kind, text=pins or "-"), is_quiet=is_quiet)
    if adopted.defaults:
        text = ", ".join(f"{name}={value}" for name, value in adopted.defaults.items())
        note(say("plan.engine_defaults", path=path, text=text), is_quiet=is_quiet)
    for text in adopted.ignored:
        note(say("plan.not_counted", path=path, text=text), is_quiet=is_quiet)
    return adopted


def _named(answer: Answer, adopted: Adopted | None) -> Answer:
    """Return the answer, with a warning where the file names another model than the one that is counted."""
    if adopted is None or adopted.model is None:
        return answer
    from tonnage.plan.adopt import is_same_model

    if is_same_model(answer.request.model, adopted.model):
        return answer
    text = say("plan.other_model", model=answer.request.model, other=adopted.model[:80])
    return replace(answer, warnings=(text, *answer.warnings))


def _today(path: str, *, is_quiet: bool) -> Adopted | Stack | None:
    """Read today's stack or set-up; a file of another kind is said not to be compared, and nothing fails."""
    from tonnage.errors import BadFileError
    from tonnage.plan.adopt import LARGEST_BYTES, adopt

    text = read_text(path, LARGEST_BYTES)
    stack = _stack(text, path)
    if stack is not None:
        return stack
    try:
        return adopt(text, path)
    except BadFileError as error:
        note(say("plan.today_not_compared", path=path, reason=error.what), is_quiet=is_quiet)
        return None


def _stack(text: str, path: str) -> Stack | None:
    """Return the stack that a text describes, None where it is something else."""
    import tomllib

    from tonnage.plan.today import is_stack, read_stack

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None
    return read_stack(table, path) if is_stack(table) else None


def read_text(path: str, most: int) -> str:
    """Return a small file's text; one line says what is wrong with it."""
    from tonnage.errors import BadFileError
    from tonnage.probe.plain_file import read_bytes

    try:
        if path == "-":
            return sys.stdin.read(most + 1).removeprefix("\ufeff")
        return read_bytes(path, most + 1).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise BadFileError(f"cannot be read: {reason}", where=path[:200], fix="give the path of a text file") from None


def _request(spec: str | None, words: dict[str, Any], adopted: Adopted | None) -> Request:
    """Build the request: what the command says wins over what the file says."""
    from tonnage.errors import RequestError
    from tonnage.plan.request import make_request

    goals = [name for name in ("finetune", "pretrain", "serve") if words[name]]
    if len(goals) > 1:
        raise RequestError("one goal at a time", where=f"--{goals[0]}", fix=f"leave out --{goals[1]}")
    goal = goals[0] if goals else None
    load = {name: words[name] for name in _LOAD if words[name] is not None}
    pins = {path: words[name] for name, path in _PIN_OPTIONS.items() if words[name] is not None}
    limits = {name: words[option] for option, name in _LIMITS.items()}
    gpus, nodes = tuple(words["gpu"]), words["nodes"]
    if adopted is not None:
        goal = goal or adopted.goal
        is_serving = goal == "serve"
        load = {n: v for n, v in adopted.load.items() if (n in _LOAD[:6]) == is_serving} | load
        pins = {**(adopted.defaults if is_serving == (adopted.goal == "serve") else {}), **adopted.pins, **pins}
        limits["engines"] = limits["engines"] or tuple(filter(None, (adopted.engine,)))
        spec = spec or adopted.model
        nodes = adopted.num_nodes if adopted.num_nodes and nodes == 1 else nodes
        if len(gpus) == 1 and ":" not in gpus[0] and adopted.num_devices:
            gpus = (f"{gpus[0]}:{adopted.num_devices}",)
        if goal is None:
            raise RequestError(
                "the file does not say what is trained",
                where="--import",
                fix="add --pretrain or --finetune full|lora|qlora",
            )
    if spec is None:
        raise RequestError("no model is named", where="MODEL", fix="tonnage plan Qwen/Qwen3.5-27B --gpu rtx-4090")
    return make_request(
        spec,
        goal=goal,
        finetune=words["finetune"],
        load=load,
        gpus=gpus,
        nodes=nodes,
        host=words["host"],
        network=words["network"],
        driver=words["driver"],
        is_here=words["here"],
        reserve=words["reserve"],
        profile="none" if words["no_profile"] else words["profile"],
        limits=limits,
        pins=pins,
        sets=words["set"],
    )


def _keep(answer: Answer, pick: int, output: str, *, is_quiet: bool) -> None:
    """Write one plan to a file."""
    from tonnage import api

    if answer.plans:
        text = api.write_plan(answer.plans[pick - 1])
        _write(text, output, "plan.kept", answer, is_quiet=is_quiet, rank=pick)


def _write(text: str, path: str, message: str, answer: Answer, *, is_quiet: bool, **values: Any) -> None:
    """Write a text to a file, or to standard output, and say so."""
    if put_text(path, text):
        note(say(message, path=path, num=len(answer.plans), **values), is_quiet=is_quiet)
