"""Activations of one sample of a dense model of a hundred billion parameters, by length and recomputation."""

from __future__ import annotations

import pytest

from tonnage.estimate.compose_training import TrainingCase, software, training_columns
from tonnage.estimate.compose_training.solve import largest
from tonnage.hardware.catalogue import device
from tonnage.model import catalogue
from tonnage.workload.precision import Precision
from tonnage.workload.types import TrainingKind

NAME = "mistralai/Mistral-Large-Instruct-2407"
LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
WAYS = {  # software, fused attention, recomputation
    "Megatron, eager attention": ("megatron", False, 0),
    "Megatron": ("megatron", True, 0),
    "Megatron, eager, selective": ("megatron", False, 1),
    "Transformers": ("transformers", True, 0),
    "full recomputation": ("megatron", True, 2),
}


def activation_gb(name: str, has_flash: bool, mode: int, length: int, **split: int) -> float:
    """Return the GB that the layers keep of one sequence of a 16-bit run on one device, logits aside."""
    case = TrainingCase(
        model=catalogue.find(NAME),
        kind=TrainingKind.PRETRAIN,
        device=device("h200-sxm5"),
        software=software(name),
        precision=Precision(),
        has_flash_attention=has_flash,
        has_fused_loss=True,
    )
    # Many micro-batches, offloaded states: the start of backward is the fullest moment, which holds all activations.
    columns = {"seq_len": length, "recompute": mode, "num_micro_batches": 2, "offload_optimizer": 1, **split}
    pools = training_columns(case, columns, quantity="allocated").pools
    scores = 0.0 if mode else pools["attention_scores"]  # recomputed scores are one layer's, and no sample's
    return float(pools["activations"] + scores) / 1e9


def test_activations_of_one_sample(golden):
    table = {length: [activation_gb(*way, length) for way in WAYS.values()] for length in LENGTHS}
    model = catalogue.find(NAME)
    lines = [
        f"Activations that the {model.num_layers} layers of {NAME} (123 billion parameters, 16 bit) keep of one sample, in GB",
        "",
        f"| tokens | {' | '.join(WAYS)} |",
        f"|--:{'|--:' * len(WAYS)}|",
        *(
            f"| {length:,} | {' | '.join(f'{gb:,.0f}' if gb >= 10 else f'{gb:.1f}' for gb in row)} |"
            for length, row in table.items()
        ),
        "",
    ]
    for way, settings in WAYS.items():
        first = largest(lambda n, at=settings: activation_gb(*at, n) < 10) + 1
        last = largest(lambda n, at=settings: activation_gb(*at, n) < 100)
        lines.append(f"- {way}: tens of GB (10 to 100) from {first:,} to {last:,} tokens.")
    lines += ["", "Tensor parallelism with sequence parallelism divides all of these by the number of its ranks."]
    golden("activations.md", "\n".join(lines) + "\n")
    for row in table.values():
        assert row[0] > row[2] > row[-1]  # none, selective, full
        assert row[0] > row[1] > row[-1]
    assert table[8192][-1] > 10 > table[4096][-1]  # a few GB only at short lengths, and with full recomputation
    assert table[4096][1] > 100  # without recomputation tens of GB are less than a sample of 4096 tokens keeps


def test_each_tensor_parallel_rank_keeps_its_share():
    one, eight = (activation_gb("megatron", True, 0, 8192, tp=tp, has_sequence_parallel=int(tp > 1)) for tp in (1, 8))
    assert eight == pytest.approx(one / 8, rel=1e-6)


def test_full_recomputation_keeps_a_few_gb_and_everything_is_linear_without_scores():
    model = catalogue.find(NAME)
    by_hand = 2 * model.hidden_size * model.num_layers  # bytes a token: the input of each layer
    for length in LENGTHS:
        kept = activation_gb("megatron", True, 2, length)
        assert kept == pytest.approx(by_hand * length / 1e9, rel=1e-6)
        assert activation_gb("megatron", True, 0, length) == pytest.approx(
            activation_gb("megatron", True, 0, 4096) * length / 4096, rel=1e-6
        )


def test_the_paper_on_recomputation_by_hand():
    """arXiv:2205.05198, equation 1, GPT-3: 34 bytes an element and 5 a pair without recomputation, 2 with all of it."""
    s, h, a, layers = 2048, 12288, 96, 96
    case = TrainingCase(
        model=catalogue.find("openai/GPT-3-175B"),
        kind=TrainingKind.PRETRAIN,
        device=device("a100-sxm4-80gb"),
        software=software("megatron"),
        precision=Precision(),
        has_flash_attention=False,
        has_dropout=True,
    )
    columns = {"seq_len": s, "num_micro_batches": 2, "offload_optimizer": 1}
    pools = training_columns(case, columns, quantity="allocated").pools
    by_hand = s * h * layers * (34 + 5 * a * s / h)
    assert by_hand == pytest.approx(275.4e9, rel=0.01)
    assert pools["activations"] + pools["attention_scores"] == pytest.approx(by_hand, rel=0.08)
