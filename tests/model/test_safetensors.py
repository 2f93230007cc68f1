"""Safetensors headers and indexes: counted exactly, packed weights unpacked, absurd ones refused."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import BadFileError, TonnageError
from tonnage.estimate.parameters import count
from tonnage.estimate.weights import weights_bytes
from tonnage.model.safetensors import component_of, counted_model, parse_header, parse_index, parse_json, unpacked
from tonnage.model.tensors import TruncatedError, bytes_by_component, bytes_by_type, parameters_by_component

BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4, "F16": 2}


def header(tensors, **more):
    """Write a header of (type, shape) by name."""
    entries, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape) in tensors.items():
        size = BYTES[kind]
        for dimension in shape:
            size *= dimension
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries | more).encode()
    return struct.pack("<Q", len(text)) + text, offset


def counted(tensors):
    return counted_model(unpacked(parse_header(header(tensors)[0])), "m", "m.safetensors")


TINY = {
    "model.embed_tokens.weight": ("BF16", (512, 64)),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", (64, 64)),
    "model.layers.0.self_attn.q_norm.weight": ("BF16", (16,)),
    "model.layers.0.input_layernorm.weight": ("BF16", (64,)),
    "model.layers.0.mlp.gate.weight": ("BF16", (4, 64)),
    "model.layers.0.mlp.gate.e_score_correction_bias": ("F32", (4,)),
    "model.layers.0.mlp.experts.0.up_proj.weight": ("BF16", (32, 64)),
    "model.layers.0.mlp.shared_experts.up_proj.weight": ("BF16", (32, 64)),
    "model.layers.0.linear_attn.in_proj_qkv.weight": ("BF16", (96, 64)),
    "model.visual.blocks.0.attn.qkv.weight": ("BF16", (96, 32)),
    "mtp.layers.0.mlp.up_proj.weight": ("BF16", (128, 64)),
    "lm_head.weight": ("BF16", (512, 64)),
}


def test_counts_and_bytes_by_component():
    model = counted(TINY)
    assert count(model).by_component == {
        "embedding": 512 * 64,
        "attention": 64 * 64 + 16,
        "norm": 64,
        "router": 4 * 64,
        "experts": 32 * 64,
        "shared_experts": 32 * 64,
        "linear_attn_ssm": 96 * 64,
        "vision_audio": 96 * 32,
        "lm_head": 512 * 64,
    }
    assert model.stored_bytes["mtp"] == 2 * 128 * 64
    assert model.stored_bytes["router"] == 2 * 4 * 64 + 4 * 4
    assert (model.vocab_size, model.hidden_size, model.is_tied, model.layers) == (512, 64, False, ())
    assert sum(weights_bytes(model, "fp32").values()) == 4 * count(model).total
    with pytest.raises(TonnageError, match="not known"):
        weights_bytes(model, "awq")


def test_layers_behind_the_last_one_predict_further_tokens():
    tensors = parse_header(header({f"model.layers.{i}.mlp.up_proj.weight": ("BF16", (8, 8)) for i in range(3)})[0])
    assert parameters_by_component(unpacked(tensors, 2)) == {"mlp": 128, "mtp": 64}


@pytest.mark.parametrize(
    ("tensors", "weights"),
    [
        ({"w.qweight": ("I32", (16, 64)), "w.qzeros": ("I32", (1, 8)), "w.scales": ("F16", (1, 64)), "w.g_idx": ("I32", (128,))}, 128 * 64),
        ({"w.weight_packed": ("I32", (64, 16)), "w.weight_scale": ("BF16", (64, 1)), "w.weight_shape": ("I32", (2,))}, 128 * 64),
        ({"w.weight": ("U8", (64, 64)), "w.weight_scale": ("F8_E4M3", (64, 8)), "w.weight_scale_2": ("F32", ()), "w.input_scale": ("F32", ())}, 128 * 64),
        ({"w.weight": ("U8", (4096, 1)), "w.weight.absmax": ("F32", (128,)), "w.weight.quant_map": ("F32", (16,)), "w.weight.quant_state.bitsandbytes__nf4": ("U8", (90,))}, 8192),
        ({"w_blocks": ("U8", (4, 64, 2, 16)), "w_scales": ("U8", (4, 64, 2)), "w_bias": ("BF16", (4, 64))}, 4 * 64 * 64 + 256),
        ({"w.weight": ("F8_E4M3", (64, 128)), "w.weight_scale_inv": ("F32", (1, 1))}, 8192),
        ({"w.weight": ("I8", (64, 128)), "w.SCB": ("F32", (64,)), "w.weight_format": ("U8", ())}, 8192),
    ],
    ids=["gptq", "compressed-tensors", "nvfp4", "nf4", "mxfp4", "fp8", "int8"],
)  # fmt: skip
def test_packed_weights_count_as_what_they_unpack_to(tensors, weights):
    data, stored = header({f"model.layers.0.mlp.{name}": tensor for name, tensor in tensors.items()})
    found = unpacked(parse_header(data))
    assert sum(parameters_by_component(found).values()) == weights
    assert sum(bytes_by_component(found).values()) == sum(bytes_by_type(found).values()) == stored


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("transformer.h.3.attn.c_attn.weight", "attention"),
        ("transformer.h.3.ln_1.weight", "norm"),
        ("transformer.wte.weight", "embedding"),
        ("embed_out.weight", "lm_head"),
        ("model.layers.1.post_attention_layernorm.weight", "norm"),
        ("model.layers.1.block_sparse_moe.gate.weight", "router"),
        ("model.layers.1.block_sparse_moe.experts.3.w1.weight", "experts"),
        ("model.layers.1.mlp.gate_proj.weight", "mlp"),
        ("model.layers.1.mlp.shared_expert_gate.weight", "shared_expert_gate"),
        ("backbone.layers.1.mixer.in_proj.weight", "linear_attn_ssm"),
        ("backbone.layers.1.mixer.q_proj.weight", "attention"),
        ("model.vision_tower.encoder.layers.1.mlp.fc1.weight", "vision_audio"),
        ("model.norm.weight", "norm"),
    ],
)
def test_components_by_name(name, component):
    assert component_of(name) == component


def test_a_file_that_is_not_whole_is_refused():
    data, stored = header(TINY)
    assert len(parse_header(data, "f", len(data) + stored)) == len(TINY)
    with pytest.raises(BadFileError, match="not whole: 1 bytes"):
        parse_header(data, "f", len(data) + stored - 1)


DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ABSURD = {
    "nothing": (b"", "too short"),
    "a length without end": (struct.pack("<Q", 2**63) + b"{}", "its header would have"),
    "a length of nothing": (struct.pack("<Q", 0), "its header would have"),
    "not json": (struct.pack("<Q", 4) + b"nope", "is not JSON"),
    "not an object": (struct.pack("<Q", 4) + b"[12]", "not a JSON object"),
    "bad text": (struct.pack("<Q", 4) + b'"\xff\xfe"', "is not JSON"),
    "nested without end": (struct.pack("<Q", len(DEEP)) + DEEP, "nested too deeply"),
    "a tensor that is none": (struct.pack("<Q", 9) + b'{"a": 17}', "is not a tensor's"),
    "a shape below zero": (
        header({}, a={"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]})[0],
        "is not a tensor's",
    ),
    "bytes that do not fit": (header({}, a={"dtype": "F32", "shape": [2], "data_offsets": [0, 4]})[0], "need 8"),
    "offsets backwards": (header({}, a={"dtype": "XX", "shape": [2], "data_offsets": [8, 4]})[0], "lies nowhere"),
    "a huge number": (header({}, a={"dtype": "XX", "shape": [10**30], "data_offsets": [0, 4]})[0], "is not a tensor's"),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_headers_are_refused_in_one_line(name):
    data, says = ABSURD[name]
    with pytest.raises(BadFileError) as caught:
        parse_header(data, "f.safetensors")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_header_that_is_cut_off_asks_for_more():
    data, _ = header(TINY)
    for end in (0, 7, 8, 9, len(data) - 1):
        with pytest.raises(TruncatedError):
            parse_header(data[:end])


def test_a_model_without_weights_is_refused():
    with pytest.raises(BadFileError, match="holds no weights"):
        counted({})


@pytest.mark.parametrize(
    "place", ["../../etc/passwd", "/etc/passwd", "a/b.safetensors", ".hidden", "", 7, None, "a\nb"]
)
def test_an_index_that_leaves_its_folder_is_refused(place):
    with pytest.raises(BadFileError, match="no file of this folder"):
        parse_index({"weight_map": {"w": place}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries({}, optional={"dtype": JSON, "shape": JSON, "data_offsets": JSON})


@given(st.dictionaries(st.text(max_size=20), ENTRY | JSON, max_size=4))
def test_any_header_is_refused_or_counted(entries):
    text = json.dumps(entries).encode()
    try:
        counted_model(unpacked(parse_header(struct.pack("<Q", len(text)) + text)), "m", "f")
    except TonnageError as error:
        assert "\n" not in str(error)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_counted(data):
    for piece in (data, struct.pack("<Q", len(data)) + data):
        try:
            parse_header(piece)
        except TonnageError as error:
            assert "\n" not in str(error)


@given(JSON)
def test_any_index_is_refused_or_read(value):
    try:
        places = parse_index(parse_json(json.dumps({"weight_map": value}), "index"))
        assert all("/" not in place for place in places.values())
    except TonnageError as error:
        assert "\n" not in str(error)


@given(st.text(max_size=80), st.none() | st.integers(1, 100))
def test_every_name_has_a_component(name, layers):
    assert component_of(name, layers)
