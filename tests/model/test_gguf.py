"""GGUF headers: read as written, refused when absurd or cut off, and turned into exact models."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.model.gguf_bytes import data_bytes, header, text

from tonnage.errors import BadFileError, TonnageError
from tonnage.estimate.kv_cache import cache
from tonnage.estimate.parameters import count
from tonnage.estimate.weights import weights_bytes
from tonnage.model.gguf import LongArray, merge_parts, parse_header, part_name, part_of
from tonnage.model.gguf_model import component_of, model_from_gguf
from tonnage.model.tensors import TruncatedError
from tonnage.model.types import Attention, GatedDeltaNet, LatentAttention, Mamba1, Moe

H, V, I = 256, 512, 768  # noqa: E741
OUTER = {"token_embd.weight": ("Q6_K", (H, V)), "output_norm.weight": ("F32", (H,))}


def keys(arch, **values):
    named = {f"{arch}.{name.replace('__', '.')}": value for name, value in values.items()}
    return {"general.architecture": arch, "general.name": "tiny", **named}


def dense_layer(i, *, gated=True):
    found = {
        "attn_norm.weight": ("F32", (H,)),
        "ffn_norm.weight": ("F32", (H,)),
        "attn_q.weight": ("Q4_K", (H, H)),
        "attn_k.weight": ("Q4_K", (H, 64)),
        "attn_v.weight": ("Q6_K", (H, 64)),
        "attn_output.weight": ("Q4_K", (H, H)),
        "ffn_up.weight": ("Q4_K", (H, I)),
        "ffn_down.weight": ("Q6_K", (I, H)),
    }
    if gated:
        found["ffn_gate.weight"] = ("Q4_K", (H, I))
    return {f"blk.{i}.{name}": tensor for name, tensor in found.items()}


def llama(num_layers=2, **more):
    metadata = keys(
        "llama",
        block_count=num_layers,
        embedding_length=H,
        attention__head_count=8,
        attention__head_count_kv=2,
        context_length=4096,
        **more,
    )
    tensors = dict(OUTER)
    for i in range(num_layers):
        tensors |= dense_layer(i)
    return metadata, tensors


LAYER = 2 * H + 2 * H * H + 2 * H * 64 + 3 * H * I


def test_a_header_reads_back():
    metadata, tensors = llama()
    extra = {"a.float": 0.5, "a.flag": True, "a.words": ["x", "y"], "a.numbers": [1, 2, 3], "general.file_type": 15}
    found = parse_header(header(metadata | extra, tensors))
    assert found.version == 3
    assert dict(found.metadata) == metadata | extra | {"a.words": ("x", "y"), "a.numbers": (1, 2, 3)}
    assert {t.name: (t.type_name, t.shape) for t in found.tensors} == tensors
    assert found.data_offset == len(header(metadata | extra, tensors))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_versions_and_byte_orders(version, order):
    metadata, tensors = llama()
    model = model_from_gguf(parse_header(header(metadata, tensors, version=version, order=order)))
    assert count(model).total == V * H + H + 2 * LAYER


def test_a_dense_model_is_counted_and_shaped():
    metadata, tensors = llama()
    model = model_from_gguf(parse_header(header(metadata | {"general.file_type": 15}, tensors)))
    counts = count(model)
    assert counts.by_component == {
        "embedding": V * H,
        "attention": 2 * (2 * H * H + 2 * H * 64),
        "mlp": 2 * 3 * H * I,
        "norm": H + 2 * 2 * H,
    }
    assert (model.status, model.is_tied, model.max_position_tokens) == ("header", True, 4096)
    assert cache(model).bytes_per_token == 2 * 2 * 2 * 32 * 2
    assert sum(weights_bytes(model, "q4_k_m").values()) == sum(
        t.num_bytes for t in parse_header(header(metadata, tensors)).tensors
    )
    assert sum(weights_bytes(model, "bf16").values()) == 2 * counts.total
    assert sum(weights_bytes(model, "q8_0").values()) > sum(weights_bytes(model, "q4_k_m").values())


def test_a_model_whose_format_is_not_named_is_in_the_format_of_most_weights():
    metadata, tensors = llama()
    assert model_from_gguf(parse_header(header(metadata, tensors))).quantization.scheme == "q4_k_m"


def test_experts_shared_experts_and_layers_that_predict_further_tokens():
    arch, layers, experts, width = "qwen35moe", 5, 8, 256
    metadata = keys(
        arch,
        block_count=layers,
        nextn_predict_layers=1,
        embedding_length=H,
        attention__head_count=8,
        attention__head_count_kv=2,
        attention__key_length=32,
        attention__value_length=32,
        expert_count=experts,
        expert_used_count=2,
        ssm__conv_kernel=4,
        ssm__inner_size=256,
        ssm__state_size=32,
        ssm__time_step_rank=8,
        ssm__group_count=4,
    )
    moe = {
        "ffn_gate_inp.weight": ("F32", (H, experts)),
        "ffn_gate_exps.weight": ("Q4_K", (H, width, experts)),
        "ffn_up_exps.weight": ("Q4_K", (H, width, experts)),
        "ffn_down_exps.weight": ("Q6_K", (width, H, experts)),
        "ffn_gate_inp_shexp.weight": ("F32", (H,)),
        "ffn_gate_shexp.weight": ("Q8_0", (H, 64)),
        "ffn_up_shexp.weight": ("Q8_0", (H, 64)),
        "ffn_down_shexp.weight": ("Q8_0", (64, H)),
        "attn_norm.weight": ("F32", (H,)),
        "post_attention_norm.weight": ("F32", (H,)),
    }
    full = {
        "attn_q.weight": ("Q4_K", (H, 2 * 8 * 32)),
        "attn_k.weight": ("Q4_K", (H, 64)),
        "attn_v.weight": ("Q4_K", (H, 64)),
        "attn_output.weight": ("Q4_K", (H, H)),
        "attn_q_norm.weight": ("F32", (32,)),
        "attn_k_norm.weight": ("F32", (32,)),
    }
    linear = {
        "attn_qkv.weight": ("Q4_K", (H, 2 * 128 + 256)),
        "attn_gate.weight": ("Q4_K", (H, 256)),
        "ssm_conv1d.weight": ("F32", (4, 512)),
        "ssm_dt.bias": ("F32", (8,)),
        "ssm_a": ("F32", (8,)),
        "ssm_beta.weight": ("F32", (H, 8)),
        "ssm_alpha.weight": ("F32", (H, 8)),
        "ssm_norm.weight": ("F32", (32,)),
        "ssm_out.weight": ("Q4_K", (256, H)),
    }
    tensors = dict(OUTER) | {"output.weight": ("Q6_K", (H, V))}
    for i in range(layers):
        block = moe | (full if i % 4 == 3 or i == 4 else linear)
        tensors |= {f"blk.{i}.{name}": tensor for name, tensor in block.items()}
    tensors["blk.4.nextn.eh_proj.weight"] = ("Q8_0", (2 * H, H))
    model = model_from_gguf(parse_header(header(metadata, tensors)))
    counts = count(model)
    assert model.warnings == ()
    assert model.num_layers == 4
    mixers = [layer.mixers[0] for layer in model.layers]
    assert [type(mixer) for mixer in mixers] == [GatedDeltaNet] * 3 + [Attention]
    assert mixers[3].has_output_gate
    assert mixers[3].qk_norm == "head"
    part = model.layers[0].feed_forwards[0]
    assert isinstance(part, Moe)
    assert (part.num_experts, part.top_k, part.expert_size) == (experts, 2, width)
    assert part.shared.intermediate_size == 64
    assert "mtp" not in counts.by_component
    assert counts.total - counts.active == 4 * 6 * 3 * H * width
    assert counts.by_component["linear_attn_ssm"] == 3 * (H * 512 + H * 256 + 4 * 512 + 16 + 2 * H * 8 + 32 + 256 * H)


def test_latent_attention_with_its_two_halves():
    metadata = keys(
        "deepseek2",
        block_count=1,
        embedding_length=H,
        attention__head_count=8,
        attention__head_count_kv=1,
        attention__key_length=96,
        attention__value_length=64,
        attention__key_length_mla=48,
        attention__value_length_mla=32,
        attention__kv_lora_rank=64,
        rope__dimension_count=32,
    )
    block = {
        "attn_norm.weight": ("F32", (H,)),
        "ffn_norm.weight": ("F32", (H,)),
        "attn_kv_a_norm.weight": ("F32", (64,)),
        "attn_q.weight": ("F16", (H, 8 * 48)),
        "attn_kv_a_mqa.weight": ("F16", (H, 96)),
        "attn_k_b.weight": ("F16", (16, 64, 8)),
        "attn_v_b.weight": ("F16", (64, 32, 8)),
        "attn_output.weight": ("F16", (256, H)),
        "ffn_gate.weight": ("F16", (H, I)),
        "ffn_up.weight": ("F16", (H, I)),
        "ffn_down.weight": ("F16", (I, H)),
    }
    tensors = dict(OUTER) | {f"blk.0.{name}": tensor for name, tensor in block.items()}
    model = model_from_gguf(parse_header(header(metadata, tensors)))
    mixer = model.layers[0].mixers[0]
    assert isinstance(mixer, LatentAttention)
    assert (mixer.kv_lora_rank, mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim) == (64, 16, 32, 32)
    assert cache(model).bytes_per_token == 2 * (64 + 32)


@pytest.mark.parametrize(
    ("arch", "pattern", "windows"),
    [
        ("gemma2", None, [8, None, 8, None]),
        ("gemma3", 2, [8, None, 8, None]),
        ("gemma4", [True, False, False, True], [8, None, None, 8]),
        ("qwen3", None, [None] * 4),
    ],
)
def test_windows_by_pattern_or_architecture(arch, pattern, windows):
    metadata, tensors = llama(4)
    metadata = {key.replace("llama", arch): value for key, value in metadata.items()} | {"general.architecture": arch}
    metadata[f"{arch}.attention.sliding_window"] = 8
    if pattern is not None:
        metadata[f"{arch}.attention.sliding_window_pattern"] = pattern
    model = model_from_gguf(parse_header(header(metadata, tensors)))
    assert [layer.mixers[0].window_tokens for layer in model.layers] == windows


def test_mamba():
    metadata = keys(
        "mamba",
        block_count=1,
        embedding_length=H,
        ssm__conv_kernel=4,
        ssm__inner_size=512,
        ssm__state_size=16,
        ssm__time_step_rank=16,
    )
    block = {
        "attn_norm.weight": ("F32", (H,)),
        "ssm_in.weight": ("F16", (H, 1024)),
        "ssm_conv1d.weight": ("F32", (4, 512)),
        "ssm_conv1d.bias": ("F32", (512,)),
        "ssm_x.weight": ("F16", (512, 48)),
        "ssm_dt.weight": ("F16", (16, 512)),
        "ssm_dt.bias": ("F32", (512,)),
        "ssm_a": ("F32", (16, 512)),
        "ssm_d": ("F32", (512,)),
        "ssm_out.weight": ("F16", (512, H)),
    }
    tensors = dict(OUTER) | {f"blk.0.{name}": tensor for name, tensor in block.items()}
    model = model_from_gguf(parse_header(header(metadata, tensors)))
    assert isinstance(model.layers[0].mixers[0], Mamba1)
    assert cache(model).bytes_per_token == 0
    assert cache(model).state_bytes_per_sequence == 512 * 4 * 2 + 512 * 16 * 4


def test_an_architecture_that_is_not_understood_is_counted_and_says_so():
    metadata, tensors = llama()
    strange = {name: t for name, t in tensors.items() if "attn_v" not in name} | {
        "blk.0.attn_strange.weight": ("F16", (H, H))
    }
    model = model_from_gguf(parse_header(header(metadata, strange)))
    assert model.layers == ()
    assert "counted only" in model.warnings[0]
    assert count(model).total == sum(t.num_weights for t in parse_header(header(metadata, strange)).tensors)
    with pytest.raises(TonnageError, match="not known"):
        weights_bytes(model, "q8_0")


def test_an_encoder_file_is_an_encoder():
    tensors = {"v.blk.0.attn_q.weight": ("F16", (64, 64)), "mm.0.weight": ("F16", (64, 64))}
    model = model_from_gguf(parse_header(header({"general.architecture": "clip", "general.type": "mmproj"}, tensors)))
    assert count(model).by_component == {"vision_audio": 2 * 64 * 64}


def test_tables_that_are_no_weights_take_bytes_only():
    metadata, tensors = llama()
    more = tensors | {"rope_freqs.weight": ("F32", (16,)), "blk.0.exp_probs_b.bias": ("F32", (8,))}
    model = model_from_gguf(parse_header(header(metadata, more)))
    assert count(model).total == V * H + H + 2 * LAYER
    assert sum(model.stored_bytes.values()) == sum(t.num_bytes for t in parse_header(header(metadata, more)).tensors)


def test_parts_are_put_together_and_missed():
    metadata, tensors = llama()
    names = list(tensors)
    parts = [
        header(metadata | {"split.tensors.count": len(names)}, {name: tensors[name] for name in names[:5]}),
        header({"split.no": 1}, {name: tensors[name] for name in names[5:]}),
    ]
    merged = merge_parts([parse_header(part) for part in parts])
    assert count(model_from_gguf(merged)).total == V * H + H + 2 * LAYER
    with pytest.raises(BadFileError, match="5 tensors, not"):
        merge_parts([parse_header(parts[0])])
    with pytest.raises(BadFileError, match="same tensor"):
        merge_parts([parse_header(parts[0])] * 2)


def test_names_of_parts():
    assert part_of(part_name("m-Q4_K_M", 2, 13)) == ("m-Q4_K_M", 2, 13)
    assert part_of("m-Q4_K_M.gguf") is None


def test_a_vocabulary_is_kept_as_its_length():
    metadata, tensors = llama()
    words = {"tokenizer.ggml.tokens": ["token"] * 5000, "tokenizer.ggml.scores": [1] * 5000}
    found = parse_header(header(metadata | words, tensors)).metadata
    assert found["tokenizer.ggml.tokens"] == found["tokenizer.ggml.scores"] == LongArray(num_items=5000)


def test_a_format_that_is_not_known_takes_what_is_between_it_and_the_next():
    metadata, tensors = llama(1)
    odd = {"blk.0.attn_q.weight": (137, (H, H))}
    first = {name: odd.get(name, t) for name, t in tensors.items()}
    found = {t.name: t for t in parse_header(header(metadata, first)).tensors}
    assert (found["blk.0.attn_q.weight"].type_name, found["blk.0.attn_q.weight"].num_bytes) == ("type 137", H * H)
    with pytest.raises(BadFileError, match="unknown format 137"):
        parse_header(header(metadata, {"x": (137, (H,))}))


def test_a_file_that_is_not_whole_is_refused():
    metadata, tensors = llama()
    data = header(metadata, tensors)
    whole = len(data) + data_bytes(tensors)
    assert parse_header(data, "f", whole).tensors
    with pytest.raises(BadFileError, match="not whole"):
        parse_header(data, "f", whole - 4096)


def nested():
    inner = struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQI", 4, 1, 7)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.x") + inner


GOOD = header(*llama())
ABSURD = {
    "no magic": (b"GGML" + GOOD[4:], "does not begin with"),
    "empty": (b"", "cut off"),
    "version 1": (GOOD[:4] + struct.pack("<I", 1) + GOOD[8:], "version 1"),
    "version 99": (GOOD[:4] + struct.pack("<I", 99) + GOOD[8:], "version 99"),
    "tensors without end": (GOOD[:8] + struct.pack("<Q", 2**63) + GOOD[16:], "tensors, more than"),
    "keys without end": (GOOD[:16] + struct.pack("<Q", 2**40) + GOOD[24:], "keys, more than"),
    "a key without end": (GOOD[:24] + struct.pack("<Q", 2**62) + GOOD[32:], "bytes of a metadata key"),
    "bad text": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(b"\xff\xfe") + struct.pack("<IQ", 10, 1), "not UTF-8"),
    "an unknown value": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 77), "value type 77"),
    "arrays in arrays": (nested(), "arrays inside an array"),
    "an array without end": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 2**60),
        "items in 'k', more than",
    ),
    "a key twice": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + (text("k") + struct.pack("<IQ", 10, 1)) * 2,
        "stands twice",
    ),
    "a tensor twice": (
        b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + (text("t") + struct.pack("<IQIQ", 1, 4, 0, 0)) * 2,
        "same name",
    ),
    "five dimensions": (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<I", 5), "dimensions"),
    "an absurd shape": (
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0),
        "absurd shape",
    ),
    "rows that fit no block": (
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<IQIQ", 1, 100, 12, 0),
        "no multiple of a block",
    ),
    "no architecture": (header({}, OUTER), "does not name its architecture"),
    "absurd metadata": (header(keys("llama", block_count=2**60), OUTER), "not a reasonable number"),
    "absurd alignment": (header({"general.alignment": 0}, OUTER), "general.alignment"),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_headers_are_refused_in_one_line(name):
    data, says = ABSURD[name]
    with pytest.raises(BadFileError) as caught:
        model_from_gguf(parse_header(data, "f.gguf"))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", range(0, len(GOOD) - 32, 97))
def test_a_header_that_is_cut_off_says_so(end):
    with pytest.raises(TruncatedError):
        parse_header(GOOD[:end])


def reads(data):
    """Whether bytes are a model; anything but a failure of ours to say so is an error."""
    try:
        model = model_from_gguf(parse_header(data, "f.gguf", len(data) + 10**6))
        count(model)
    except TonnageError as error:
        assert "\n" not in str(error)
        return False
    return True


@given(st.binary(max_size=300))
@example(b"GGUF")
def test_any_bytes_are_refused_or_read(data):
    assert not reads(data) or data[:4] == b"GGUF"
    reads(b"GGUF\x03\0\0\0" + data)


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_header_is_refused_or_read(damage):
    data = bytearray(GOOD)
    for place, byte in damage:
        data[place] = byte
    reads(bytes(data))


NUMBERS = st.integers(0, 2**64 - 1) | st.integers(0, 300)


@given(
    st.dictionaries(
        st.sampled_from([key for key in llama()[0] if key != "general.architecture"] + ["llama.attention.key_length"]),
        NUMBERS | st.text(max_size=5) | st.booleans() | st.lists(st.integers(0, 2**32 - 1), max_size=5),
    )
)
def test_any_metadata_is_refused_or_read(values):
    metadata, tensors = llama()
    reads(header(metadata | values, tensors))


@given(st.text(max_size=60), st.none() | st.integers(0, 100))
def test_every_name_has_a_component(name, layers):
    assert component_of(name, layers or 10)
    assert component_of(f"blk.3.{name}", layers or 10)
