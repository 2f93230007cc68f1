"""Train models of random weights on this card, measure memory and step time, and set the predictions beside.

    python validation/device/train_probe.py [--out train_probe.jsonl] [--limit 420]
    python validation/device/train_probe.py --tiny      # small models on the processor: whether the script works

Nothing is downloaded: each model is a config of a known family, filled with random numbers. torch and transformers are
needed, peft for the adapters. Rows have the form of `data/measurements/training.jsonl`; a run makes one for each reading
of its memory (allocated, reserved, driver), the first with the step's time. `tonnage score train_probe.jsonl` reads them.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage.calibrate.rows import score_rows  # noqa: E402

GIB = 1 << 30
WARM_UP, STEPS = 2, 5
LORA_RANK = 16
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LLAMA = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 8192, "head_dim": 64, "vocab_size": 128256,
         "max_position_embeddings": 8192, "tie_word_embeddings": True}  # fmt: skip
QWEN = {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "intermediate_size": 3072, "head_dim": 128, "vocab_size": 151936,
        "max_position_embeddings": 8192, "tie_word_embeddings": True}  # fmt: skip
GPT = {"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20, "vocab_size": 50257, "n_positions": 2048}
GEMMA = {"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 4,
         "num_key_value_heads": 1, "intermediate_size": 6912, "head_dim": 256, "sliding_window": 512,
         "vocab_size": 262144, "max_position_embeddings": 8192}  # fmt: skip
MIXTRAL = {"model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
           "num_key_value_heads": 4, "intermediate_size": 2816, "num_local_experts": 8, "num_experts_per_tok": 2,
           "vocab_size": 32000, "max_position_embeddings": 8192, "tie_word_embeddings": False}  # fmt: skip
LARGE = LLAMA | {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336, "head_dim": 128,
                 "tie_word_embeddings": False}  # fmt: skip
# Name, config, kind, micro-batch, tokens, recomputation, attention.
CASES: tuple[tuple[str, dict[str, Any], str, int, int, bool, str], ...] = (
    ("llama 1.2B", LLAMA, "full_ft", 1, 2048, False, "sdpa"),
    ("llama 1.2B", LLAMA, "full_ft", 4, 2048, True, "sdpa"),
    ("llama 1.2B", LLAMA, "full_ft", 1, 2048, False, "eager"),
    ("llama 1.2B", LLAMA, "lora", 2, 2048, False, "sdpa"),
    ("llama 1.2B", LLAMA, "lora", 2, 8192, True, "sdpa"),
    ("qwen3 0.6B", QWEN, "full_ft", 2, 1024, False, "sdpa"),
    ("qwen3 0.6B", QWEN, "full_ft", 8, 1024, True, "sdpa"),
    ("qwen3 0.6B", QWEN, "lora", 4, 1024, False, "sdpa"),
    ("gpt2 large", GPT, "full_ft", 4, 1024, False, "sdpa"),
    ("gpt2 large", GPT, "full_ft", 4, 1024, False, "eager"),
    ("gpt2 large", GPT, "full_ft", 8, 1024, True, "sdpa"),
    ("gemma3 1B", GEMMA, "full_ft", 1, 2048, True, "sdpa"),
    ("gemma3 1B", GEMMA, "lora", 2, 1024, False, "sdpa"),
    ("mixtral 1.2B", MIXTRAL, "full_ft", 2, 2048, False, "sdpa"),
    ("mixtral 1.2B", MIXTRAL, "full_ft", 4, 2048, True, "sdpa"),
    ("llama 8B", LARGE, "lora", 1, 2048, True, "sdpa"),
    ("llama 8B", LARGE, "lora", 4, 4096, True, "sdpa"),
    ("llama 8B", LARGE, "full_ft", 1, 2048, True, "sdpa"),
)
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 128, "head_dim": 16, "vocab_size": 512}  # fmt: skip
TINY = (
    ("llama tiny", LLAMA | SMALL, "full_ft", 2, 64, False, "sdpa"),
    ("llama tiny", LLAMA | SMALL, "full_ft", 2, 64, True, "eager"),
    ("llama tiny", LLAMA | SMALL, "lora", 2, 64, False, "sdpa"),
    ("gpt2 tiny", GPT | {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512}, "full_ft", 2, 64, False, "sdpa"),
    ("mixtral tiny", MIXTRAL | SMALL | {"num_local_experts": 4}, "full_ft", 2, 64, False, "sdpa"),
)


def said(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def shape(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that tell a model's shape."""
    if config["model_type"] == "gpt2":
        width = config["n_embd"]
        return {"hidden": width, "layers": config["n_layer"], "heads": config["n_head"], "kv_heads": config["n_head"],
                "ffn": 4 * width, "vocab": config["vocab_size"], "tied_embeddings": True}  # fmt: skip
    told = {
        "hidden": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "kv_heads": config["num_key_value_heads"],
        "ffn": config["intermediate_size"],
        "vocab": config["vocab_size"],
        "tied_embeddings": bool(config.get("tie_word_embeddings", True)),
    }
    if experts := config.get("num_local_experts"):
        told |= {"experts": experts, "active_experts": config["num_experts_per_tok"], "moe_ffn": told["ffn"]}
    return told


