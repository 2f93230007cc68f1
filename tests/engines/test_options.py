"""Every flag and field of a launch is one that the engine's own source defines, with a value that it allows."""

import csv
import io
import re
from functools import cache

import pytest
from tests.engines.grid import own_words, paths, servings, tables, trainings

from tonnage import datafiles
from tonnage.engines import ENGINES, TRAINERS, find_engine, find_trainer
from tonnage.engines.servers import server_of

RECORDED = [name for name in datafiles.names("options", ".csv") if name != "versions"]
# Options of a recipe's program and of the configurations beside it, and whose plans it is asked to run.
PROGRAMS = {"megatron": "megatron", "torchtitan": "torchtitan"}
FILES = {
    "deepspeed.json": ("deepspeed",),
    "accelerate.json": ("accelerate",),
    "llamafactory.yaml": ("llamafactory", "transformers"),
    "axolotl.yaml": ("axolotl",),
}
# Tables whose inner keys belong to another program's class: bitsandbytes', PyTorch's, torchao's.
FOREIGN = re.compile(
    r"(gradient_checkpointing_kwargs|bnb_config_kwargs|fp8_config)\."
    r"|optimizer\.params\."
    r"|deepspeed_config\.deepspeed_config_file\."
)


@cache
def known_options(data):
    """Return an engine's options with the values that each allows; an empty set: any."""
    rows = csv.DictReader(io.StringIO(datafiles.text(f"options/{data}.csv")))
    return {row["name"]: set(row["choices"].split()) for row in rows}


def wrong_words(argv, known):
    """Return the flags that are not known, and the values that a flag does not allow."""
    wrong = []
    for word, value in zip(argv, [*argv[1:], ""], strict=True):
        if ":" in word and not word.startswith("-") and re.fullmatch(r"[a-z-]+:[a-z-]+", word):
            wrong += [] if word in known else [word]  # a subcommand
        if not word.startswith("-") or word.lstrip("-")[:1].isdigit():
            continue
        name, _, joined = word.partition("=")
        if name not in known:
            wrong.append(name)
        elif known[name] and (joined or value) not in known[name]:
            wrong.append(f"{name} {joined or value}")
    return wrong


@pytest.mark.parametrize(
    "name", ["vllm", "sglang", "llama_cpp", "ik_llama_cpp", "ktransformers", "tensorrt_llm", "transformers"]
)
def test_a_server_is_told_only_what_it_knows(name):
    engine = find_engine(name)
    known = known_options("sglang" if name == "ktransformers" else name)
    facts = server_of(name)
    wrong, number = set(), 0
    for candidate in servings(engine.name):
        if engine.refuses(candidate) is None:
            number += 1
            launch = engine.launch(candidate)
            wrong |= set(wrong_words((*own_words(launch)[1], *facts.flags_at("127.0.0.1", 1)), known))
            for table in tables(launch).values():
                wrong |= paths(table) - set(known) - {"kv_cache_config"}
    assert not wrong
    assert number > 10


def test_ollama_reads_every_variable_of_its_launch():
    engine, known = find_engine("ollama"), known_options("ollama")
    for candidate in servings("ollama"):
        if engine.refuses(candidate) is None:
            assert set({**engine.launch(candidate).env, **server_of("ollama").env}) <= set(known)


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda one: one.name)
def test_a_trainer_is_told_only_what_it_knows(trainer):
    launchers = {"torchrun": known_options("torchrun"), "accelerate": known_options("accelerate")}
    launchers["horovodrun"] = known_options("horovod")
    wrong, number = set(), 0
    for engine in trainer.plans_of:
        for candidate in trainings(engine):
            if trainer.refuses(candidate) is not None:
                continue
            number += 1
            launch = trainer.launch(candidate)
            first, own = own_words(launch)
            if launch.argv[0] in launchers:
                wrong |= set(wrong_words(first if first[1:] else own[: own.index("python")], launchers[launch.argv[0]]))
            if trainer.name in PROGRAMS:
                wrong |= set(wrong_words(own, known_options(PROGRAMS[trainer.name])))
            wrong |= unknown_fields(tables(launch))
    assert not wrong
    assert number > 5


def unknown_fields(found):
    """Return the fields of the configurations that their programs do not define."""
    wrong = set()
    for name, table in found.items():
        for path in paths(table):
            known = set().union(*(known_options(data) for data in FILES.get(name, ())))
            if name in FILES and path not in known and not FOREIGN.match(path):
                wrong.add(f"{name}: {path}")
    if "job.json" in found:
        said, known = found["job.json"]["training_arguments"], known_options("transformers")
        wrong |= {f"job.json: {path}" for path in paths(said) if path not in known and not FOREIGN.match(path)}
        wrong |= {f"optim={said['optim']}"} - set(known)
    return wrong


def test_unsloth_s_script_names_parameters_of_its_functions():
    from tonnage.engines.unsloth.launch import adapter_arguments, load_arguments

    known = set(known_options("unsloth"))
    for candidate in trainings("unsloth"):
        if find_trainer("unsloth").refuses(candidate) is None:
            assert {f"from_pretrained.{name}" for name in load_arguments(candidate)} <= known
            assert {f"get_peft_model.{name}" for name in adapter_arguments(candidate)} <= known


def test_scripts_of_the_launches_are_python():
    for trainer in TRAINERS:
        for engine in trainer.plans_of:
            for candidate in trainings(engine):
                if trainer.refuses(candidate) is None:
                    for name, text in trainer.launch(candidate).files.items():
                        if name.endswith(".py"):
                            compile(text, name, "exec")
                    break


def test_a_planted_flag_and_a_planted_value_are_found():
    known = known_options("vllm")
    assert wrong_words(("serve", "--no-such-flag", "1", "--port", "8000"), known) == ["--no-such-flag"]
    assert wrong_words(("--moe", "x"), {"--moe": {"a"}}) == ["--moe x"]
    assert wrong_words(("activation-checkpoint:half",), known_options("torchtitan")) == ["activation-checkpoint:half"]
    assert unknown_fields({"deepspeed.json": {"zero_optimization": {"stage": 3, "stages": 3}}}) == {
        "deepspeed.json: zero_optimization.stages"
    }
    assert unknown_fields({"axolotl.yaml": {"fsdp_config": {"offload": True}}}) == {"axolotl.yaml: fsdp_config.offload"}


def test_versions_and_days_are_on_record():
    rows = {row["engine"]: row for row in datafiles.rows("options/versions.csv")}
    assert set(rows) == set(RECORDED)
    assert all(row["version"] and row["day"] for row in rows.values())
    assert {engine.name for engine in ENGINES} >= {"vllm", "sglang"}
