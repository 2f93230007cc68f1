"""Models read from files and folders: headers only, and one line for whatever is not a model."""

from __future__ import annotations

import io
import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.gguf_bytes import data_bytes
from tests.model.gguf_bytes import header as gguf_header
from tests.model.test_gguf import LAYER, H, V, llama
from tests.model.test_safetensors import TINY
from tests.model.test_safetensors import header as safetensors_header

from tonnage.api import read_model
from tonnage.errors import BadFileError, RequestError, TonnageError
from tonnage.estimate.parameters import count
from tonnage.estimate.weights import weights_bytes

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "vocab_size": 100, "num_key_value_heads": 2,
}  # fmt: skip
TOTAL = 2 * 100 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)


def write_gguf(path, names=None, **more):
    metadata, tensors = llama()
    kept = {name: tensors[name] for name in (names or tensors)}
    path.write_bytes(gguf_header(metadata | more, kept) + bytes(data_bytes(kept)))


def write_safetensors(path, tensors):
    data, stored = safetensors_header(tensors)
    path.write_bytes(data + bytes(stored))


def weights():
    """The tensors of CONFIG, as transformers names them, and one head that predicts further tokens."""
    found = {"model.embed_tokens.weight": (100, 64), "lm_head.weight": (100, 64), "model.norm.weight": (64,)}
    for i in range(3):
        for name, shape in {
            "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
            "self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128),
            "input_layernorm": (64,), "post_attention_layernorm": (64,),
        }.items():  # fmt: skip
            found[f"model.layers.{i}.{name}.weight"] = shape
    return {name: ("BF16", shape) for name, shape in found.items()}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_a_folder_a_config_and_standard_input(folder):
    for model in (
        read_model(str(folder)),
        read_model(str(folder / "config.json")),
        read_model("-", io.BytesIO(json.dumps(CONFIG).encode())),
    ):
        assert count(model).total == TOTAL
    assert read_model(str(folder)).name == folder.name


def test_a_folders_weights_say_what_lies_on_the_disk(folder):
    write_safetensors(folder / "model.safetensors", weights())
    model = read_model(str(folder))
    assert count(model).total == TOTAL
    assert sum(weights_bytes(model, "bf16").values()) == 2 * TOTAL
    assert sum(model.stored_bytes.values()) == 2 * TOTAL + model.stored_bytes["mtp"]
    assert model.stored_bytes["mtp"] > 0


def test_shards_are_read_through_their_index(folder):
    names = list(weights())
    shards = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for shard, held in shards.items():
        write_safetensors(folder / shard, {name: weights()[name] for name in held})
    places = {name: shard for shard, held in shards.items() for name in held}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert read_model(str(folder)).stored_bytes == read_model(str(index)).stored_bytes != {}
    (folder / "config.json").unlink()
    counted = read_model(str(index))
    assert counted.status == "header"
    assert (
        count(counted).total
        == count(read_model(str(folder))).total
        == sum(n for n in counted.stored_parameters.values())
    )
    (folder / "b.safetensors").unlink()
    with pytest.raises(BadFileError, match=r"1 of its 2 files are missing, the first is b.safetensors"):
        read_model(str(index))


def test_shards_without_an_index(tmp_path):
    names = list(weights())
    for number, held in enumerate((names[:9], names[9:]), 1):
        write_safetensors(tmp_path / f"m-{number:05d}-of-00002.safetensors", {name: weights()[name] for name in held})
    for spec in (tmp_path, tmp_path / "m-00001-of-00002.safetensors", tmp_path / "m-00002-of-00002.safetensors"):
        assert count(read_model(str(spec))).total == sum(
            n for n in read_model(str(tmp_path)).stored_parameters.values()
        )
    (tmp_path / "m-00001-of-00002.safetensors").unlink()
    with pytest.raises(BadFileError, match="1 of its 2 files are missing"):
        read_model(str(tmp_path / "m-00002-of-00002.safetensors"))


def test_an_unknown_family_is_counted_from_its_weights_or_refused(folder):
    config = CONFIG | {"model_type": "never_heard_of_it"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RequestError, match=r"never_heard_of_it.* unknown"):
        read_model(str(folder))
    write_safetensors(folder / "model.safetensors", weights())
    model = read_model(str(folder))
    assert (model.status, model.family, model.layers) == ("header", "never_heard_of_it", ())
    assert count(model).total == TOTAL
    assert "never_heard_of_it" in model.warnings[0]


def test_one_safetensors_file(tmp_path):
    write_safetensors(tmp_path / "x.safetensors", TINY)
    assert read_model(str(tmp_path / "x.safetensors")).status == "header"
    data = (tmp_path / "x.safetensors").read_bytes()
    assert count(read_model("-", io.BytesIO(data))).total == count(read_model(str(tmp_path / "x.safetensors"))).total
    (tmp_path / "x.safetensors").write_bytes(data[:-1])
    with pytest.raises(BadFileError, match="not whole"):
        read_model(str(tmp_path / "x.safetensors"))


