"""Text to train on: plain text, JSONL, Parquet or a datasets folder; packed into rows of one length or one a text.

A record is a plain text (`text`) or a conversation (`messages`, as chat templates take it). In a conversation only what
the assistant says is learned, where the tokenizer's template marks it or renders turn after turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset
from train_folder import BadJobError

PLAIN_SUFFIXES = (".txt", ".md", ".rst")
SUFFIXES = (*PLAIN_SUFFIXES, ".jsonl", ".parquet")
IGNORED = -100  # label that the loss leaves out, as in torch.nn.functional.cross_entropy


@dataclass(kw_only=True)
class DataSettings:
    """The job's `data`."""

    path: Path
    text_field: str = "text"
    messages_field: str = "messages"
    split: str = "train"
    is_packed: bool = True
    is_streamed: bool = False
    held_back_ratio: float = 0.0
    num_held_back_rows: int = 0  # of a stream, whose length nobody knows

    @classmethod
    def of(cls, value: Any) -> DataSettings:
        """Return the settings of a job: a path alone, or a table."""
        table: dict[str, Any] = {"path": value} if isinstance(value, str) else dict(value)
        unknown = set(table) - {"path", "text_field", "messages_field", "split", "packing", "streaming",
                                "held_back_ratio", "held_back_rows"}  # fmt: skip
        if unknown or "path" not in table:
            raise BadJobError(f"data: {', '.join(sorted(unknown)) or 'no path'}; give path, text_field, "
                               "messages_field, split, packing, streaming, held_back_ratio, held_back_rows")  # fmt: skip
        return cls(
            path=Path(table["path"]),
            text_field=table.get("text_field", "text"),
            messages_field=table.get("messages_field", "messages"),
            split=table.get("split", "train"),
            is_packed=table.get("packing", True),
            is_streamed=table.get("streaming", False),
            held_back_ratio=float(table.get("held_back_ratio", 0.0)),
            num_held_back_rows=int(table.get("held_back_rows", 0)),
        )


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    found = sorted(path for path in place.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not found:
        raise BadJobError(f"data: {place}: no {', '.join(SUFFIXES)} file; name a file or folder of text, or a folder "
                           "that datasets saved")  # fmt: skip
    return found


def is_saved_dataset(place: Path) -> bool:
    """Whether `datasets` saved this folder."""
    return (place / "dataset_info.json").is_file() or (place / "dataset_dict.json").is_file()


def records(settings: DataSettings) -> Iterator[dict[str, Any]]:
    """Yield records in the order of file names and lines.

    Raises
    ------
    BadJobError
        A file holds something else.
    """
    if is_saved_dataset(settings.path):
        yield from _saved_records(settings)
        return
    for file in _files(settings.path):
        if file.suffix == ".jsonl":
            yield from _line_records(file)
        elif file.suffix == ".parquet":
            yield from _parquet_records(file)
        else:
            yield {settings.text_field: file.read_text(encoding="utf-8", errors="replace")}


def _line_records(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise BadJobError(f"data: {file}:{number}: is not JSON ({error}); give one object a line") from None
            if not isinstance(record, dict):
                raise BadJobError(f"data: {file}:{number}: is not an object; give one object a line")
            yield record


def _parquet_records(file: Path) -> Iterator[dict[str, Any]]:
    from pyarrow import parquet  # noqa: PLC0415  only where such files are

    for batch in parquet.ParquetFile(file).iter_batches(batch_size=256):
        yield from batch.to_pylist()


def _saved_records(settings: DataSettings) -> Iterator[dict[str, Any]]:
    import datasets  # noqa: PLC0415  only where such folders are

    saved = datasets.load_from_disk(str(settings.path))
    if isinstance(saved, datasets.DatasetDict):
        if settings.split not in saved:
            raise BadJobError(f"data: {settings.path}: has no split {settings.split}; it has {', '.join(saved)}")
        saved = saved[settings.split]
    yield from saved


@dataclass(kw_only=True)
class Encoder:
    """A record -> its tokens and which of them are learned."""

    tokenizer: Any
    settings: DataSettings
    on_note: Callable[[str], None] = lambda _: None

    def __call__(self, record: dict[str, Any]) -> tuple[list[int], list[int]]:
        """Return tokens and labels."""
        messages = record.get(self.settings.messages_field)
        if messages is not None:
            return self._conversation(messages)
        text = record.get(self.settings.text_field)
        if not isinstance(text, str):
            raise BadJobError(f"data: a record has neither {self.settings.text_field} nor "
                               f"{self.settings.messages_field}, but {', '.join(record) or 'nothing'}; name the field "
                               "by text_field or messages_field")  # fmt: skip
        ids = self.tokenizer(text)["input_ids"]
        if self.tokenizer.eos_token_id is not None:
            ids = [*ids, self.tokenizer.eos_token_id]
        return ids, list(ids)

    def _conversation(self, messages: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
        template = self.tokenizer.chat_template
        if not template:
            raise BadJobError("data: conversations need a chat template, and the tokenizer has none; "
                               "give plain text or a tokenizer with a template")  # fmt: skip
        if "generation %}" in template or "generation -%}" in template:
            told = self.tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
            )
            ids, mask = list(told["input_ids"]), told["assistant_masks"]
        else:
            ids, mask = self._by_turns(messages)
        return ids, [one if is_said else IGNORED for one, is_said in zip(ids, mask, strict=True)]

    def _by_turns(self, messages: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
        # What an assistant's turn adds to the text before it; some templates change earlier turns, then all is learned.
        def render(some: list[dict[str, Any]], **kwargs: Any) -> str:
            return self.tokenizer.apply_chat_template(some, tokenize=False, **kwargs)

        whole = render(messages)
        spans = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = render(messages[:number], add_generation_prompt=True)
            after = render(messages[: number + 1])
            if not (whole.startswith(after.rstrip()) and after.startswith(before)):
                self.on_note("the chat template changes earlier turns; whole conversations are learned")
                ids = self.tokenizer(whole, add_special_tokens=False)["input_ids"]
                return ids, [1] * len(ids)
            spans.append((len(before), len(after)))
        told = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        mask = [int(any(first <= at < last for first, last in spans)) for at, _ in told["offset_mapping"]]
        return told["input_ids"], mask


def packed(
    encode: Callable[[dict[str, Any]], tuple[list[int], list[int]]], found: Iterator[dict[str, Any]], length: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield rows of one length, texts one after another; what is left at the end is dropped."""
    ids: list[int] = []
    labels: list[int] = []
    for record in found:
        more_ids, more_labels = encode(record)
        ids += more_ids
        labels += more_labels
        while len(ids) >= length:
            yield ids[:length], labels[:length]
            del ids[:length], labels[:length]


def apart(
    encode: Callable[[dict[str, Any]], tuple[list[int], list[int]]], found: Iterator[dict[str, Any]], length: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield a row a text, cut to the length; a text of which nothing is learned is left out."""
    for record in found:
        ids, labels = encode(record)
        if any(label != IGNORED for label in labels[1:length]):
            yield ids[:length], labels[:length]


class Rows(Dataset):
    """Rows that lie in files of the run folder, mapped into memory: tokens, labels and where each row begins."""

    def __init__(self, folder: Path, first: int = 0, last: int | None = None) -> None:
        self.folder, self.first = folder, first
        self.starts = np.load(folder / "starts.npy", mmap_mode="r")
        self.last = len(self.starts) - 1 if last is None else last
        self.tokens = np.load(folder / "tokens.npy", mmap_mode="r")
        self.is_learned = np.load(folder / "learned.npy", mmap_mode="r")

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        begin, end = (int(self.starts[self.first + index + more]) for more in (0, 1))
        ids = torch.from_numpy(self.tokens[begin:end].astype(np.int64))
        is_learned = torch.from_numpy(self.is_learned[begin:end].astype(bool))
        return {"input_ids": ids, "labels": torch.where(is_learned, ids, torch.tensor(IGNORED))}


class Stream(IterableDataset):
    """Rows made while they are read, in the same order every time, by one worker at most."""

    def __init__(self, rows: Callable[[Iterator[dict[str, Any]]], Iterator[Any]], settings: DataSettings,
                 first: int = 0, last: int | None = None) -> None:  # fmt: skip
        self.rows, self.settings, self.first, self.last = rows, settings, first, last

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for number, (ids, labels) in enumerate(self.rows(records(self.settings))):
            if self.last is not None and number >= self.last:
                return
            if number >= self.first:
                yield {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)}


def write_rows(folder: Path, rows: Iterator[tuple[list[int], list[int]]]) -> None:
    """Write rows where `Rows` reads them, aside first."""
    beside = folder.with_name(f".{folder.name}")
    beside.mkdir(parents=True, exist_ok=True)
    tokens: list[np.ndarray] = []
    learned: list[np.ndarray] = []
    starts = [0]
    for ids, labels in rows:
        tokens.append(np.asarray(ids, dtype=np.uint32))
        learned.append(np.asarray(labels) != IGNORED)
        starts.append(starts[-1] + len(ids))
    if not tokens:
        raise BadJobError("data: not one row; give more text or a shorter seq_len")
    np.save(beside / "tokens.npy", np.concatenate(tokens))
    np.save(beside / "learned.npy", np.concatenate(learned))
    np.save(beside / "starts.npy", np.asarray(starts))
    beside.rename(folder)


def fingerprint(settings: DataSettings, tokenizer: Any, length: int) -> str:
    """Return a name for what these files, this tokenizer and these settings give."""
    digest = hashlib.sha256()
    place = settings.path
    files = [p for p in sorted(place.rglob("*")) if p.is_file()] if place.is_dir() else [place]
    for file in files:
        told = file.stat()
        digest.update(f"{file} {told.st_size} {told.st_mtime_ns}\n".encode())
    digest.update(repr((settings, length, len(tokenizer), tokenizer.eos_token_id, tokenizer.chat_template)).encode())
    digest.update(json.dumps(tokenizer("The quick brown fox, 42 déjà vu 模型")["input_ids"]).encode())
    return digest.hexdigest()[:16]


def pad(rows: list[dict[str, torch.Tensor]], pad_id: int) -> dict[str, torch.Tensor]:
    """Return a batch; shorter rows are filled at the end."""
    longest = max(len(row["input_ids"]) for row in rows)
    batch = {"input_ids": [], "labels": [], "attention_mask": []}
    for row in rows:
        short = longest - len(row["input_ids"])
        batch["input_ids"].append(torch.nn.functional.pad(row["input_ids"], (0, short), value=pad_id))
        batch["labels"].append(torch.nn.functional.pad(row["labels"], (0, short), value=IGNORED))
        batch["attention_mask"].append(
            torch.nn.functional.pad(torch.ones(len(row["input_ids"]), dtype=torch.long), (0, short))
        )
    stacked = {name: torch.stack(values) for name, values in batch.items()}
    if all(len(row["input_ids"]) == longest for row in rows):
        del stacked["attention_mask"]  # without one, attention takes its fastest path
    return stacked
