"""`tonnage calibrate FILE…`: what was measured here beside what was predicted, and what it teaches later plans."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli.options import common, emit_json, note
from tonnage.errors import BadFileError, RequestError
from tonnage.messages import knows, say

if TYPE_CHECKING:
    from tonnage.calibrate.measurements import Measurements
    from tonnage.calibrate.teach import Finding
    from tonnage.estimate.types import Candidate
    from tonnage.plan.profile import Lesson, Profile

_FIX = "give a start-up log, a benchmark's result, or the folder of a run"
_IN_RUN = ("run.json", "bench.json", "engine.log", "stdout.log", "log.txt")


def _amount(name: str, value: float) -> str:
    from tonnage.units import format_bytes, format_seconds

    if name.endswith("_bytes"):
        return format_bytes(value, 2)
    if name.endswith("seconds"):
        return format_seconds(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@click.command("calibrate", context_settings={"ignore_unknown_options": False})
@click.argument("files", metavar="LOG|RUN|BENCH…", nargs=-1, required=True)
@click.option("--plan", "plan_path", metavar="FILE", help="The plan that was launched.")
@click.option("--model", metavar="MODEL", help="Without a plan: the model that ran.")
@click.option("--gpu", multiple=True, metavar="NAME:N", help="Without a plan: the cards. [this machine's]")
@click.option("--host", metavar="TEXT", help="Without a plan: the machine around them.")
@click.option("--engine", metavar="NAME", help="Without a plan: the engine, where the file does not say.")
@click.option("--quant", metavar="FORMAT", help="Without a plan: format of the weights, where the file does not say.")
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Without a plan: any field of it.")
@click.option("--profile", "machine", metavar="NAME", default="here", help="Label of the machine. [here]")
@click.option("--check", "is_check", is_flag=True, help="Compare only: keep nothing.")
@common
def command(
    files: tuple[str, ...],
    plan_path: str | None,
    machine: str,
    is_check: bool,
    is_json: bool,
    is_quiet: bool,
    **words: Any,
) -> int:
    """Check measurements against the prediction, and let them teach later plans on this machine.

    Reads start-up logs of vLLM, SGLang and llama.cpp, results of vllm bench serve, llama-bench, sglang.bench_serving
    and tonnage bench, and rows of measured runs.

    \b
    tonnage calibrate vllm.log --plan plan.toml
    tonnage calibrate bench.json --model Qwen/Qwen3-8B --gpu rtx-4090 --engine vllm
    tonnage calibrate profile show | export | forget [N…]
    """
    if files[0] == "profile":
        return _profile(files[1:], machine, is_json=is_json, is_quiet=is_quiet)
    if not machine.replace("-", "").replace("_", "").isalnum() or len(machine) > 40 or machine == "none":
        raise RequestError(f"'{machine[:40]}' is no label", where="--profile", fix="use letters, digits, - and _")
    plan = None if plan_path is None else _plan(plan_path)
    results: list[dict[str, Any]] = []
    taught: list[Lesson] = []
    for path in _expanded(files):
        text = _text(path)
        for measured in _measurements(text, path):
            result, lessons = _one(path, text, measured, plan, words, machine, is_check=is_check, is_quiet=is_quiet)
            results.append(result)
            taught += lessons
    kept = None if is_check or not taught else _keep(taught, is_quiet=is_quiet)
    if is_json:
        emit_json({"logs": results, "profile": kept, "machine": machine})
        return 0
    for result in results:
        print("\n".join(_lines(result)))
    if is_check:
        note(say("profile.not_kept"), is_quiet=is_quiet)
    elif kept is not None:
        print(say("calibrate.used_by", machine=machine, command=_next_command(plan, machine, results[-1])))
    return 0


def _plan(path: str) -> Any:
    from tonnage.plan.file import LARGEST_BYTES, read_plan
    from tonnage.probe.plain_file import read_text

    return read_plan(read_text(path, LARGEST_BYTES, "give the file that tonnage plan -o wrote"), path)


def _text(path: str) -> str:
    from tonnage.calibrate.measurements import LARGEST_BYTES
    from tonnage.probe.plain_file import read_text

    return read_text(path, LARGEST_BYTES, _FIX)


def _expanded(files: Sequence[str]) -> list[str]:
    """Return the files to read: those named, and of a run's folder those that it measured into."""
    found: list[str] = []
    for name in files:
        folder = Path(name)
        if not folder.is_dir():
            found.append(name)
            continue
        inside = [str(folder / one) for one in _IN_RUN if (folder / one).is_file()]
        if not inside:
            raise BadFileError("holds no measurements", where=name[:200], fix=f"it would have {', '.join(_IN_RUN)}")
        found += inside
    return found