def built(config: dict[str, Any], kind: str, attention: str, device: str, *, recomputes: bool) -> Any:
    """Return a model ready to train: random weights, adapters where asked for."""
    import torch
    import transformers

    told = transformers.AutoConfig.for_model(**config)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(told, dtype=torch.bfloat16, attn_implementation=attention)
    if recomputes:
        # transformers 5.24 has a new name for it
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable()
        model.config.use_cache = False
    if kind == "lora":
        import peft

        if recomputes:
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(r=LORA_RANK, target_modules=list(TARGETS), lora_dropout=0.0))
    return model.train()


def tensor_bytes(tensors: Iterator[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def trained(case: tuple[Any, ...], device: str) -> dict[str, float]:
    """Train a few steps; return the seconds of one and what was taken, bytes by reading."""
    import torch

    _, config, kind, micro_batch, seq_len, recomputes, attention = case
    is_cuda = device == "cuda"
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    model = built(config, kind, attention, device, recomputes=recomputes)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-5)
    tokens = torch.randint(0, config["vocab_size"], (micro_batch, seq_len), device=device)
    seconds = []
    for _ in range(WARM_UP + STEPS):
        if is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    states = tensor_bytes(t for one in optimizer.state.values() for t in one.values() if t.numel() > 1)
    found = {
        "seconds": statistics.median(seconds[WARM_UP:]),
        "states": float(tensor_bytes(model.parameters()) + tensor_bytes(iter(weights)) + states),
    }
    if is_cuda:
        free, total = torch.cuda.mem_get_info()
        found |= {
            "allocated": float(torch.cuda.max_memory_allocated()),
            "reserved": float(torch.cuda.max_memory_reserved()),
            "driver": float(total - free),
        }
    return found


def rows_of(case: tuple[Any, ...], found: dict[str, float] | None, card: dict[str, Any], version: str) -> list[dict[str, Any]]:  # fmt: skip
    """Return a run's rows, in the form of training.jsonl; without measurements it ran out of memory."""
    name, config, kind, micro_batch, seq_len, recomputes, attention = case
    label = f"{name.replace(' ', '-')}-{kind}-{micro_batch}x{seq_len}-{'full' if recomputes else 'none'}-{attention}"
    row: dict[str, Any] = {
        "id": f"train-probe-{label}",
        "trust": "A",
        "source": "this machine",
        "source_key": "this machine",
        "kind": kind,
        "model": f"{name}, random weights",
        **shape(config),
        **card,
        "precision": "bf16" if kind == "lora" else "bf16-true",
        "optimizer": "AdamW",
        "zero_stage": 0,
        "tp": 1, "pp": 1, "cp": 1, "dp": 1,
        "micro_batch": micro_batch,
        "grad_accum": 1,
        "global_batch_seqs": micro_batch,
        "seq_len": seq_len,
        "seq_len_kind": "fixed",
        "activation_checkpointing": "full" if recomputes else "none",
        "flash_attention": attention != "eager",
        "compile": False,
        "framework": "HF transformers",
        "framework_version": version,
        "is_moe": "num_local_experts" in config,
        "unit": f"this machine|{name}",
    }  # fmt: skip
    if kind == "lora":
        row |= {"lora_rank": LORA_RANK, "lora_targets": ",".join(TARGETS)}
    if found is None:
        return [told_beside(row | {"oom": True, "mem_quantity": "driver", "mem_rank": "any"})]
    rows = []
    readings = [reading for reading in ("allocated", "reserved", "driver") if reading in found]
    for reading in readings or [""]:
        one = row | {"id": f"{row['id']}-{reading}" if reading else row["id"], "oom": False}
        if reading:
            one |= {"peak_mem_gib": rounded(found[reading] / GIB), "mem_quantity": reading, "mem_rank": "any"}
        if not rows:
            one |= {"step_time_s": rounded(found["seconds"]), "states_gib": rounded(found["states"] / GIB)}
            one["tokens_per_s_per_gpu"] = rounded(micro_batch * seq_len / found["seconds"])
        rows.append(told_beside(one))
    return rows


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


def told_beside(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with what was predicted of it."""
    told = {one.metric: one for one in score_rows([row])}
    predicted = {metric: one.predicted for metric, one in told.items()}
    inside = {metric: one.is_inside for metric, one in told.items() if one.low is not None}
    return row | {
        "predicted": {k: rounded(v) if isinstance(v, float) else v for k, v in predicted.items()},
        "inside": inside,
    }


def card_here(*, is_tiny: bool) -> dict[str, Any]:
    """Return the fields of a row that name the card."""
    import torch

    if is_tiny or not torch.cuda.is_available():
        return {"gpu": "CPU only", "n_gpus": 1}
    total = torch.cuda.get_device_properties(0).total_memory
    return {"gpu": torch.cuda.get_device_name(), "gpu_mem_gb": round(total / GIB), "n_gpus": 1}


def probe(out: Path, limit: float, *, is_tiny: bool) -> list[dict[str, Any]]:
    """Train each case until the time is used; rows are written as they come."""
    import torch
    import transformers

    start = time.monotonic()
    card = card_here(is_tiny=is_tiny)
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"
    rows: list[dict[str, Any]] = []
    with out.open("w", encoding="utf-8") as file:
        for case in TINY if is_tiny else CASES:
            if time.monotonic() - start > limit:
                said(f"{case[0]}: no time left")
                break
            if case[2] == "lora" and importlib.util.find_spec("peft") is None:
                said(f"{case[0]}: peft is not here")
                continue
            found: dict[str, float] | None = None
            try:
                found = trained(case, "cpu" if is_tiny else "cuda")
            except torch.cuda.OutOfMemoryError:
                said(f"{case[0]}: out of memory")
            except Exception as error:  # noqa: BLE001  one model's failure is no reason to lose the others' rows
                said(f"{case[0]}: {type(error).__name__}: {str(error)[:300]}")
                continue
            finally:
                gc.collect()
                if not is_tiny:
                    torch.cuda.empty_cache()
            for row in rows_of(case, found, card, version):
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                show(row)
    return rows


def show(row: dict[str, Any]) -> None:
    for metric, told in row["predicted"].items():
        measured = row.get(metric)
        beside = f"  {100 * (told / measured - 1):+7.1f} %" if measured and told and metric != "oom" else ""
        print(f"{row['id']:66s} {metric:22s} {measured!s:>10} predicted {told!s:>10}{beside}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("train_probe.jsonl"))
    parser.add_argument("--limit", type=float, default=420.0, help="seconds; nothing new is started afterwards")
    parser.add_argument("--tiny", action="store_true", help="small models on the processor")
    arguments = parser.parse_args()
    import torch

    if not arguments.tiny and not torch.cuda.is_available():
        said("no card that torch can use: --tiny tries the script on the processor")
        sys.exit(4)
    rows = probe(arguments.out, arguments.limit, is_tiny=arguments.tiny)
    said(f"{len(rows)} rows in {arguments.out}: tonnage score {arguments.out} --worst 5")
    sys.exit(0 if rows else 4)


if __name__ == "__main__":
    main()
