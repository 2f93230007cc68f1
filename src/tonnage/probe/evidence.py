"""Reads what a failed run left behind, a piece at a time: logs, journals, error files, dumps, whole folders.

Nothing is executed or unpickled here: dumps go to a child process that knows plain values only
(`probe/dumps.py`).
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from tonnage.diagnose.lines import rank_of, rank_of_file, seconds_of
from tonnage.diagnose.scan import Scanner
from tonnage.diagnose.slow import steps_of
from tonnage.diagnose.types import Hit, Seen
from tonnage.errors import BadFileError, OutsideError, RequestError
from tonnage.nouns import noun
from tonnage.probe.plain_file import open_file

_BLOCK: Final = 1 << 20
_TAIL: Final = 1 << 16
_MOST_FILES: Final = 5_000
_MOST_HITS: Final = 64  # of one rule in one file; later ones are counted by nobody
_LARGEST_OBJECT: Final = 32 << 20
# Suffixes of a folder's files that are no log: weights, archives, pictures, programs.
_NO_LOGS: Final = frozenset(
    [
        ".safetensors",
        ".bin",
        ".pt",
        ".pth",
        ".ckpt",
        ".gguf",
        ".onnx",
        ".npy",
        ".npz",
        ".parquet",
        ".arrow",
        ".zip",
        ".tar",
        ".tgz",
        ".zst",
        ".whl",
        ".so",
        ".o",
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".svg",
        ".ico",
        ".pdf",
        ".py",
        ".pyc",
        ".sqlite",
        ".db",
        ".mlmodel",
        ".distcp",
        ".lock",
        ".toml",
        ".html",
        ".css",
        ".js",
    ]
)
_PICKLES: Final = (".pickle", ".pkl")
_EXCEPTION: Final = re.compile(
    r"^(?:[\w\[\]():.,/ \-]{0,120}?[\]:] )?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Expired))(?:: (.*))?$"
)
_KINDS: Final = (
    ("nvidia-smi -q", (b"==============NVSMI LOG==============",)),
    ("kernel log", (b"Linux version ", b"NVRM: ", b"oom-kill:", b"invoked oom-killer", b" kernel: ")),
    ("kubernetes events", (b"FirstSeen", b"LAST SEEN", b"Last State:", b"kubelet")),
    ("Slurm", (b"slurmstepd", b"slurmctld", b"srun: ")),
    ("journal", (b"systemd[1]", b"-- Journal begins", b"-- Logs begin")),
    ("Ollama", (b"source=routes.go", b"llama runner", b"ollama")),
    ("vLLM", (b"vllm", b"EngineCore", b"[gpu_worker")),
    ("SGLang", (b"sglang", b"mem_fraction_static", b"server_args=")),
    ("llama.cpp", (b"llama_model_load", b"llama_context", b"ggml_", b"llm_load")),
    ("torchrun", (b"torch.distributed.elastic", b"torchrun", b"ChildFailedError")),
    ("DeepSpeed", (b"[deepspeed", b"DeepSpeed", b"deepspeed")),
)  # fmt: skip


@noun
class Found:
    """What was read: lines that rules met, what was looked at, and dumps taken apart."""

    hits: tuple[Hit, ...]
    seen: tuple[Seen, ...]
    recorders: tuple[Mapping[str, Any], ...] = ()
    snapshots: tuple[Mapping[str, Any], ...] = ()
    figures: tuple[Mapping[str, Any], ...] = ()  # what tells of speed: steps, load tests, pages of metrics, reports


class _Counted:
    """Passes blocks on, counting bytes and keeping the head and the tail."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = blocks
        self.num_bytes = 0
        self.head = b""
        self.tail = b""

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            if not self.num_bytes:
                self.head = block[:_TAIL]
            self.num_bytes += len(block)
            self.tail = (self.tail + block)[-_TAIL:] if len(block) < _TAIL else block[-_TAIL:]
            yield block


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file's bytes: gzip unpacked, UTF-16 (which PowerShell writes) as UTF-8."""
    first = file.read(_BLOCK) or b""
    if first[:2] == b"\x1f\x8b":
        yield from _unpacked(first, file)
        return
    if first[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        while first:
            yield decoder.decode(first).encode()
            first = file.read(_BLOCK)
        return
    while first:
        yield first
        first = file.read(_BLOCK)


def _unpacked(first: bytes, file: BinaryIO) -> Iterator[bytes]:
    engine = zlib.decompressobj(16 + zlib.MAX_WBITS)
    while first:
        try:
            out = engine.decompress(first, _BLOCK)
            while out:
                yield out
                out = engine.decompress(engine.unconsumed_tail, _BLOCK)
        except zlib.error:
            return
        first = file.read(_BLOCK)


def last_exception(tail: bytes) -> tuple[str, int]:
    """Return the last line of the end of a log that names an exception, and how many lines stand after it."""
    lines = tail.decode("utf-8", errors="replace").splitlines()
    for after, line in enumerate(reversed(lines)):
        if match := _EXCEPTION.match(line.strip()[:2000]):
            return match[0][-300:] if len(match[0]) > 300 else match[0], after
    return "", 0


def kind_of(name: str, head: bytes) -> str:
    """Return what a log seems to be, by texts that only its writer prints."""
    for kind, texts in _KINDS:
        if any(text in head for text in texts):
            return kind
    return "kernel log" if "dmesg" in name or "kern.log" in name else "log"


class Reader:
    """Reads one source after the other and keeps what rules met."""

    def __init__(self) -> None:
        self._scanner = Scanner()
        self.hits: list[Hit] = []
        self.seen: list[Seen] = []
        self.recorders: list[Mapping[str, Any]] = []
        self.snapshots: list[Mapping[str, Any]] = []
        self.figures: list[Mapping[str, Any]] = []

    def read(self, name: str, blocks: Iterable[bytes], *, kind: str = "") -> None:
        """Read one log."""
        counted = _Counted(blocks)
        file_rank = rank_of_file(name)
        per_rule: dict[tuple[str, int | None], int] = {}
        for rule, number, text, groups in self._scanner.hits(counted):
            rank = rank_of(text)
            rank = file_rank if rank is None else rank
            place = rule, rank
            per_rule[place] = per_rule.get(place, 0) + 1
            if per_rule[place] <= _MOST_HITS:
                self.hits.append(
                    Hit(symptom=rule, file=name, line=number, text=text, groups=groups, rank=rank, time_seconds=seconds_of(text))
                )  # fmt: skip
        text, after = last_exception(counted.tail)
        num_lines = self._scanner.num_lines
        self.seen.append(
            Seen(
                file=name,
                kind=kind or kind_of(name, counted.head),
                num_lines=num_lines,
                num_bytes=counted.num_bytes,
                last_exception=text,
                last_exception_line=max(1, num_lines - after) if text else 0,
            )
        )

    def read_file(self, path: Path, *, is_named: bool) -> None:
        """Read one file, whatever it is; one of a folder that is no log is passed over."""
        try:
            with open_file(path) as file:
                head = file.read(_TAIL) or b""
                if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
                    self._read_dump(path, is_named=is_named)
                    return
                if _is_binary(head):
                    if is_named:
                        raise BadFileError("is no text", where=str(path), fix="name logs, journals, error files, dumps")
                    return
                if head.lstrip()[:1] == b"{" and b'"message"' in head[:4096] and (lines := _error_file(path)):
                    self.read(str(path), [lines], kind="error file")
                    return
                if (figure := _figure(path, head)) is not None:
                    self.figures.append({**figure, "file": str(path)})
                self.read(str(path), _after(head, file))
        except OSError as error:
            if is_named:
                raise BadFileError(f"cannot be read: {error.strerror}", where=str(path), fix="check the path") from None

    def _read_dump(self, path: Path, *, is_named: bool) -> None:
        from tonnage.probe.dumps import read_dump  # noqa: PLC0415 - starts a process, and few runs leave dumps

        try:
            dump = read_dump(path)
        except (BadFileError, OutsideError):
            if is_named:
                raise
            return
        size = path.stat().st_size
        (self.recorders if dump["kind"] == "flight recorder" else self.snapshots).append({**dump, "file": str(path)})
        self.seen.append(Seen(file=str(path), kind=dump["kind"], num_lines=0, num_bytes=size))


def _after(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    """Yield the blocks of a file whose head was read already."""

    class Rest:
        """The head again, then the rest."""

        def __init__(self) -> None:
            self.head = head

        def read(self, size: int) -> bytes:
            """Read on."""
            if self.head:
                first, self.head = self.head, b""
                return first
            return file.read(size) or b""

    yield from _blocks(Rest())  # pyright: ignore[reportArgumentType]  only `read` is asked for


def _is_binary(head: bytes) -> bool:
    if head[:2] in {b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff"}:
        return False
    return head[:4096].count(0) > 8


def _error_file(path: Path) -> bytes:
    """Return the message and the call stack of a file that torchrun's @record wrote, as lines; nothing if it is none."""
    try:
        with open_file(path) as file:
            data = file.read(_LARGEST_OBJECT)
        message = json.loads(data)["message"]
        if isinstance(message, str):
            return message.encode()
        extra = message.get("extraInfo", {})
        stamp = extra.get("timestamp")
        lines = [str(extra.get("py_callstack", "")), str(message.get("message", ""))]
        return "\n".join(f"{_iso(stamp)}{line}" for line in lines).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b""


def _figure(path: Path, head: bytes) -> dict[str, Any] | None:
    """Return what a file tells of speed: the steps of a run, a load test, an acceptance report, an engine's metrics."""
    is_steps = path.suffix == ".jsonl" and b'"step_seconds"' in head
    is_object = head.lstrip()[:1] == b"{" and any(word in head for word in (b'"ttft_seconds"', b'"checks"'))
    is_page = b"request_queue_time_seconds" in head or b"sglang:queue_time_seconds" in head
    if not (is_steps or is_object or is_page):
        return None
    with open_file(path) as file:
        text = (file.read(_LARGEST_OBJECT) or b"").decode("utf-8", errors="replace")
    if is_steps:
        return {"kind": "steps", "rank": rank_of_file(str(path)) or 0, "rows": steps_of(text)}
    if is_page:
        return {"kind": "page", "text": text}
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return {"kind": "bench" if "ttft_seconds" in told else "report", "told": told} if isinstance(told, dict) else None


def _iso(stamp: Any) -> str:
    """Return the second of an error file as text that begins a line."""
    from datetime import UTC, datetime  # noqa: PLC0415 - error files are few

    try:
        return f"{datetime.fromtimestamp(int(stamp), UTC):%Y-%m-%d %H:%M:%S} "
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that may be logs or dumps, in order of their names."""
    found = 0
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in {".git", "__pycache__", "checkpoints"})
        for name in sorted(names):
            path = Path(where) / name
            if path.suffix.lower() in _NO_LOGS or name.startswith(".") or not _is_regular(path):
                continue
            found += 1
            if found > _MOST_FILES:
                return
            yield path


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def read_evidence(paths: Iterable[str], stdin: BinaryIO | None = None) -> Found:
    """Read files, folders and standard input (`-`).

    Raises
    ------
    RequestError
        A path does not exist, or is neither text nor a dump.
    """
    reader = Reader()
    for name in paths:
        path = Path(name)
        if name == "-":
            if stdin is None:
                raise RequestError("there is no standard input", where="-", fix="name a file")
            reader.read("-", _blocks(stdin))
        elif path.is_dir():
            for file in files_of(path):
                reader.read_file(file, is_named=False)
        elif not path.exists():
            raise BadFileError(
                "no such file or folder", where=name[:200], fix="name logs, folders, dumps or - for standard input"
            )
        else:
            reader.read_file(path, is_named=True)
    return Found(
        hits=tuple(reader.hits),
        seen=tuple(reader.seen),
        recorders=tuple(reader.recorders),
        snapshots=tuple(reader.snapshots),
        figures=tuple(reader.figures),
    )