def _measurements(text: str, path: str) -> Sequence[Measurements]:
    from tonnage.calibrate.measurements import read_measurements

    return read_measurements(text, path)


def _one(
    path: str,
    text: str,
    measured: Measurements,
    plan: Any,
    words: dict[str, Any],
    machine: str,
    *,
    is_check: bool,
    is_quiet: bool,
) -> tuple[dict[str, Any], Sequence[Lesson]]:
    """Compare one launch, and return what it teaches."""
    from tonnage.calibrate.measured_runs import compare_row
    from tonnage.calibrate.teach import as_launched, findings, lessons
    from tonnage.probe.prices import today

    host = words["host"] or ""
    if measured.row is not None:
        candidate, found = compare_row(measured.row, path)
    else:
        if plan is not None:
            candidate, host = plan.estimate.candidate, plan.request.where.host or ""
        else:
            candidate = _candidate(measured, words)
        if _is_of_another(candidate, measured):
            ours, theirs = candidate.model.name[:80], measured.model[:80]
            if not is_check:
                what = f"the file is of {theirs}, the plan of {ours}: nothing was kept"
                raise RequestError(what, where=path, fix="give the plan of this launch, or compare only with --check")
            note(say("calibrate.other_model", theirs=theirs, ours=ours), is_quiet=is_quiet)
        found = findings(candidate, measured)
        candidate = as_launched(candidate, measured)
        _refuse_impossible(candidate, measured, path)
        _refuse_other_card(candidate, measured, "--gpu" if plan is None else "--plan")
    result: dict[str, Any] = {
        "file": path,
        "kind": measured.kind,
        "engine": candidate.engine,
        "model": candidate.model.name,
        "gpu": candidate.cluster.node.devices[0].slug,
        "num_gpus": len(candidate.cluster.node.devices),
        "version": measured.log.version or None if measured.log else None,
        "quantities": [_quantity(one) for one in found],
    }
    if not found:
        note(say("calibrate.nothing"), is_quiet=is_quiet)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    evidence = {"file": Path(path).name, "day": today(), "kind": measured.kind, "digest": digest}
    return result, lessons(candidate, found, machine=machine, host=host, **evidence)


def _refuse_impossible(candidate: Candidate, measured: Measurements, path: str) -> None:
    """Refuse sizes that no launch on these cards can have: nothing at all, or more than they hold."""
    if measured.log is None:
        return
    node = candidate.cluster.node
    largest = max(device.memory_bytes for device in node.devices)
    whole = sum(device.memory_bytes for device in node.devices) + node.host.memory_bytes
    for name in ("weights_bytes", "cache_bytes", "graph_bytes", "compute_bytes", "non_torch_bytes", "activation_bytes"):
        value, most = getattr(measured.log, name), whole if name == "cache_bytes" else largest
        least = 1 if name in ("weights_bytes", "cache_bytes") else 0
        if value is not None and not least <= value <= most:
            what = f"{say(f'calibrate.{name}')} {_amount(name, value)} cannot be on {node.devices[0].name}"
            raise BadFileError(what, where=path, fix="nothing was kept; give the log of this launch")


def _cards(measured: Measurements) -> list[str]:
    """Return the catalogue's slugs of the cards that a file names; nothing where one is not known."""
    from tonnage.errors import UnknownNameError
    from tonnage.hardware.catalogue import find_device

    try:
        return [find_device(name).slug for name in measured.gpus]
    except UnknownNameError:
        return []


def _refuse_other_card(candidate: Candidate, measured: Measurements, flag: str) -> None:
    """Refuse a file of another card than was named, or one whose weights and cache that card cannot hold."""
    from tonnage.hardware.prices import base_slug
    from tonnage.units import format_bytes

    device = candidate.cluster.node.devices[0]
    cards = _cards(measured)
    if cards and base_slug(device) not in cards and device.slug not in cards:
        what = f"the file was measured on {measured.gpus[0][:60]}, not on {device.name}"
        raise RequestError(what, where=flag, fix="name the card that was measured")
    held = [] if measured.log is None else [measured.log.weights_bytes, measured.log.cache_bytes]
    total = sum(size for size in held if size is not None) if measured.engine in ("vllm", "sglang") else 0.0
    if total > device.memory_bytes:
        what = f"weights and cache of {format_bytes(total)} are more than {device.name} has: wrong {flag}?"
        raise RequestError(what, where=flag, fix="name the card that was measured")


def _quantity(one: Finding) -> dict[str, Any]:
    return {
        "name": one.name,
        "load": one.load or None,
        "predicted": one.predicted,
        "measured": one.measured,
        "relative": one.relative,
        "teaches": one.teaches or None,
    }


