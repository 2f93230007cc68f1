"""`tonnage simulate`: a plan under real load, or on machines that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tonnage.cli.options import common, emit_json, note, put_text
from tonnage.messages import say

if TYPE_CHECKING:
    from tonnage.plan.types import Plan
    from tonnage.simulate.arrivals import Requests
    from tonnage.simulate.ask import JobAnswer, JobTry, LoadAnswer
    from tonnage.simulate.autoscale import Policy
    from tonnage.simulate.spot import Spell

_LARGEST_BYTES = 256 << 20


@click.command("simulate")
@click.argument("path", metavar="PLAN")
@click.option("--requests", metavar="FILE", help="Requests: CSV, or azure-conv or azure-code, which come with tonnage.")
@click.option("--rate", type=float, metavar="PER_S", help="Draw requests of the plan's lengths at so many a second.")
@click.option(
    "--pattern",
    type=click.Choice(("poisson", "constant", "bursty")),
    default="poisson",
    show_default=True,
    help="Of the requests that --rate draws.",
)
@click.option("--number", type=click.IntRange(1, 1_000_000), default=2000, show_default=True, help="Of such requests.")
@click.option(
    "--speed", type=float, default=1.0, show_default=True, help="Multiple of the rate at which a trace is replayed."
)
@click.option("--replicas", type=click.IntRange(1, 1024), default=1, show_default=True, help="Copies of the plan.")
@click.option("--router", default="shortest-queue", show_default=True, help="shortest-queue or round-robin.")
@click.option(
    "--hits", type=click.FloatRange(0, 1), default=0.0, help="Share of each prompt found in the prefix cache."
)
@click.option(
    "--queue-limit", type=click.IntRange(0), help="Requests that may wait at a replica; more are turned away."
)
@click.option("--ttft", metavar="TIME", help="Limit on the first token; the plan's own by default.")
@click.option("--tpot", metavar="TIME", help="Limit on each token after it.")
@click.option(
    "--keep", type=click.FloatRange(0, 1), default=0.99, show_default=True, help="Share of requests within limits."
)
@click.option("--find-rate", is_flag=True, help="Find the largest rate that keeps the limits.")
@click.option(
    "--autoscale", metavar="MIN..MAX", help="Compare policies from so few replicas to so many; 0 scales to zero."
)
@click.option("--start", metavar="TIME", help="Until a new replica answers; from the weights by default.")
@click.option(
    "--lost-every", metavar="TIME", help="Replicas are spot machines, taken away after such a time on average."
)
@click.option("--preemptions", metavar="FILE", help="Of a training plan: machines there are over time (JSON or CSV).")
@click.option("--failures", metavar="TIME", help="Of a training plan: mean time between failures of one device.")
@click.option("--work", metavar="TIME", help="Length of the job; the plan's by default.")
@click.option("--every", metavar="TIME", help="Work between checkpoints; by Young and Daly by default.")
@click.option("--checkpoint", metavar="TIME", help="That the job waits for a checkpoint; from its size by default.")
@click.option("--restart", metavar="TIME", help="From having machines to working again.")
@click.option("--deadline", metavar="TIME", help="Of the job; adds the way that keeps it.")
@click.option("--least-nodes", type=click.IntRange(1), help="Machines that the job can go on with.")
@click.option(
    "--starts", type=click.IntRange(1, 1000), default=20, show_default=True, help="Moments of the trace to start at."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same numbers.")
@click.option("--html", metavar="FILE", help="Write a page with charts; - prints it.")
@common
def command(path: str, is_json: bool, is_quiet: bool, **words: Any) -> int:
    """Replay a load against a serving plan, or lost machines against a training plan.

    Exits with 3 where fewer requests than --keep are within the limits, or a job does not end.

    \b
    tonnage simulate plan.toml --requests azure-conv
    tonnage simulate plan.toml --requests trace.csv --ttft 2s --tpot 50ms --find-rate
    tonnage simulate plan.toml --rate 4 --autoscale 1..8 --ttft 5s
    tonnage simulate train.toml --preemptions spot.json --deadline 5d
    tonnage simulate train.toml --failures 50000h
    """
    from tonnage import api
    from tonnage.cli.plan import read_text
    from tonnage.errors import RequestError
    from tonnage.plan.file import LARGEST_BYTES

    wanted = [name for name in ("requests", "rate", "preemptions", "failures") if words[name] is not None]
    if len(wanted) != 1:
        raise RequestError(
            "nothing to replay was given" if not wanted else f"--{wanted[0]} and --{wanted[1]} are two questions",
            where="simulate",
            fix="give one of --requests FILE, --rate N, --preemptions FILE, --failures TIME",
        )
    plan = api.read_plan(read_text(path, LARGEST_BYTES), path)
    tell = _teller(is_quiet)
    if wanted[0] in ("requests", "rate"):
        answer = api.simulate_load(plan, _load_question(plan, words), tell)
        text = load_lines(plan, answer)
        page, value, is_good = _load_page, _load_object, _keeps(answer)
    else:
        answer = api.simulate_job(plan, _job_question(plan, words), tell)
        text = job_lines(plan, answer)
        page, value = _job_page, _job_object
        is_good = any(one.finished_ratio == 1.0 for one in answer.tries)
    tell("")
    if words["html"]:
        _write(words["html"], page(_title(plan), text, answer), is_quiet=is_quiet)
    if is_json:
        emit_json(value(answer))
    elif words["html"] != "-":
        print("\n".join(text))
    return 0 if is_good else 3


def _teller(is_quiet: bool) -> Any:
    import sys

    def tell(what: str) -> None:
        if is_quiet or not sys.stderr.isatty():
            return
        text = say(f"simulate.told_{what}") if what in ("load", "rate") else say("simulate.told_policy", name=what)
        print(f"\r\x1b[K{text if what else ''}", end="", file=sys.stderr, flush=True)

    return tell


def _load_page(title: str, text: list[str], answer: Any) -> str:
    from tonnage.simulate.page import load_page

    return load_page(title, text, answer)


def _job_page(title: str, text: list[str], answer: Any) -> str:
    from tonnage.simulate.page import job_page

    return job_page(title, text, answer)


def _load_object(answer: Any) -> dict[str, Any]:
    from tonnage.simulate.report import load_object

    return load_object(answer)


def _job_object(answer: Any) -> dict[str, Any]:
    from tonnage.simulate.report import job_object

    return job_object(answer)


def _keeps(answer: LoadAnswer) -> bool:
    asked = answer.question
    if asked.scale:
        return answer.winner is not None
    if asked.finds_rate:
        return answer.best_rate is not None
    return answer.run.kept_ratio >= asked.least_kept_ratio


def _load_question(plan: Plan, words: dict[str, Any]) -> Any:
    from tonnage.simulate.arrivals import faster
    from tonnage.simulate.ask import LoadQuestion

    workload: Any = plan.estimate.candidate.workload
    speed = words["speed"]
    above_zero(speed, "--speed")
    load = _requests(plan, words)
    return LoadQuestion(
        requests=load if speed == 1.0 else faster(load, speed),
        num_replicas=words["replicas"],
        router=words["router"],
        hit_ratio=words["hits"],
        most_waiting=words["queue_limit"],
        ttft_limit_seconds=_time(words, "ttft") or getattr(workload, "ttft_limit_seconds", None),
        tpot_limit_seconds=_time(words, "tpot") or getattr(workload, "tpot_limit_seconds", None),
        least_kept_ratio=words["keep"],
        finds_rate=words["find_rate"],
        scale=replica_range(words["autoscale"], "--autoscale"),
        start_seconds=_time(words, "start"),
        spot_mean_seconds=_time(words, "lost_every"),
        seed=words["seed"],
    )


def read_trace(name: str) -> Requests:
    """Return the requests of a file, or of a trace that comes with tonnage."""
    from tonnage.cli.plan import read_text
    from tonnage.datafiles import packed, rows
    from tonnage.simulate.arrivals import read_requests

    if name in {row["name"] for row in rows("traces/traces.csv")}:
        return read_requests(packed(f"traces/{name}.csv.xz"), name)
    return read_requests(read_text(name, _LARGEST_BYTES), name)


def _requests(plan: Plan, words: dict[str, Any]) -> Requests:
    from tonnage.simulate import arrivals

    if words["requests"] is not None:
        return read_trace(words["requests"])
    above_zero(words["rate"], "--rate")
    workload: Any = plan.estimate.candidate.workload
    lengths = (getattr(workload, "input_tokens", 1), getattr(workload, "output_tokens", 1))
    number, rate, seed = words["number"], words["rate"], words["seed"]
    if words["pattern"] == "constant":
        return arrivals.constant(number, rate, *lengths)
    if words["pattern"] == "bursty":
        return arrivals.bursty(number, rate, *lengths, variation_ratio=3.0, seed=seed)
    return arrivals.poisson(number, rate, *lengths, seed=seed)


def above_zero(value: float, where: str) -> None:
    """Refuse a number that is not above 0, or is none."""
    from tonnage.errors import RequestError

    if not 0 < value < float("inf"):
        raise RequestError(f"{value:g} is not above 0", where=where, fix=f"write {where} 2")


def _time(words: dict[str, Any], name: str) -> float | None:
    from tonnage.units import parse_seconds

    return None if words[name] is None else parse_seconds(words[name], f"--{name.replace('_', '-')}")


def replica_range(text: str | None, where: str) -> tuple[int, int] | None:
    """Return the fewest and the most replicas that a text like 1..8 names."""
    from tonnage.errors import RequestError

    if text is None:
        return None
    least, dots, most = text.partition("..")
    if (
        not dots
        or not least.isdecimal()
        or not most.isdecimal()
        or not 0 <= int(least) <= int(most) <= 1024
        or most == "0"
    ):
        raise RequestError(f"'{text[:40]}' is no range of replicas", where=where, fix=f"write {where} 1..8")
    return int(least), int(most)


def _job_question(plan: Plan, words: dict[str, Any]) -> Any:
    from tonnage.errors import RequestError
    from tonnage.estimate.cost.assumptions import with_given
    from tonnage.simulate.ask import JobQuestion
    from tonnage.workload.types import Serving

    estimate = plan.estimate
    if isinstance(estimate.candidate.workload, Serving):
        raise RequestError("the plan serves", where="simulate", fix="give --requests, or a plan that trains")
    assumed = with_given(plan.request.limits.assume)
    work = _time(words, "work")
    if work is None and estimate.performance.job_seconds is not None:
        work = estimate.performance.job_seconds.best
    if work is None:
        raise RequestError(
            "the plan does not say how long the job is", where="simulate", fix="give --work 3d, or plan with --tokens"
        )
    saved = (estimate.storage.checkpoints_bytes or 0.0) / estimate.candidate.cluster.num_nodes
    checkpoint, restart = _time(words, "checkpoint"), _time(words, "restart")
    return JobQuestion(
        spells=_spells(plan, words, work),
        work_seconds=work,
        checkpoint_seconds=saved / assumed.best("save_rate") if checkpoint is None else checkpoint,
        restart_seconds=assumed.best("restart") if restart is None else restart,
        interval_seconds=_time(words, "every"),
        deadline_seconds=_time(words, "deadline"),
        least_nodes=words["least_nodes"],
        num_starts=words["starts"],
        seed=words["seed"],
    )


def _spells(plan: Plan, words: dict[str, Any], work: float) -> tuple[Spell, ...]:
    from tonnage.cli.plan import read_text
    from tonnage.simulate.spot import failures, read_availability

    if words["preemptions"] is not None:
        return read_availability(read_text(words["preemptions"], _LARGEST_BYTES), words["preemptions"])
    cluster = plan.estimate.candidate.cluster
    mean = (_time(words, "failures") or 0.0) / cluster.num_devices
    return failures(mean, cluster.num_nodes, 20.0 * max(work, mean), words["seed"])


def _write(path: str, page: str, *, is_quiet: bool) -> None:

    if put_text(path, page):
        note(say("simulate.page", path=path), is_quiet=is_quiet)


def _title(plan: Plan) -> str:
    from tonnage.cli.tables import printable

    candidate = plan.estimate.candidate
    cluster = candidate.cluster
    return printable(
        say(
            "simulate.title",
            model=plan.request.model,
            count=cluster.num_devices,
            gpu=cluster.node.devices[0].slug if cluster.node.devices else "cpu",
            engine=candidate.engine,
        )
    )


def load_lines(plan: Plan, answer: LoadAnswer) -> list[str]:
    """Return the lines of the terminal's answer on a load."""
    from tonnage.cli.tables import table
    from tonnage.units import format_seconds

    run, asked = answer.run, answer.question
    text = [
        _title(plan),
        say(
            "simulate.load",
            num=len(asked.requests),
            span=format_seconds(asked.requests.span_seconds),
            rate=asked.requests.requests_per_s or 0.0,
            copies=answer.num_copies,
            router=asked.router,
        ),
        say(
            "simulate.finished",
            finished=run.num_finished,
            num=run.num_requests,
            refused=run.num_refused,
            away=run.num_turned_away,
            preemptions=run.num_preemptions,
        ),
        "",
    ]
    rows = [
        (
            say(f"simulate.{name}"),
            *(_seconds(getattr(getattr(run, name), at)) for at in ("mean", "p50", "p95", "p99", "worst")),
        )
        for name in ("ttft", "tpot", "e2e")
    ]
    text += table((say("simulate.what"), "mean", "P50", "P95", "P99", "max"), rows, right=(1, 2, 3, 4, 5))
    text += [
        "",
        say("simulate.throughput", tokens=run.output_tokens_per_s, requests=run.requests_per_s, kept=run.kept_ratio),
        say(
            "simulate.used",
            busy=run.busy_ratio,
            mean=_share(run.mean_used_ratio),
            most=_share(run.most_used_ratio),
            running=run.mean_running,
        ),
        say("simulate.cost", usd=f"{answer.usd_per_million_tokens:.2f} USD")
        if answer.usd_per_million_tokens is not None
        else say("simulate.no_cost"),
    ]
    if asked.finds_rate:
        best = answer.best_rate
        text.append(
            say("simulate.no_rate", rate=min(one.requests_per_s for one in answer.rates))
            if best is None
            else say("simulate.rate", share=asked.least_kept_ratio, rate=best.requests_per_s, ratio=best.rate_ratio)
        )
    if answer.scaled:
        text += ["", *_policy_lines(answer)]
    return [*text, say("simulate.assumed")]


