"""The verbs as functions; the command line, the web and users call only this. Documented and stable.

Each function is a few lines: it reads its inputs through the pure packages and returns their values.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, BinaryIO

from tonnage.model.types import Model

if TYPE_CHECKING:  # each verb imports what it needs when it is called
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tonnage.calibrate.teach import Finding
    from tonnage.diagnose.doctor.types import Check
    from tonnage.diagnose.lint.types import Report
    from tonnage.diagnose.types import Diagnosis
    from tonnage.estimate.fit import Fit
    from tonnage.estimate.summary import ModelSummary
    from tonnage.estimate.types import Estimate
    from tonnage.hardware.prices import PriceBook
    from tonnage.hardware.sample import MachineSample
    from tonnage.hardware.types import Device
    from tonnage.load.ask import LoadTest
    from tonnage.load.summary import Benched
    from tonnage.load.types import Sample, Target
    from tonnage.oracle.compare import Comparison
    from tonnage.oracle.fit import Fits
    from tonnage.plan.adopt import Adopted
    from tonnage.plan.explain import Explanation
    from tonnage.plan.measured import Run
    from tonnage.plan.profile import Profile
    from tonnage.plan.proof import Proof
    from tonnage.plan.today import Stack
    from tonnage.plan.types import Answer, Plan, Request
    from tonnage.record.types import Run as RunState
    from tonnage.render.types import Bundle, Scaling
    from tonnage.run.supervise import Update
    from tonnage.simulate.ask import JobAnswer, JobQuestion, LoadAnswer, LoadQuestion
    from tonnage.units import Bytes
    from tonnage.verify.types import Report as Acceptance
    from tonnage.verify.types import ServingSeen, TrainingSeen

__all__ = [
    "bench",
    "calibrate",
    "cross_check",
    "deploy",
    "describe_model",
    "diagnose",
    "doctor",
    "explain",
    "find_gpus",
    "fits_by_trace",
    "lint",
    "lint_fixes",
    "plan",
    "proof",
    "read_model",
    "read_plan",
    "read_run",
    "run",
    "runs",
    "score",
    "simulate_job",
    "simulate_load",
    "stop",
    "verify",
    "weights_fit",
    "write_plan",
]


def read_model(spec: str, stdin: BinaryIO | None = None) -> Model:
    """Return the model that a text names; only headers are read, nothing is executed.

    Parameters
    ----------
    spec : str
        A name of the catalogue, a hub id (`Qwen/Qwen3.5-27B`; of a GGUF repository `owner/name:Q4_K_M`), `modelscope:ID`,
        a folder, a config.json, a .gguf, a .safetensors or its index, or `-` for standard input.
    stdin : file
        What `-` reads; the process's standard input by default.

    Returns
    -------
    Model
        The model; its `status` says whether it comes from the catalogue, a config or a header.

    Raises
    ------
    UnknownNameError
        No catalogue has the name; with the nearest ones.
    BadFileError
        A file is missing, cut off or not what it should be.
    RequestError
        The family is unknown, and no weights' header is at hand to count.
    OutsideError
        The hub is unreachable, or does not give the model.
    """
    from tonnage.probe.spec import read_spec

    return read_spec(spec, stdin)


def describe_model(
    spec: str,
    *,
    context_tokens: int = 4096,
    formats: Collection[str] | None = None,
    stdin: BinaryIO | None = None,
) -> ModelSummary:
    """Return what a model is: parameters, cache, operations and bytes in each format.

    Parameters
    ----------
    spec : str
        As for `read_model`.
    context_tokens : int
        Length of the sequence that operations a token are counted in. [1]
    formats : collection of str
        Weight formats to give bytes in; all by default.
    stdin : file
        What `-` reads.

    Returns
    -------
    ModelSummary
        The numbers; what cannot be known is None.

    Raises
    ------
    TonnageError
        As for `read_model`.
    """
    from tonnage.estimate.summary import summarize

    return summarize(read_model(spec, stdin), context_tokens, formats)


def diagnose(
    paths: Iterable[str], *, stdin: BinaryIO | None = None, redact: bool = False, plan: Plan | None = None
) -> Diagnosis:
    """Find the cause of a failure in what a run left behind.

    Parameters
    ----------
    paths : iterable of str
        Logs, journals, error files of torchrun, dumps of the flight recorder, memory snapshots, folders; `-` is
        standard input.
    stdin : file
        What `-` reads.
    redact : bool
        Hide host names, addresses and user names as well; secrets are always hidden.
    plan : Plan
        The plan of the run: where memory is the cause, what changes to it would free is computed anew.

    Returns
    -------
    Diagnosis
        Findings, the primary cause first, each with evidence, consequences, cures and what speaks against it; what was
        looked at.

    Raises
    ------
    BadFileError
        A path that is named does not exist, or is neither text nor a dump.
    """
    from tonnage.diagnose import hang, lines, match, slow, snapshot
    from tonnage.diagnose.symptoms import symptoms
    from tonnage.probe.evidence import read_evidence

    rules = symptoms()
    found = read_evidence(paths, stdin)
    hits = (
        *found.hits,
        *hang.of_recorders(found.recorders),
        *snapshot.of_snapshots(found.snapshots),
        *slow.of_figures(found.figures),
    )
    answer = match.diagnose(hits, found.seen, rules, lines.redact if redact else lines.mask)
    return answer if plan is None else _with_effects(answer, plan)


def _with_effects(answer: Diagnosis, plan: Plan) -> Diagnosis:
    from dataclasses import replace

    from tonnage.diagnose.effect import effects, is_of_memory

    if not any(is_of_memory(one.id) for one in answer.findings):
        return answer
    told = effects(plan)
    findings = (replace(one, effects=told) if is_of_memory(one.id) else one for one in answer.findings)
    return replace(answer, findings=tuple(findings))


def find_gpus(*queries: str, vendor: str = "", min_memory_bytes: Bytes = 0, order: str = "") -> tuple[Device, ...]:
    """Return accelerators of the catalogue: those that are named, those whose names hold the words, or all.

    Parameters
    ----------
    queries : str
        Names as people write them ("4080", "NVIDIA A100-SXM4-80GB") or words to look for ("blackwell").
    vendor : str
        Only these makers, separated by commas.
    min_memory_bytes : numeric
        Only devices with at least so much memory, by their driver or by the size on the box. [B]
    order : str
        A name of `hardware.browse.ORDERS`: memory, bandwidth, price-per-gib and others; best first.

    Returns
    -------
    tuple of Device
        Those that match, in the catalogue's order where no other is asked for.

    Raises
    ------
    UnknownNameError
        A query that names nothing, or a maker that is not on record.

    Notes
    -----
    Derived: a choice of rows, no formula.
    """
    from tonnage.hardware.browse import select
    from tonnage.probe.prices import price_book

    book = price_book() if order else None
    return select(queries, vendor=vendor, min_memory_bytes=min_memory_bytes, order=order, book=book)


def weights_fit(model: Model, devices: Iterable[Device], formats: Iterable[str]) -> Mapping[str, tuple[Fit, ...]]:
    """Return whether a model's weights alone fit on devices, by format.

    Parameters
    ----------
    model : Model
        The model.
    devices : iterable of Device
        The accelerators.
    formats : iterable of str
        Names of weight formats: bf16, fp8, q4_k_m.

    Returns
    -------
    mapping
        By the device's slug, one `Fit` a format: bytes of the weights, of the memory, and how many devices hold them.
    """
    from tonnage.estimate.fit import weights_fit as fit

    return fit(model, devices, formats)


def plan(
    request: Request,
    *,
    machine: MachineSample | None = None,
    book: PriceBook | None = None,
    profile: Profile | None = None,
    today: Stack | Adopted | None = None,
    stdin: BinaryIO | None = None,
    run: Run | None = None,
) -> Answer:
    """Find the ways to do what is asked: ranked plans, and what was turned down with what is missing.

    Parameters
    ----------
    request : Request
        What is asked; `tonnage.plan.request.make_request` builds one from words.
    machine : MachineSample
        A reading of this machine, where the request says `--here`; taken now by default.
    book : PriceBook
        Prices with the day that their ages are counted from; by default those of the package and of the person's own
        price file, from today.
    profile : Profile
        What machines' own measurements taught; by default the person's own where the request names this machine, a
        machine that was measured, or a host.
    today : Stack or Adopted
        Today's stack (`tonnage.plan.today.read_stack`) or set-up (`tonnage.plan.adopt.adopt`): each plan says what of
        it carries over, and the objective "change" ranks by what does not.
    stdin : file
        What a model named `-` is read from.

    run : Run
        A measured training run that corrects the estimates near it; `read_run` reads one.

    Returns
    -------
    Answer
        Plans by rank. When there are none, the first rejection carries the changes that would make the request fit.

    Raises
    ------
    RequestError
        A name or value that is none, or a model whose layers are not known.
    OutsideError
        The hub, or with `--here` the driver, is not there.
    BadFileError
        The person's price file is broken.

    Examples
    --------
    >>> from tonnage.plan.request import make_request
    >>> plan(make_request("Qwen/Qwen3.5-27B", gpus=["rtx-4090"])).plans[0].kind
    'all on the GPU'
    """
    from tonnage.plan.ask import answer
    from tonnage.probe.prices import price_book

    if profile is None:
        profile = _profile(request)
    model = read_model(request.model, stdin)
    return answer(request, model, machine or _machine(request), book or price_book(), profile, today, run)


def read_run(text: str, name: str = "run.json") -> tuple[Run, Request | None]:
    """Return a measured training run, and the request that it answers where it holds one.

    Parameters
    ----------
    text : str
        A `run.json`, or measurement rows of which the first training row is taken.
    name : str
        Its name, for messages.

    Returns
    -------
    tuple
        The run for `plan`; and the request of a `run.json`, None for a row.

    Raises
    ------
    BadFileError
        The text is neither, or measures neither memory nor speed.
    """
    from tonnage.calibrate.run_file import read_run_file, run_of

    file = read_run_file(text, name)
    model = None if file.request is None else read_model(file.request.model)
    return run_of(file, model), file.request


def _profile(request: Request) -> Profile | None:
    where = request.where
    if where.profile == "none" or not (where.is_here or where.profile or where.host):
        return None
    from tonnage.plan.profile import unknown_machine
    from tonnage.probe.profile import read_own

    profile = read_own()
    if where.profile and all(lesson.machine != where.profile for lesson in profile.lessons):
        raise unknown_machine(profile, where.profile)
    return profile


def _machine(request: Request) -> MachineSample | None:
    if not request.where.is_here:
        return None
    from tonnage.probe.host import read_machine

    return read_machine()


def cross_check(estimate: Estimate, spec: str) -> Comparison:
    """Trace a training estimate with PyTorch and transformers, and put the formulae beside it.

    Parameters
    ----------
    estimate : Estimate
        An estimate of a training candidate: of a plan, or of a rejection.
    spec : str
        The model, as for `read_model`; it needs a config.json.

    Returns
    -------
    Comparison
        Pool by pool, on one device with nothing split, transformers' own eager code on both sides.

    Raises
    ------
    OutsideError
        torch or transformers is not installed: `pip install 'tonnage[trace]'`.
    RequestError
        There is no config.json, the installed transformers does not know the family, or its code needs data to run.
    """
    from tonnage.oracle.ask import cross_check as check
    from tonnage.probe.spec import read_config

    return check(estimate.candidate, read_config(spec))


def fits_by_trace(request: Request) -> Fits | None:
    """Find by traces how a model fits whose family no formula covers.

    Parameters
    ----------
    request : Request
        A training request that names its cards.

    Returns
    -------
    Fits or None
        The largest micro-batch without and with recomputation, and what each takes; None where formulae cover the
        family, so that `plan` answers better.

    Raises
    ------
    OutsideError, RequestError
        As for `cross_check`.
    """
    from tonnage.oracle.ask import fits_of, is_covered
    from tonnage.probe.spec import read_config

    config = read_config(request.model)
    return None if is_covered(config) else fits_of(request, config)


def read_plan(text: str, name: str = "plan.toml") -> Plan:
    """Return the plan that a plan file holds; formats of earlier versions are migrated.

    Parameters
    ----------
    text : str
        The file's text.
    name : str
        Its name, for messages.

    Returns
    -------
    Plan
        Equal to the plan that was written.

    Raises
    ------
    BadFileError
        The text is no plan, or one of a later version.
    """
    from tonnage.plan.file import read_plan as read

    return read(text, name)


def verify(
    path: str,
    *,
    plan: str | None = None,
    baselines: Iterable[str] = (),
    limits: Mapping[str, object] | None = None,
    hardware: str | None = None,
    reads_logs: bool = True,
) -> tuple[Acceptance, TrainingSeen | ServingSeen]:
    """Accept or refuse a training run, or a server by its load test.

    Parameters
    ----------
    path : str
        A run folder, or the file that `tonnage bench --save` wrote.
    plan : str
        File of the plan whose predictions and limits count; by default the run's own.
    baselines : iterable of str
        Run folders whose final loss this one is held against.
    limits : mapping
        The person's own limits by name (`verify.limits.DEFAULTS`); over those of a table `[verify]` in the plan file.
    hardware : str
        File with readings of the devices, as `record.seen.hardware_of` reads them; a run folder's own by default.
    reads_logs : bool
        Whether to look for faults in the run's logs.

    Returns
    -------
    tuple
        The report, and what it was made of.

    Raises
    ------
    RequestError
        No run lies there, or a limit is none.
    BadFileError
        A file is not what it should be.
    """
    from tonnage.record.accept import accept

    return accept(path, plan, tuple(baselines), limits or {}, hardware, diagnose if reads_logs else None)


def write_plan(plan: Plan) -> str:
    """Return the text of a plan file.

    Parameters
    ----------
    plan : Plan
        A plan of an answer.

    Returns
    -------
    str
        TOML that `read_plan` reads back to the same plan.
    """
    from tonnage.plan.file import write_plan as write

    return write(plan)


def explain(plan: Plan) -> Explanation:
    """Return where every byte, second and coin of a plan goes, each with its formula and its source.

    Parameters
    ----------
    plan : Plan
        A plan of an answer or of a plan file.

    Returns
    -------
    Explanation
        Lines by part: memory of the device and of the host, time of a step, cost, assumptions.
    """
    from tonnage.plan.explain import explain as explain_plan

    return explain_plan(plan)


def score(text: str, name: str = "rows.jsonl", leave_out: str | None = None) -> dict[str, Any]:
    """Return how far off predictions are on measured runs, as the object that `tonnage score --json` prints.

    Parameters
    ----------
    text : str
        Rows of measured runs, one JSON object a line.
    name : str
        The file's name, for messages.
    leave_out : {"unit", "source"}, optional
        Predict each row by constants fitted without its unit or source.

    Returns
    -------
    dict
        `file`, `num_rows`, `leave_out`, `metrics` and `rows`; a row that cannot be read is refused, with the reason.

    Raises
    ------
    BadFileError
        A line is no JSON object with an id of its own.
    """
    from tonnage.calibrate.rows import read_rows, score_rows
    from tonnage.calibrate.score import row_object, statistics

    rows = read_rows(text, name)
    scored = score_rows(rows, leave_out)
    return {
        "file": name,
        "num_rows": len(rows),
        "leave_out": leave_out,
        "metrics": statistics(scored),
        "rows": [row_object(row) for row in scored],
    }


def calibrate(
    plan: Plan, text: str, name: str = "log", *, machine: str = "here", profile: Profile | None = None
) -> tuple[tuple[Finding, ...], Profile]:
    """Set what was measured of a plan's launch beside its prediction, and learn from it.

    Parameters
    ----------
    plan : Plan
        The plan that was launched.
    text : str
        A start-up log of vLLM, SGLang or llama.cpp, or the result of a benchmark.
    name : str
        The file's name: the evidence, without folders.
    machine : str
        The machine's label; "here" is what `--here` stands for.
    profile : Profile
        What was learnt before; nothing by default.

    Returns
    -------
    tuple
        Each measured quantity beside its prediction, and the profile with what they teach; `plan` takes it.

    Raises
    ------
    BadFileError
        Nothing is measured in the text.
    RequestError
        The plan is of another engine or split, or trains.
    """
    import hashlib

    from tonnage.calibrate.measurements import read_measurements
    from tonnage.calibrate.teach import Finding, as_launched, findings, lessons
    from tonnage.plan.profile import Profile, learn
    from tonnage.probe.prices import today

    known, found = profile or Profile(), list[Finding]()
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    for measured in read_measurements(text, name):
        told = findings(plan.estimate.candidate, measured)
        found += told
        evidence = {"file": name.rpartition("/")[2], "day": today(), "kind": measured.kind, "digest": digest}
        host = plan.request.where.host or ""
        candidate = as_launched(plan.estimate.candidate, measured)
        known = learn(known, lessons(candidate, told, machine=machine, host=host, **evidence))
    return tuple(found), known


def proof(answer: Answer, pick: int = 1) -> Proof:
    """Return what is least certain of a plan, and the shortest run that settles it.

    Parameters
    ----------
    answer : Answer
        An answer with `pick` plans or more.
    pick : int
        Rank of the plan. [1]

    Returns
    -------
    Proof
        Two or three numbers with the chance that they turn the answer; steps or requests, launch, time and cost.
    """
    from tonnage.plan.proof import proof as proof_of

    return proof_of(answer, pick)


def deploy(
    plan: Plan,
    *,
    place: str = "local",
    num_replicas: int = 1,
    port: int | None = None,
    engine: str | None = None,
    is_monitored: bool = False,
    scaling: Scaling | None = None,
) -> Bundle:
    """Return the files that start a plan in a place; nothing is written.

    Parameters
    ----------
    plan : Plan
        A plan of an answer or of a plan file.
    place : str
        A name of `render.targets.PLACES`.
    num_replicas : int
        Copies of a server, each with devices of its own. [1]
    port : int
        Port of a server; the engine's own by default. [1]
    engine : str
        Program that runs the plan, where it is another than the one it was counted for: torchrun or LLaMA-Factory for
        a plan of transformers.
    is_monitored : bool
        Whether to add what Prometheus and Alertmanager read, with the plan's predictions as thresholds.
    scaling : Scaling
        How replicas follow the load, where the place can (`kubernetes`).

    Returns
    -------
    Bundle
        Files by path, with the command that starts them.

    Raises
    ------
    RequestError
        No such place, or one that makes no sense for the plan.
    """
    from dataclasses import replace

    from tonnage.render.services import service_of
    from tonnage.render.targets import find_place

    found = find_place(place)
    service = service_of(plan, host=found.host, num_replicas=num_replicas, port=port, engine=engine)
    if scaling is not None:
        from tonnage.render.services import scaled

        service = scaled(service, scaling, place)
    bundle = found.bundle(service)
    if not is_monitored:
        return bundle
    from tonnage.render.monitoring import monitoring_files

    return replace(bundle, files=(*bundle.files, *monitoring_files(plan, service)))


def bench(test: LoadTest, told: Callable[[int], None] | None = None) -> tuple[Benched, list[Sample], Target]:
    """Load an OpenAI-compatible server and sum up what its requests see.

    Parameters
    ----------
    test : LoadTest
        The server, the load and the limits.
    told : callable
        Called with the number of requests that ended.

    Returns
    -------
    tuple
        The sums, every request, and the server as it was asked.

    Raises
    ------
    OutsideError
        The server does not answer, or the client's library is not installed.
    RequestError
        The address is none, or the server turns the first request down.
    """
    from tonnage.load.ask import bench as load

    return load(test, told)


def simulate_load(plan: Plan, question: LoadQuestion, told: Callable[[str], None] | None = None) -> LoadAnswer:
    """Replay requests against a serving plan: latencies, goodput, the largest rate, policies of scaling.

    Parameters
    ----------
    plan : Plan
        A serving plan of an answer or of a plan file.
    question : LoadQuestion
        The load (`tonnage.simulate.arrivals`), limits, and what is to be found.
    told : callable
        Called with what is done next.

    Returns
    -------
    LoadAnswer
        What came of it.

    Raises
    ------
    RequestError
        The plan trains, its engine has no scheduler that is known, or the question makes no sense.
    """
    from tonnage.simulate.ask import ask_load

    return ask_load(plan, question, told)


def simulate_job(plan: Plan, question: JobQuestion, told: Callable[[str], None] | None = None) -> JobAnswer:
    """Replay a training plan on machines that come and go: when it ends, what it costs, how often to save.

    Parameters
    ----------
    plan : Plan
        A training plan of an answer or of a plan file.
    question : JobQuestion
        The trace (`tonnage.simulate.spot`) and the job's times.
    told : callable
        Called with what is done next.

    Returns
    -------
    JobAnswer
        Each way to run it.

    Raises
    ------
    RequestError
        The plan serves, or a time makes no sense.
    """
    from tonnage.simulate.ask import ask_job

    return ask_job(plan, question, told)


def run(
    target: str,
    *,
    to: Path | None = None,
    data: Path | None = None,
    num_steps: int | None = None,
    is_cpu: bool = False,
    watch: Callable[[Update], None] | None = None,
    mlflow: str | None = None,
    **patience: Any,
) -> RunState:
    """Start a plan here and see it to its end; a run that is there already goes on.

    Parameters
    ----------
    target : str
        A plan file, a bundle's folder, or a run folder.
    to : Path
        Where the run is kept; by default `runs/NAME` for a plan, `run` inside a bundle.
    data : Path
        Text to train on, where the job is one of ours.
    num_steps : int
        End after so many optimizer steps. [1]
    is_cpu : bool
        Train on this machine's processors, whatever the plan is for.
    watch : callable
        Called with each new step and event.
    mlflow : str
        Address of an MLflow store that is told as well.
    **patience
        Fields of `tonnage.run.types.Settings`; None leaves the default.

    Returns
    -------
    RunState
        At its end: finished, stopped, failed or given up, with the attempts and why each ended.

    Raises
    ------
    RequestError
        Nothing that can be started, a run of another plan, or one that another process supervises.
    OutsideError
        The run folder cannot be written.
    """
    from pathlib import Path

    from tonnage.plan.file import LARGEST_BYTES
    from tonnage.probe.plain_file import read_text
    from tonnage.run.local import find_target, launch_of, settings_of
    from tonnage.run.supervise import held, ignore, supervise, writing

    fix = "give a plan file, a folder that tonnage deploy wrote, or a run folder"
    text = None if Path(target).is_dir() else read_text(target, LARGEST_BYTES, fix)
    found = find_target(target, text, to)
    plan = found.plan
    with held(found.folder):
        with writing(found.folder):
            state = found.open(data=data, num_steps=num_steps, is_cpu=is_cpu)
            launch = launch_of(found.folder, state, plan)
        hear = watch or ignore
        if mlflow is None:
            return supervise(found.folder, launch, settings_of(state, plan, **patience), hear, plan)
        from tonnage.run.tracking import Tracker

        tracker = Tracker(found.folder, mlflow, plan, hear)
        state = supervise(found.folder, launch, settings_of(state, plan, **patience), tracker, plan)
        tracker.end(state)
        return state


def runs(place: Path) -> tuple[dict[str, Any], ...]:
    """Return the runs at a place and a few folders below it, the newest first.

    Parameters
    ----------
    place : Path
        A folder.

    Returns
    -------
    tuple of dict
        `path`, `name`, `status` ("lost" where the supervisor died), `last_step`, `num_steps`, `num_attempts`,
        `last_checkpoint`, `engine`, `kind`, `created` and `message`; a broken `run.json` is left out.
    """
    from tonnage.record.folder import find_runs, summary

    return tuple(one for folder in find_runs(place) if (one := summary(folder)) is not None)


def stop(folder: Path, *, wait_seconds: float = 600.0) -> dict[str, Any]:
    """End a run with a checkpoint and wait for it.

    Parameters
    ----------
    folder : Path
        A run folder.
    wait_seconds : float
        For the checkpoint. [s]

    Returns
    -------
    dict
        As `runs` returns.

    Raises
    ------
    RequestError
        Nothing runs there.
    OutsideError
        It did not end in time, or its supervisor is out of reach.
    """
    from tonnage.record.folder import Folder, summary
    from tonnage.run.stop import stop_run

    stop_run(Folder(path=folder), wait_seconds)
    state = summary(Folder(path=folder))
    assert state is not None
    return state


def lint(paths: Sequence[str], stdin: BinaryIO | None = None) -> Report:
    """Hold scripts and configurations against today's interfaces; nothing of them is run or imported.

    Parameters
    ----------
    paths : sequence of str
        Files and folders; `-` is standard input.
    stdin : BinaryIO
        What `-` reads.

    Returns
    -------
    Report
        Findings by file and line, each with today's form and its source; what was not read.

    Raises
    ------
    BadFileError
        A path that is not there.
    """
    from dataclasses import replace

    from tonnage.diagnose.lint import definitions
    from tonnage.diagnose.lint import lint as lint_texts
    from tonnage.probe.lint_files import installed_fields, read_sources

    sources = read_sources(paths, stdin)
    known = definitions()
    installed = installed_fields()
    if installed is not None:
        release, fields = installed
        known = replace(
            known,
            names={**known.names, "trainer_field": fields},
            installed={"trainer_field": release},
        )
    report = lint_texts(sources.texts, known)
    return replace(report, unread=(*sources.unread, *report.unread))


def lint_fixes(report: Report) -> Mapping[str, tuple[str, str, int]]:
    """Return corrected copies of the files of a report: by name the text, the corrected text and how many changes.

    Parameters
    ----------
    report : Report
        An answer of `lint` over files.

    Returns
    -------
    Mapping
        Only changes that are certain; a Python file that would not parse stays as it was.
    """
    from tonnage.diagnose.lint.edits import apply_edits
    from tonnage.probe.lint_files import read_sources

    found: dict[str, tuple[str, str, int]] = {}
    for name in dict.fromkeys(f.file for f in report.findings if f.file != "-"):
        text = read_sources([name]).texts.get(name, "")
        newline = "\r\n" if "\r\n" in text else "\n"
        plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
        new, num = apply_edits(plain, [f.edit for f in report.findings if f.file == name and f.edit], name)
        found[name] = (text, new.replace("\n", newline), num)
    return found


def doctor(
    plan: Plan | None = None, *, folder: str = ".", place: str = "local", is_measured: bool = False
) -> tuple[Check, ...]:
    """Hold this machine against what a plan needs; nothing is changed.

    Parameters
    ----------
    plan : Plan
        What is to run here; without one only faults are told.
    folder : str
        Where weights and checkpoints are to lie.
    place : str
        A name of `render.targets.PLACES`: containers need the toolkit.
    is_measured : bool
        Measure memory, disk and the cards' memory too.

    Returns
    -------
    tuple of Check
        Each with what is required, what was found, the verdict and how to mend.

    Raises
    ------
    RequestError
        No such folder.
    """
    from pathlib import Path

    from tonnage.diagnose.doctor import examine, needs_of
    from tonnage.diagnose.doctor.types import Needs
    from tonnage.errors import RequestError
    from tonnage.probe.machine import read_machine
    from tonnage.render.targets import find_place

    find_place(place)
    where = Path(folder)
    if not where.is_dir():
        raise RequestError("is not a folder", where=folder[:200], fix="name one that is there with --folder")
    needs = Needs() if plan is None else needs_of(plan, place=place)
    readings = read_machine(where.resolve(), wanted=needs.packages, is_measured=is_measured)
    return examine(readings, needs)