def _is_of_another(candidate: Candidate, measured: Measurements) -> bool:
    """Whether a file names another model; a folder of the plan's model, such as a cache's, is its own."""

    def plain(name: str) -> str:
        return "".join(c for c in name.lower().removesuffix(".gguf") if c.isalnum())

    def stem(name: str) -> str:
        return plain(name.replace("\\", "/").rstrip("/").rpartition("/")[2])

    ours, theirs = stem(candidate.model.name), stem(measured.model)
    return bool(theirs) and ours not in plain(measured.model) and theirs not in ours


def _candidate(measured: Measurements, words: dict[str, Any]) -> Candidate:
    """Return what ran, by what the file and the command say of it."""
    from tonnage import api
    from tonnage.calibrate.row_fields import weights_format
    from tonnage.estimate.weights import checkpoint_format
    from tonnage.model.catalogue import has
    from tonnage.plan.profile import Profile
    from tonnage.plan.request import make_request

    model = words["model"] or (measured.model if has(measured.model) or Path(measured.model).is_file() else None)
    engine = words["engine"] or measured.engine
    if not model or not engine:
        lacking = "model" if not model else "engine"
        raise RequestError(
            f"the file does not say which {lacking} ran", where=f"--{lacking}", fix="give it, or --plan FILE"
        )
    pins: dict[str, object] = {
        name: value
        for name, value in measured.settings.items()
        if name.startswith(("layout.", "settings.", "offload."))
    }
    pins["precision.weights"] = words["quant"] or (
        weights_format({"quant": measured.weights, "model": model}, engine) if measured.weights else None
    )
    if not pins["precision.weights"]:
        pins["precision.weights"] = _usual_format(engine, checkpoint_format(api.read_model(model)))
    load = {name: measured.settings[name] for name in ("context", "concurrency") if name in measured.settings}
    request = make_request(
        model,
        load=load,
        gpus=words["gpu"] or _cards(measured),
        host=words["host"],
        is_here=not words["gpu"] and not _cards(measured),
        limits={"engines": (engine,), "intent": "batch"},
        pins={"precision.kv": "fp16", **pins},
        sets=words["sets"],
    )
    answer = api.plan(request, profile=Profile())
    estimates = [plan.estimate for plan in answer.plans] + [r.estimate for r in answer.rejections if r.estimate]
    if not estimates:
        reason = answer.rejections[0].reason if answer.rejections else "no way to run it"
        raise RequestError(f"no such launch can be told: {reason}", where="--set", fix="give the plan with --plan FILE")
    return estimates[0].candidate


def _usual_format(engine: str, own: str) -> str:
    """Return the format that an engine would run where nobody says: the checkpoint's own, of GGUF the usual mix."""
    from tonnage.estimate.weights import FORMATS

    is_gguf = engine in ("llama.cpp", "ik_llama.cpp", "ollama")
    return "q4_k_m" if is_gguf and FORMATS[own].kind != "gguf" else own


def _keep(taught: Sequence[Lesson], *, is_quiet: bool) -> dict[str, Any]:
    from tonnage.plan.profile import is_believed, learn
    from tonnage.probe.profile import read_own, write_own

    profile = learn(read_own(), taught)
    path = write_own(profile)
    new = {lesson.key for lesson in taught}
    doubted = [
        (lesson, one)
        for lesson in profile.lessons
        if lesson.key in new
        for one in lesson.observations
        if not is_believed(lesson, one)
    ]
    for lesson, one in doubted:
        text = f"{one.file}: {say(f'profile.{lesson.quantity}')}: {say('profile.not_believed')}"
        note(text, is_quiet=is_quiet)
    note(say("profile.kept", path=path, num=len(new)), is_quiet=is_quiet)
    return {"path": str(path), "num_lessons": len(new), "num_not_believed": len(doubted)}


def _lines(result: dict[str, Any]) -> list[str]:
    from tonnage.cli.tables import table

    header = [say(f"calibrate.{name}") for name in ("quantity", "predicted", "measured", "difference", "teaches")]
    rows = [
        [
            say(f"calibrate.{one['name']}") + (f" ({one['load']})" if one["load"] else ""),
            _amount(one["name"], one["predicted"]),
            _amount(one["name"], one["measured"]),
            "–" if one["relative"] is None else f"{100 * one['relative']:+.1f} %",
            say(f"profile.{one['teaches']}") if one["teaches"] else "–",
        ]
        for one in result["quantities"]
    ]
    kind = "calibrate.kind_" + result["kind"].replace(" ", "_").replace("-", "_")
    about = {"kind": say(kind) if knows(kind) else result["kind"]}
    title = say("calibrate.title", **about, **{name: result[name] for name in ("file", "engine", "model")})
    return [title, *table(header, rows, right=range(1, 4))] if rows else [title]