def _policy_lines(answer: LoadAnswer) -> list[str]:
    from tonnage.cli.tables import table
    from tonnage.units import format_seconds

    header = (*(say(f"simulate.{name}") for name in ("policy", "kept", "replica_hours", "usd_million")), "TTFT P99")
    rows = [
        (
            ("* " if at == answer.winner else "  ") + policy_text(one.policy),
            f"{one.run.kept_ratio:.1%}",
            f"{one.run.replica_seconds / 3600:.2f}",
            "?" if one.usd_per_million_tokens is None else f"{one.usd_per_million_tokens:.2f}",
            _seconds(one.run.ttft.p99),
        )
        for at, one in enumerate(answer.scaled)
    ]
    text = table(header, rows, right=(1, 2, 3, 4))
    text.append(say("simulate.start", start=format_seconds(answer.start_seconds or 0.0)))
    share = answer.question.least_kept_ratio
    if answer.winner is None:
        return [*text, say("simulate.no_winner", share=share)]
    policy = answer.scaled[answer.winner].policy
    text.append(say("simulate.winner", share=share, policy=policy_text(policy)))
    return [*text, f"  {deploy_words(policy)}"]


def deploy_words(policy: Policy) -> str:
    """Return the command that deploys a policy."""
    from tonnage.simulate.autoscale import Metric

    if policy.metric is None:
        return f"tonnage deploy PLAN --to bundle --place kubernetes --replicas {policy.least}"
    way = "" if policy.metric is Metric.WAITING else " --scale-on in-flight"
    bounds = f"--scale {policy.least}..{policy.most} --scale-target {policy.target:g}"
    return f"tonnage deploy PLAN --to bundle --place kubernetes {bounds}{way}"


