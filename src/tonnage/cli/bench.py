"""`tonnage bench`: load a server and see what its requests see."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli.options import common, emit_json, note, put_text
from tonnage.messages import say

if TYPE_CHECKING:
    from tonnage.load.ask import LoadTest
    from tonnage.load.summary import Benched
    from tonnage.load.types import Sample, Target
    from tonnage.plan.types import Plan
    from tonnage.simulate.arrivals import Requests

_DEFAULT_NUMBER = 200


@click.command("bench")
@click.argument("target", metavar="URL|PLAN")
@click.option(
    "--url", metavar="URL", help="Where the server of a PLAN answers; its engine's port on this machine by default."
)
@click.option("--rate", type=float, metavar="PER_S", help="Send requests when due, so many a second (an open loop).")
@click.option(
    "--pattern",
    type=click.Choice(("poisson", "constant", "bursty")),
    default="poisson",
    show_default=True,
    help="Of the requests that --rate sends.",
)
@click.option("--concurrency", type=click.IntRange(1, 65_536), help="Keep so many requests in flight (a closed loop).")
@click.option("--duration", metavar="TIME", help="Of the load.")
@click.option("--number", type=click.IntRange(1, 1_000_000), help=f"Requests; {_DEFAULT_NUMBER} by default.")
@click.option(
    "--requests", metavar="FILE", help="A trace: arrival_seconds,input_tokens,output_tokens; or azure-conv, azure-code."
)
@click.option("--speed", type=float, default=1.0, show_default=True, help="Multiple of the rate of a trace.")
@click.option("--input-tokens", type=click.IntRange(1, 1_000_000), help="Of each prompt.")
@click.option("--output-tokens", type=click.IntRange(1, 1_000_000), help="Of each answer.")
@click.option("--model", metavar="NAME", default="", help="As the server calls it; its first by default.")
@click.option(
    "--api", type=click.Choice(("completions", "chat")), default="completions", show_default=True, help="Which door."
)
@click.option(
    "--warmup", type=click.IntRange(0, 1000), default=1, show_default=True, help="Requests before, that do not count."
)
@click.option("--timeout", metavar="TIME", default="10min", show_default=True, help="Of one request.")
@click.option("--ttft", metavar="TIME", help="Limit on the first token, for goodput.")
@click.option("--tpot", metavar="TIME", help="Limit on each token after it.")
@click.option("--e2e", metavar="TIME", help="Limit on the whole request.")
@click.option(
    "--keep", type=click.FloatRange(0, 1), default=0.99, show_default=True, help="Share of requests within limits."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of prompts and arrivals.")
@click.option("--save", metavar="FILE", help="Write the sums and every request as JSON.")
@common
def command(target: str, is_json: bool, is_quiet: bool, **words: Any) -> int:
    """Load an OpenAI-compatible server: QPS, goodput, TTFT, TPOT, percentiles, errors by kind.

    A bearer token is read from TONNAGE_API_KEY and never written. Exits with 3 where requests fail, or fewer than
    --keep are within the limits.

    \b
    tonnage bench http://127.0.0.1:8000 --concurrency 16
    tonnage bench http://127.0.0.1:8000 --rate 5 --duration 2min --input-tokens 1000 --output-tokens 200 --ttft 2s
    tonnage bench plan.toml --requests azure-conv --speed 0.5 --save bench.json
    """
    from tonnage import api

    plan, url = _server(target, words["url"])
    test = _test(url, plan, words)
    found, samples, asked = api.bench(test, _teller(is_quiet))
    if not is_quiet and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if words["save"]:
        _save(words["save"], found, samples, asked, test, is_quiet=is_quiet)
    if is_json:
        from tonnage.load.summary import bench_object

        emit_json(bench_object(found))
    else:
        print("\n".join(to_lines(found, asked, test, plan)))
    return 0 if found.num_ok == found.num_requests and found.kept_ratio >= words["keep"] else 3


def _server(target: str, url: str | None) -> tuple[Plan | None, str]:
    if target.startswith(("http://", "https://")):
        return None, target
    from tonnage import api
    from tonnage.cli.plan import read_text
    from tonnage.errors import RequestError
    from tonnage.plan.file import LARGEST_BYTES
    from tonnage.render.services import service_of
    from tonnage.workload.types import Serving

    plan = api.read_plan(read_text(target, LARGEST_BYTES), target)
    if not isinstance(plan.estimate.candidate.workload, Serving):
        raise RequestError("the plan trains", where="bench", fix="give a plan made with --serve")
    if url is not None:
        return plan, url
    probe = service_of(plan).probe
    if probe is None:
        raise RequestError("the plan's engine has no port that is known", where="bench", fix="give --url")
    return plan, f"http://127.0.0.1:{probe.port}"


def _test(url: str, plan: Plan | None, words: dict[str, Any]) -> LoadTest:
    from tonnage.errors import RequestError
    from tonnage.load.ask import LoadTest
    from tonnage.load.types import Api
    from tonnage.units import parse_seconds

    def seconds(name: str) -> float | None:
        return None if words[name] is None else parse_seconds(words[name], f"--{name}")

    ways = [name for name in ("rate", "concurrency", "requests") if words[name] is not None]
    if len(ways) > 1:
        raise RequestError(f"--{ways[0]} and --{ways[1]} are two loads", where="bench", fix="give one of them")
    workload: Any = None if plan is None else plan.estimate.candidate.workload
    clients = words["concurrency"]
    if not ways:
        clients = getattr(workload, "concurrency", 1)
    duration = seconds("duration")
    return LoadTest(
        url=url,
        model=words["model"],
        api=Api(words["api"]),
        key=os.environ.get("TONNAGE_API_KEY", ""),
        requests=_requests(words, workload, duration),
        num_clients=clients,
        until_seconds=duration if clients is not None else None,
        warmup=words["warmup"],
        timeout_seconds=parse_seconds(words["timeout"], "--timeout"),
        ttft_limit_seconds=seconds("ttft") or getattr(workload, "ttft_limit_seconds", None),
        tpot_limit_seconds=seconds("tpot") or getattr(workload, "tpot_limit_seconds", None),
        e2e_limit_seconds=seconds("e2e"),
        seed=words["seed"],
    )


def _requests(words: dict[str, Any], workload: Any, duration: float | None) -> Requests:
    from tonnage.cli.simulate import above_zero, read_trace
    from tonnage.simulate import arrivals

    if words["requests"] is not None:
        above_zero(words["speed"], "--speed")
        load = read_trace(words["requests"])
        load = load if words["speed"] == 1.0 else arrivals.faster(load, words["speed"])
        number = words["number"] or len(load)
        if duration is not None:
            number = min(number, sum(moment <= duration for moment in load.arrival_seconds))
        return arrivals.first_of(load, max(number, 1))
    lengths = (
        words["input_tokens"] or getattr(workload, "input_tokens", 512),
        words["output_tokens"] or getattr(workload, "output_tokens", 128),
    )
    rate = words["rate"]
    if rate is None:
        return arrivals.constant(words["number"] or _DEFAULT_NUMBER, 1.0, *lengths)
    above_zero(rate, "--rate")
    number = words["number"] or (_DEFAULT_NUMBER if duration is None else max(1, round(rate * duration)))
    if words["pattern"] == "constant":
        return arrivals.constant(number, rate, *lengths)
    variation = 3.0 if words["pattern"] == "bursty" else 1.0
    return arrivals.bursty(number, rate, *lengths, variation_ratio=variation, seed=words["seed"])


def _teller(is_quiet: bool) -> Any:
    def told(number: int) -> None:
        if not is_quiet and sys.stderr.isatty() and not number % 16:
            print(f"\r\x1b[K{say('bench.told', number=number)}", end="", file=sys.stderr, flush=True)

    return told


def _save(path: str, found: Benched, samples: list[Sample], asked: Target, test: LoadTest, *, is_quiet: bool) -> None:
    from tonnage.load.summary import bench_object

    value = {
        "schema": 1,
        "kind": "bench",
        "model": asked.model,
        "url": asked.url,
        "api": str(asked.api),
        "concurrency": test.num_clients,
        "limits": {
            "ttft_seconds": test.ttft_limit_seconds,
            "tpot_seconds": test.tpot_limit_seconds,
            "e2e_seconds": test.e2e_limit_seconds,
        },
        **bench_object(found),
        "samples": [
            {
                "scheduled": one.scheduled_seconds,
                "sent": one.sent_seconds,
                "first_token": one.first_token_seconds,
                "end": one.end_seconds,
                "input_tokens": one.input_tokens,
                "output_tokens": one.output_tokens,
                "outcome": str(one.outcome),
                "warmup": one.is_warmup,
            }
            for one in samples
        ],
    }
    if put_text(path, json.dumps(value) + "\n"):
        note(say("bench.saved", path=path), is_quiet=is_quiet)


def to_lines(found: Benched, asked: Target, test: LoadTest, plan: Plan | None) -> list[str]:
    """Return the lines of the terminal's answer."""
    from tonnage.cli.tables import printable, table
    from tonnage.units import format_seconds

    text = [
        say("bench.title", model=printable(asked.model), url=printable(asked.url), api=asked.api),
        say("bench.closed", num=found.num_requests, clients=test.num_clients)
        if test.num_clients is not None
        else say("bench.open", num=found.num_requests, rate=test.requests.requests_per_s or 0.0),
        say("bench.ended", ok=found.num_ok, num=found.num_requests, span=format_seconds(found.span_seconds)),
        *(
            say("bench.error", number=number, kind=kind, reason=printable(found.reasons.get(kind, "")))
            for kind, number in sorted(found.errors.items())
        ),
        "",
    ]
    names = ("mean", "p50", "p95", "p99", "worst")
    performance = None if plan is None else plan.estimate.performance

    def predicted(name: str) -> str:
        value = None if performance is None else getattr(performance, f"{name}_seconds", None)
        return "" if value is None else format_seconds(value.best)

    rows = [
        (say(f"bench.{name}"), *(_time(getattr(getattr(found, name), at)) for at in names), predicted(name))
        for name in ("ttft", "tpot", "gap", "e2e")
    ]
    header = (say("bench.what"), "mean", "P50", "P95", "P99", "max", say("bench.predicted"))
    if plan is None:
        header, rows = header[:-1], [row[:-1] for row in rows]
    text += table(header, rows, right=tuple(range(1, len(header))))
    text += [
        "",
        say(
            "bench.rates",
            qps=found.requests_per_s,
            tokens=found.output_tokens_per_s,
            kept=found.kept_ratio,
            goodput=found.goodput_requests_per_s,
        ),
    ]
    rate = None if performance is None else performance.tokens_per_s
    if rate is not None:
        text.append(say("bench.plan_rate", best=rate.best, low=rate.low, high=rate.high))
    if found.num_ok and found.input_tokens is not None:
        text.append(
            say(
                "bench.lengths",
                input=found.input_tokens / found.num_ok,
                output=found.output_tokens / found.num_ok,
                asked_input=sum(test.requests.input_tokens) / len(test.requests),
                asked_output=sum(test.requests.output_tokens) / len(test.requests),
            )
        )
    busy = "?" if found.client_busy_ratio is None else f"{found.client_busy_ratio:.0%}"
    text.append(say("bench.client", busy=busy, late=_time(found.late.p99)))
    if found.is_client_limited:
        text.append(say("bench.limited"))
    if found.few:
        needed = {"p50": 20, "p95": 200, "p99": 1000}
        names = ", ".join(name.upper() for name in found.few)
        text.append(say("bench.few", names=names, number=needed[found.few[-1]]))
    return text


def _time(value: float | None) -> str:
    from tonnage.units import format_seconds

    return "-" if value is None else format_seconds(value)