def _next_command(plan: Any, machine: str, last: dict[str, Any]) -> str:
    from dataclasses import replace

    from tonnage.plan.request import command as command_of

    if plan is None:
        import shlex

        gpu = last["gpu"] if last["num_gpus"] == 1 else f"{last['gpu']}:{last['num_gpus']}"
        return shlex.join(("tonnage", "plan", last["model"], "--gpu", gpu, "--profile", machine))
    where = plan.request.where
    if where.is_here and machine == "here":
        return command_of(plan.request)
    return command_of(replace(plan.request, where=replace(where, profile=machine)))


def _profile(words: Sequence[str], machine: str, *, is_json: bool, is_quiet: bool) -> int:
    """Show, print or forget what was taught."""
    from tonnage.plan.profile import write_profile
    from tonnage.probe.profile import own_path, read_own

    verb = words[0] if words else "show"
    if verb not in ("show", "forget", "export"):
        raise RequestError(f"'{verb[:40]}' cannot be done with it", where="profile", fix="use show, export or forget")
    if verb == "forget":
        words = words[:1] if tuple(words[1:]) == ("all",) else words
        return _forget(words[1:], machine, is_json=is_json, is_quiet=is_quiet)
    profile = read_own()
    if verb == "export":
        emit_json({"text": write_profile(profile)}) if is_json else print(write_profile(profile), end="")
        return 0
    objects = [_lesson(number, lesson) for number, lesson in enumerate(profile.lessons, 1)]
    if is_json:
        emit_json({"path": str(own_path()), "lessons": objects})
        return 0
    print("\n".join(_shown(profile)) if objects else say("profile.empty"))
    return 0


def _forget(words: Sequence[str], machine: str, *, is_json: bool, is_quiet: bool) -> int:
    from tonnage.plan.profile import forget
    from tonnage.probe.profile import read_own, write_own

    numbers: list[int] = []
    for word in words:
        if not (word.isascii() and word.isdigit()):
            fix = "write the numbers that profile show lists, or nothing for all"
            raise RequestError(f"'{word[:40]}' is no number", where="profile forget", fix=fix)
        numbers.append(int(word))
    before = read_own()
    after = forget(before, numbers, "" if numbers or machine == "here" else machine)
    write_own(after)
    told = {"num": len(before.lessons) - len(after.lessons), "rest": len(after.lessons)}
    if is_json:
        emit_json({"num_forgotten": told["num"], "num_left": told["rest"]})
    else:
        note(say("profile.forgotten", **told), is_quiet=is_quiet)
    return 0


def _lesson(number: int, lesson: Lesson) -> dict[str, Any]:
    from tonnage.plan.profile import belief_of, is_believed, quantity

    about = quantity(lesson.quantity)
    return {
        "number": number,
        "machine": lesson.machine,
        "gpu": lesson.gpu,
        "num_gpus": lesson.num_gpus,
        "engine": lesson.engine,
        "quantity": lesson.quantity,
        "kind": about.kind,
        "meaning": about.meaning,
        "models": [
            {"model": model, "believed": belief_of(lesson, model)}
            for model in dict.fromkeys(one.model for one in lesson.observations)
        ],
        "observations": [
            {
                "file": one.file,
                "day": one.day,
                "kind": one.kind,
                "model": one.model,
                "expected": one.expected,
                "achieved": one.achieved,
                "is_believed": is_believed(lesson, one),
            }
            for one in lesson.observations
        ],
    }


def _shown(profile: Profile) -> list[str]:
    from tonnage.cli.tables import table
    from tonnage.plan.profile import belief_of, is_believed, quantity
    from tonnage.units import format_bytes

    def figure(kind: str, value: float) -> str:
        return format_bytes(value, 2) if kind == "bytes" else f"{value:,.0f}" if value >= 100 else f"{value:.3f}"

    names = ("number", "machine", "card", "engine", "quantity", "model", "expected", "achieved", "believed", "evidence")
    rows: list[list[str]] = []
    for number, lesson in enumerate(profile.lessons, 1):
        kind = quantity(lesson.quantity).kind
        for one in lesson.observations:
            move = belief_of(lesson, one.model)
            believed = one.expected + move if kind == "bytes" else one.expected * move
            card = lesson.gpu if lesson.num_gpus == 1 else f"{lesson.gpu}:{lesson.num_gpus}"
            doubt = "" if is_believed(lesson, one) else f" ({say('profile.not_believed')})"
            figures = (figure(kind, value) for value in (one.expected, one.achieved, believed))
            about = (str(number), lesson.machine, card, lesson.engine, say(f"profile.{lesson.quantity}"), one.model)
            rows.append([*about, *figures, f"{one.file}, {one.day}{doubt}"])
    return table([say(f"profile.col_{name}") for name in names], rows, right=(6, 7, 8))