def policy_text(policy: Policy) -> str:
    """Return a policy in words."""
    if policy.metric is None:
        return say("simulate.policy_fixed", number=policy.least)
    return say(f"simulate.policy_{policy.metric}", target=policy.target)


def _seconds(value: float | None) -> str:
    from tonnage.units import format_seconds

    return "-" if value is None else format_seconds(value)


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.0%}"


def job_lines(plan: Plan, answer: JobAnswer) -> list[str]:
    """Return the lines of the terminal's answer on a job."""
    from tonnage.cli.tables import table
    from tonnage.simulate.report import job_object
    from tonnage.units import format_seconds

    asked, value = answer.question, job_object(answer)
    text = [
        _title(plan),
        say(
            "simulate.job",
            work=format_seconds(asked.work_seconds),
            nodes=answer.num_nodes,
            starts=asked.num_starts,
            save=format_seconds(asked.checkpoint_seconds),
            restart=format_seconds(asked.restart_seconds),
        ),
        say("simulate.no_stop", interval=format_seconds(answer.interval_seconds))
        if answer.mean_seconds is None or answer.daly_seconds is None
        else say(
            "simulate.interval",
            interval=format_seconds(answer.interval_seconds),
            daly=format_seconds(answer.daly_seconds),
            mean=format_seconds(answer.mean_seconds),
            best=_seconds(answer.best_interval_seconds),
        ),
        "",
    ]
    header = tuple(
        say(f"simulate.{name}") for name in ("way", "ended", "wall", "worst", "stops", "lost", "goodput", "usd")
    )
    rows = [
        (
            _way(one),
            f"{way['finished_ratio']:.0%}",
            _seconds(way["wall_seconds"]["mean"]),
            _seconds(way["wall_seconds"]["worst"]),
            "-" if way["interruptions"] is None else f"{way['interruptions']:.1f}",
            _seconds(way["lost_seconds"]),
            _share(way["goodput_ratio"]),
            "?" if way["usd"]["mean"] is None else f"{way['usd']['mean']:,.2f}",
        )
        for one, way in zip(answer.tries, value["ways"], strict=True)
    ]
    return [*text, *table(header, rows, right=(1, 2, 3, 4, 5, 6, 7))]


def _way(one: JobTry) -> str:
    way = say(f"simulate.{one.fallback}")
    return way if one.least_nodes is None else say("simulate.least", way=way, least=one.least_nodes)
