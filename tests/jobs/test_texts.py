"""Text for the training job: every format gives the same rows, and only what an assistant says is learned."""

import itertools
import json
import sys
from pathlib import Path

import pytest
from tests.jobs.trainings import HERE

torch = pytest.importorskip("torch", reason="platform: optional check, the extra test-train is not installed")
datasets = pytest.importorskip("datasets", reason="platform: optional check, the extra test-train is not installed")
pytestmark = [pytest.mark.train, pytest.mark.slow]

RECORDS = [{"text": f"Paragraph {number}: " + "words " * number} for number in range(40)]
TALK = [
    {"role": "user", "content": "two and two"},
    {"role": "assistant", "content": "four"},
    {"role": "user", "content": "and two"},
    {"role": "assistant", "content": "six"},
]


@pytest.fixture(scope="module")
def texts():
    sys.path.insert(0, str(HERE.parents[1] / "src" / "tonnage" / "jobs"))
    import train_texts

    return train_texts


class Letters:
    """A tokenizer of letters, with a template that renders turn after turn."""

    eos_token_id = 0
    pad_token_id = 0
    chat_template = "turns"
    is_rewriting = False

    def __len__(self):
        return 256

    def __call__(self, text, *, add_special_tokens=True, return_offsets_mapping=False):
        told = {"input_ids": [ord(letter) % 256 for letter in text]}
        return {**told, "offset_mapping": [(at, at + 1) for at in range(len(text))]} if return_offsets_mapping else told

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt=False):
        assert not tokenize
        kept = messages[-2:] if self.is_rewriting else messages
        return "".join(f"<{one['role']}>{one['content']}." for one in kept) + "<assistant>" * add_generation_prompt


def rows_of(texts, path, **more):
    settings = texts.DataSettings.of({"path": str(path), **more})
    encode = texts.Encoder(tokenizer=Letters(), settings=settings)
    return list(texts.packed(encode, texts.records(settings), 32))


def write_lines(path: Path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_lines_parquet_and_saved_datasets_give_the_same_rows(texts, tmp_path):
    right = rows_of(texts, write_lines(tmp_path / "a.jsonl", RECORDS))
    assert len(right) > 100
    saved = datasets.Dataset.from_list(RECORDS)
    saved.to_parquet(str(tmp_path / "a.parquet"))
    saved.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"train": saved, "test": saved.select([0])}).save_to_disk(str(tmp_path / "split"))
    assert rows_of(texts, tmp_path / "a.parquet") == right
    assert rows_of(texts, tmp_path / "saved") == right
    assert rows_of(texts, tmp_path / "split") == right
    assert rows_of(texts, tmp_path / "split", split="test") == []  # one record is shorter than a row
    named = write_lines(tmp_path / "b.jsonl", [{"body": record["text"]} for record in RECORDS])
    assert rows_of(texts, named, text_field="body") == right


def test_rows_on_disk_are_those_that_were_written(texts, tmp_path):
    right = rows_of(texts, write_lines(tmp_path / "a.jsonl", RECORDS))
    texts.write_rows(tmp_path / "rows", iter(right))
    rows = texts.Rows(tmp_path / "rows", first=3)
    assert len(rows) == len(right) - 3
    assert rows[0]["input_ids"].tolist() == right[3][0]
    assert rows[0]["labels"].tolist() == right[3][1]


def test_only_what_the_assistant_says_is_learned(texts, tmp_path):
    settings = texts.DataSettings.of(str(tmp_path))
    ids, labels = texts.Encoder(tokenizer=Letters(), settings=settings)({"messages": TALK})
    learned = "".join(chr(one) for one, label in zip(ids, labels, strict=True) if label != texts.IGNORED)
    assert learned == "four.six."


def test_a_template_that_changes_earlier_turns_is_told_and_all_is_learned(texts, tmp_path):
    tokenizer, notes = Letters(), []
    tokenizer.is_rewriting = True
    settings = texts.DataSettings.of(str(tmp_path))
    ids, labels = texts.Encoder(tokenizer=tokenizer, settings=settings, on_note=notes.append)({"messages": TALK})
    assert labels == ids
    assert "earlier turns" in notes[0]