def test_one_gguf_file_and_the_pipe(tmp_path):
    path = tmp_path / "tiny-Q4_K_M.gguf"
    write_gguf(path)
    for model in (read_model(str(path)), read_model(str(tmp_path)), read_model("-", io.BytesIO(path.read_bytes()))):
        assert count(model).total == V * H + H + 2 * LAYER
    assert read_model(str(path)).name == "tiny-Q4_K_M"
    for end in (3, 40, 400, path.stat().st_size - 1):
        (tmp_path / "cut.gguf").write_bytes(path.read_bytes()[:end])
        with pytest.raises(BadFileError):
            read_model(str(tmp_path / "cut.gguf"))


def test_a_header_longer_than_the_first_bytes_read(tmp_path):
    path = tmp_path / "long.gguf"
    write_gguf(path, **{"tokenizer.ggml.tokens": ["a long token of a vocabulary"] * 20_000})
    assert count(read_model(str(path))).total == V * H + H + 2 * LAYER


def test_a_split_model_is_read_whole_from_any_part(tmp_path):
    names = list(llama()[1])
    for number, held in enumerate((names[:7], names[7:14], names[14:]), 1):
        write_gguf(tmp_path / f"m-{number:05d}-of-00003.gguf", held, **{"split.tensors.count": len(names)})
    for spec in (tmp_path / "m-00001-of-00003.gguf", tmp_path / "m-00003-of-00003.gguf", tmp_path):
        assert count(read_model(str(spec))).total == V * H + H + 2 * LAYER
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(BadFileError, match=r"1 of 3 parts are missing, the first is m-00002-of-00003\.gguf"):
        read_model(str(tmp_path / "m-00001-of-00003.gguf"))


def test_several_gguf_models_in_a_folder_have_to_be_named(tmp_path):
    for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf"):
        write_gguf(tmp_path / name)
    with pytest.raises(RequestError, match="holds 2 GGUF models; name one of: m-Q4_K_M, m-Q8_0"):
        read_model(str(tmp_path))


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "x.ckpt", "no_suffix"])
def test_pickles_are_refused_with_the_reason(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    for spec in (tmp_path / name, tmp_path) if name != "no_suffix" else (tmp_path / name,):
        with pytest.raises(BadFileError, match=r"is a pickle.*\.safetensors or \.gguf"):
            read_model(str(spec))


def test_nothing_of_a_model_is_executed(folder):
    code = folder / "modeling_llama.py"
    code.write_text("raise SystemExit('executed')")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"auto_map": {"AutoModel": "modeling_llama.Model"}}))
    assert count(read_model(str(folder))).total == TOTAL


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("config.json", b"", "is not JSON"),
        ("config.json", b"[1, 2]", "not a JSON object"),
        ("config.json", b"{}", "model_type"),
        ("config.json", b'{"model_type": 7}', "model_type"),
        ("config.json", b"\xff\xfe\x00", "is not JSON"),
        ("config.json", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested too deeply"),
        ("config.json", b'{"model_type": "llama", "hidden_size": "wide"}', "hidden_size"),
        ("config.json", b'{"model_type": "llama", "num_hidden_layers": 1e99}', "num_hidden_layers"),
        ("x.gguf", b"GGUF", "cut off"),
        ("x.gguf", b"not one", "does not begin"),
        ("x.safetensors", b"1234", "too short"),
        ("model.safetensors.index.json", b'{"weight_map": {}}', "no 'weight_map'"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "../x"}}', "no file of this folder"),
    ],
)
def test_files_that_are_no_models(tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(RequestError) as caught:
        read_model(str(tmp_path / name))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_and_paths_to_nothing(tmp_path):
    for spec, says in {
        str(tmp_path): "neither config.json nor weights",
        str(tmp_path / "config.json"): "no such file",
        "./none": "no such file",
        "~/nothing/here.gguf": "no such file",
        "/dev/null": "neither a file nor a folder",
    }.items():
        with pytest.raises(RequestError, match=re.escape(says)):
            read_model(spec)


def test_an_empty_pipe():
    with pytest.raises(BadFileError, match="nothing came through"):
        read_model("-", io.BytesIO(b""))


@given(st.text(max_size=60) | st.text("./~-:$`|;&<>*?[]{}()\\'\" \n\t\0abQwen3", max_size=40))
def test_any_text_is_a_model_or_one_line(spec):
    if re.fullmatch(r"\s*(modelscope:)?[\w.-]+/[\w.:/-]+\s*", spec, re.ASCII | re.IGNORECASE):
        return  # would ask the hub
    try:
        read_model(spec, io.BytesIO(b""))
    except TonnageError as error:
        assert "\n" not in str(error)
        assert str(error).isprintable()


@given(st.binary(max_size=120))
def test_any_pipe_is_a_model_or_one_line(data):
    try:
        read_model("-", io.BytesIO(data))
    except TonnageError as error:
        assert "\n" not in str(error)


VALUE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.lists(st.integers(), max_size=3)
)


@given(
    st.dictionaries(st.sampled_from([*CONFIG, "head_dim", "layer_types", "text_config", "quantization_config"]), VALUE)
)
def test_any_config_is_a_model_or_one_line(fields):
    data = json.dumps(CONFIG | fields, allow_nan=True).encode()
    try:
        model = read_model("-", io.BytesIO(data))
    except TonnageError as error:
        assert "\n" not in str(error)
    else:
        assert count(model).total > 0