def test_rows_of_different_lengths_are_filled_with_what_is_not_learned(texts, tmp_path):
    settings = texts.DataSettings.of({"path": str(write_lines(tmp_path / "a.jsonl", RECORDS)), "packing": False})
    encode = texts.Encoder(tokenizer=Letters(), settings=settings)
    rows = list(texts.apart(encode, texts.records(settings), 64))
    assert len(rows) == len(RECORDS)
    assert max(len(ids) for ids, _ in rows) == 64
    batch = texts.pad(
        [{"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)} for ids, labels in rows[:2]], pad_id=9
    )
    short, length = len(rows[0][0]), len(rows[1][0])
    assert short < length
    assert batch["input_ids"][0, short:].tolist() == [9] * (length - short)
    assert batch["labels"][0, short:].tolist() == [texts.IGNORED] * (length - short)
    assert batch["attention_mask"].sum().item() == short + length


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("{", "a.jsonl:1: is not JSON"),
        ("[1]", "a.jsonl:1: is not an object"),
        ('{"body": "x"}', "neither text nor messages, but body"),
    ],
)
def test_bad_text_is_told_in_one_line(texts, tmp_path, lines, message):
    from train_folder import BadJobError

    (tmp_path / "a.jsonl").write_text(lines)
    with pytest.raises(BadJobError, match=message.replace(".", r"\.")):
        rows_of(texts, tmp_path / "a.jsonl")
    with pytest.raises(BadJobError, match=r"no \.txt"):
        rows_of(texts, tmp_path / "nowhere")


def test_pieces_of_any_number_of_ranks_fill_any_other(texts, tmp_path):
    """Ranges that three ranks wrote fill those that two ranks need; what is missing is named."""
    import train_pieces as pieces

    del texts
    whole = torch.arange(1000, dtype=torch.float32).view(40, 25)
    half = torch.randn(7, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    cuts = [0, 310, 770, 1000]
    for compression in ("none", "zstd", "zstd-planes"):
        files = []
        for rank, (first, last) in enumerate(itertools.pairwise(cuts)):
            held = [pieces.Piece(key="w", shape=(40, 25), start=first, data=whole.view(-1)[first:last])]
            if rank == 1:
                held.insert(0, pieces.Piece(key="b", shape=(7,), start=0, data=half))
            files.append(tmp_path / f"{compression}-{rank}")
            record = pieces.write(files[-1], held, compression)
            assert record.num_bytes == files[-1].stat().st_size
        found = torch.zeros(1000)
        bits = torch.zeros(7, dtype=torch.bfloat16)
        wanted = [
            pieces.Piece(key="w", shape=(40, 25), start=0, data=found[:512]),
            pieces.Piece(key="w", shape=(40, 25), start=512, data=found[512:]),
            pieces.Piece(key="b", shape=(7,), start=0, data=bits),
        ]
        pieces.fill(wanted, files, compression)
        assert torch.equal(found.view(40, 25), whole)
        assert torch.equal(bits, half)
        with pytest.raises(pieces.BadCheckpointError, match="lacks 1 tensors of the model: w"):
            pieces.fill(wanted, files[:2], compression)
        wrong = [pieces.Piece(key="w", shape=(25, 40), start=0, data=found)]
        with pytest.raises(pieces.BadCheckpointError, match="in the checkpoint"):
            pieces.fill(wrong, files, compression)


def test_safetensors_reads_what_was_written_plain(texts, tmp_path):
    import train_pieces as pieces
    from safetensors.torch import load_file

    del texts
    tensors = {"a": torch.randn(3, 5), "b": torch.arange(4, dtype=torch.int64), "c": torch.tensor(2.5)}
    pieces.write(
        tmp_path / "x.safetensors",
        [pieces.Piece(key=key, shape=tuple(one.shape), start=0, data=one.reshape(-1)) for key, one in tensors.items()],
    )
    found = load_file(tmp_path / "x.safetensors")
    assert all(torch.equal(found[key], one) for key, one in tensors.items())


def test_a_stop_is_obeyed_while_a_long_text_is_encoded(texts, tmp_path):
    """What was encoded so far is no text of the run: the next attempt begins anew."""
    import train_setup
    from train_folder import RunFolder
    from train_main import STOPPED, run
    from train_signals import Signals, StoppedEarlyError

    folder, signals = RunFolder(tmp_path, attempt=0, rank=0), Signals()

    def rows():
        for number in range(5):
            if number == 3:
                signals.stop_signal = "SIGTERM"
            yield [number], [number]

    with pytest.raises(StoppedEarlyError):
        texts.write_rows(tmp_path / "data" / "rows", train_setup._alive(rows(), folder, signals))
    folder.close()
    assert not (tmp_path / "data" / "rows").exists()

    def stop(*_):
        raise StoppedEarlyError

    kept, train_setup.train = train_setup.train, stop
    try:
        assert run({}, tmp_path / "run", attempt=0) == STOPPED
    finally:
        train_setup.train = kept


def test_locks_of_dead_builds_are_removed(texts, tmp_path):
    import os
    import time

    import train_setup

    del texts
    now = time.time()
    ages = {"old": now - 2000, "ours": now - 50, "foreign": now - 110}
    for name, made in ages.items():
        (tmp_path / "py" / name).mkdir(parents=True)
        (tmp_path / "py" / name / "lock").touch()
        os.utime(tmp_path / "py" / name / "lock", (made, made))
    train_setup.remove_dead_locks(tmp_path, run_began=now - 100)
    assert [path.parent.name for path in tmp_path.rglob("lock")] == ["foreign"]
