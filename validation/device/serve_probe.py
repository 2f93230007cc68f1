"""Load models with random weights on this card, measure them, and set the predictions beside.

    python validation/device/serve_probe.py [--out probe.jsonl] [--engines transformers,vllm,llama.cpp] [--limit 420]
    python validation/device/serve_probe.py --tiny      # small models on the processor: whether the script works

Nothing is downloaded: each model is a config of a known family, filled with random numbers on the card. transformers is
needed; vLLM runs where it is installed (its dummy weights), llama.cpp where `llama-bench` is found and the `gguf`
package is installed. Each row has the form of `data/measurements/inference.jsonl`, with the model's config and what
was predicted: `tonnage score probe.jsonl` reads it, and `tonnage calibrate probe.jsonl` lets it teach later plans.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import inspect
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage.calibrate.rows import score_rows  # noqa: E402
from tonnage.engines.vllm.logs import read_log  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20
PROMPT, MADE = 1024, 64
REPEATS = 3
SHARE = 0.8  # of the free memory that a model's weights may take
LLAMA = {"model_type": "llama", "max_position_embeddings": 8192, "tie_word_embeddings": False, "vocab_size": 128256}
QWEN = {"model_type": "qwen3", "max_position_embeddings": 8192, "tie_word_embeddings": True, "head_dim": 128,
        "vocab_size": 151936}  # fmt: skip
MOE = {"model_type": "qwen3_moe", "max_position_embeddings": 8192, "tie_word_embeddings": False, "head_dim": 128,
       "vocab_size": 151936, "norm_topk_prob": True, "decoder_sparse_step": 1, "num_experts_per_tok": 8}  # fmt: skip
# Families by size; what does not fit this card is left out.
MODELS: dict[str, dict[str, Any]] = {
    "llama 1.2B": LLAMA | {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
                           "num_key_value_heads": 8, "intermediate_size": 8192, "head_dim": 64},
    "qwen3 1.7B": QWEN | {"hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
                          "num_key_value_heads": 8, "intermediate_size": 6144},
    "gemma3 1B": {"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 4,
                  "num_key_value_heads": 1, "intermediate_size": 6912, "head_dim": 256, "sliding_window": 512,
                  "vocab_size": 262144, "max_position_embeddings": 8192},
    "qwen3-moe 4B": MOE | {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
                           "num_key_value_heads": 4, "intermediate_size": 3072, "moe_intermediate_size": 768,
                           "num_experts": 64},
    "llama 8B": LLAMA | {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                         "num_key_value_heads": 8, "intermediate_size": 14336, "head_dim": 128},
    "qwen3-moe 30B": MOE | {"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
                            "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768,
                            "num_experts": 128},
}  # fmt: skip
TINY: dict[str, dict[str, Any]] = {
    "llama tiny": LLAMA | {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                           "intermediate_size": 128, "head_dim": 16, "vocab_size": 512},
    "gemma3 tiny": {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4,
                    "num_key_value_heads": 1, "intermediate_size": 128, "head_dim": 16, "sliding_window": 16,
                    "vocab_size": 512, "max_position_embeddings": 512},
    "qwen3-moe tiny": MOE | {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "intermediate_size": 128, "moe_intermediate_size": 32,
                             "num_experts": 8, "num_experts_per_tok": 2, "head_dim": 16, "vocab_size": 512},
}  # fmt: skip


def said(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def bytes_of(value: Any, seen: set[int] | None = None) -> int:
    """Return the bytes of every tensor that an object holds, each storage once."""
    import torch

    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        if value.data_ptr() in seen:
            return 0
        seen.add(value.data_ptr())
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(bytes_of(one, seen) for one in value.values())
    if isinstance(value, list | tuple):
        return sum(bytes_of(one, seen) for one in value)
    return sum(bytes_of(one, seen) for one in vars(value).values()) if hasattr(value, "__dict__") else 0


def median_seconds(work: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Return the median time of some repeats, after one that warms up."""
    work()
    wait()
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def measured_alone(config: dict[str, Any], device: str, prompt: int, made: int) -> dict[str, float]:
    """Load a model, read a prompt, make tokens one by one; return what was taken and how fast it was."""
    import torch
    import transformers

    is_cuda = device == "cuda"
    wait = torch.cuda.synchronize if is_cuda else lambda: None
    told = transformers.AutoConfig.for_model(**config)
    before = torch.cuda.memory_allocated() if is_cuda else 0
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(told, dtype=torch.bfloat16).eval()
    weights = torch.cuda.memory_allocated() - before if is_cuda else bytes_of(list(model.parameters()))
    # what the cache is called changed with transformers 5.24
    kept = "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"
    tokens = torch.randint(0, config["vocab_size"], (1, prompt), device=device)
    with torch.inference_mode():
        prefill = median_seconds(lambda: model(tokens, use_cache=True, logits_to_keep=1), wait)

        def decode() -> Any:
            out = model(tokens, use_cache=True, logits_to_keep=1)
            wait()
            start = time.perf_counter()
            for _ in range(made):
                step = out.logits[:, -1:].argmax(-1)
                out = model(step, **{kept: out[kept if kept in out else "past_key_values"]}, use_cache=True)
            wait()
            return time.perf_counter() - start, out[kept if kept in out else "past_key_values"]

        decode()
        runs = [decode() for _ in range(REPEATS)]
        cache = bytes_of(runs[-1][1])
    measured = {
        "weights_gib": weights / GIB,
        "kv_cache_gib": cache / GIB,
        "prefill_tps": prompt / prefill,
        "decode_tps_single": made / statistics.median(seconds for seconds, _ in runs),
    }
    if is_cuda:
        free, total = torch.cuda.mem_get_info()
        measured["total_used_mib"] = (total - free) / MIB
    return measured


def by_transformers(config: dict[str, Any], device: str, prompt: int, made: int) -> dict[str, float]:
    """Measure one model, and leave nothing of it on the card."""
    import torch

    try:
        return measured_alone(config, device, prompt, made)
    finally:
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


VLLM = """
import json, sys, time
from vllm import LLM, SamplingParams
folder, prompt, made = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
llm = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, max_model_len=prompt + made + 16,
          max_num_seqs=16, gpu_memory_utilization=0.9, enable_prefix_caching=False)
def run(made):
    ids = [[(7 * i + made) % 1000 + 5 for i in range(prompt)]]
    limits = SamplingParams(max_tokens=made, min_tokens=made, ignore_eos=True, detokenize=False)
    start = time.perf_counter()
    llm.generate([{"prompt_token_ids": one} for one in ids], limits, use_tqdm=False)
    return time.perf_counter() - start
run(1), run(made)
first = sorted(run(1) for _ in range(3))[1]
whole = sorted(run(made) for _ in range(3))[1]
print("PROBE " + json.dumps({"prefill_tps": prompt / first, "decode_tps_single": (made - 1) / (whole - first)}))
"""


def by_vllm(config: dict[str, Any], prompt: int, made: int, limit: float) -> dict[str, float]:
    """Start vLLM on dummy weights in a process of its own; its log tells the memory, the script the speeds."""
    with tempfile.TemporaryDirectory() as folder:
        architectures = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
                         "gemma3_text": "Gemma3ForCausalLM"}  # fmt: skip
        whole = config | {"architectures": [architectures[config["model_type"]]], "torch_dtype": "bfloat16"}
        (Path(folder) / "config.json").write_text(json.dumps(whole), encoding="utf-8")
        done = subprocess.run([sys.executable, "-c", VLLM, folder, str(prompt), str(made)], capture_output=True,
                              text=True, timeout=limit, check=False)  # fmt: skip
    log = done.stdout + done.stderr
    facts, line = read_log(log), next((line for line in log.splitlines() if line.startswith("PROBE ")), None)
    if line is None:
        raise RuntimeError(log.strip().splitlines()[-1] if log.strip() else "vLLM said nothing")
    measured = json.loads(line.removeprefix("PROBE "))
    for name, value in (("weights_gib", facts and facts.weights_bytes), ("kv_cache_gib", facts and facts.cache_bytes)):
        if value:
            measured[name] = value / GIB
    if facts and facts.cache_tokens:
        measured["kv_cache_tokens"] = facts.cache_tokens
    return measured


def write_gguf(path: Path, config: dict[str, Any]) -> None:
    """Write a llama of random q8_0 weights without a vocabulary."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(str(path), "llama")
    width, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    head, layers, inner, vocab = (
        config[n] for n in ("head_dim", "num_hidden_layers", "intermediate_size", "vocab_size")
    )
    writer.add_name("random llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("none")
    draw = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        blocks = draw.integers(-127, 127, (rows, columns // 32, 32), dtype=np.int8)
        scale = np.full((rows, columns // 32, 1), 1e-4, dtype=np.float16).view(np.int8).reshape(rows, columns // 32, 2)
        data = np.concatenate([scale, blocks], axis=2).reshape(rows, -1).view(np.uint8)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(width, dtype=np.float32))

    matrix("token_embd.weight", vocab, width)
    matrix("output.weight", vocab, width)
    norm("output_norm.weight")
    for index in range(layers):
        block = f"blk.{index}"
        matrix(f"{block}.attn_q.weight", heads * head, width)
        matrix(f"{block}.attn_k.weight", kv * head, width)
        matrix(f"{block}.attn_v.weight", kv * head, width)
        matrix(f"{block}.attn_output.weight", width, heads * head)
        matrix(f"{block}.ffn_gate.weight", inner, width)
        matrix(f"{block}.ffn_up.weight", inner, width)
        matrix(f"{block}.ffn_down.weight", width, inner)
        norm(f"{block}.attn_norm.weight")
        norm(f"{block}.ffn_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def by_llama_cpp(config: dict[str, Any], prompt: int, made: int, limit: float) -> dict[str, float]:
    """Let llama-bench time a file of random weights."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random-q8_0.gguf"
        write_gguf(path, config)
        done = subprocess.run(["llama-bench", "-m", str(path), "-p", str(prompt), "-n", str(made), "-o", "json"],
                              capture_output=True, text=True, timeout=limit, check=True)  # fmt: skip
    tests = json.loads(done.stdout)
    return {"prefill_tps" if one["n_prompt"] else "decode_tps_single": one["avg_ts"] for one in tests}


def row_of(engine: str, name: str, config: dict[str, Any], measured: dict[str, float], card: dict[str, Any], version: str,
           prompt: int, made: int) -> dict[str, Any]:  # fmt: skip
    """Return a row of inference.jsonl's form."""
    is_gguf, is_vllm = engine == "llama.cpp", engine == "vllm"
    row: dict[str, Any] = {
        "id": f"probe-{engine}-{name.replace(' ', '-')}-{prompt}",
        "tier": "B",
        "source": "this machine",
        "source_key": "this machine",
        "engine": engine,
        "engine_version": version,
        "model": f"{name}, random weights",
        "config": config,
        "quant": "Q8_0" if is_gguf else "bf16",
        "kv_dtype": "f16" if is_gguf else "bf16",
        **card,
        "batch": 1,
        "isl": prompt,
        "osl": made,
        "ctx": prompt + made + (16 if is_vllm else 0),
        "flash_attn": True,
        "is_moe": "num_experts" in config,
        "placement": "gpu" if card["n_gpus"] else "cpu",
        "unit": f"this machine|{name}",
        "oom": False,
        "settings": "llama-bench" if is_gguf else "",
        "measured": {key: float(f"{value:.6g}") for key, value in measured.items()},
    }
    if is_vllm:
        row |= {"gpu_memory_utilization": 0.9, "max_num_seqs": 16}
    told = {one.metric: one for one in score_rows([row]) if one.metric != "oom"}
    row["predicted"] = {metric: None if one.predicted is None else float(f"{one.predicted:.6g}") for metric, one in told.items()}  # fmt: skip
    row["inside"] = {metric: one.is_inside for metric, one in told.items()}
    return row


def engines_here(asked: str, *, is_tiny: bool) -> Iterator[tuple[str, str]]:
    """Yield each engine that is asked for and there, with its version."""
    from importlib.metadata import version

    for name in asked.split(","):
        if name == "llama.cpp":
            if shutil.which("llama-bench") and importlib.util.find_spec("gguf"):
                yield name, ""
            else:
                said("llama.cpp: llama-bench or the gguf package is not here")
        elif importlib.util.find_spec(name) is None or (is_tiny and name == "vllm"):
            said(f"{name}: not here")
        else:
            yield name, version(name)


def card_here(*, is_tiny: bool) -> tuple[dict[str, Any], float]:
    """Return the fields of a row that name the card, and its free bytes."""
    import torch

    if is_tiny or not torch.cuda.is_available():
        return {"gpu": "CPU only", "n_gpus": 0}, 0.0
    free, _ = torch.cuda.mem_get_info()
    return {"gpu": torch.cuda.get_device_name(), "n_gpus": 1}, float(free)


def measured_by(engine: str, config: dict[str, Any], *, is_tiny: bool, prompt: int, made: int, left: float) -> dict[str, float]:  # fmt: skip
    if engine == "transformers":
        return by_transformers(config, "cpu" if is_tiny else "cuda", prompt, made)
    return by_vllm(config, prompt, made, left) if engine == "vllm" else by_llama_cpp(config, prompt, made, left)


def probe(out: Path, asked: str, limit: float, *, is_tiny: bool) -> list[dict[str, Any]]:
    """Measure each model with each engine until the time is used; rows are written as they come."""
    from tonnage.estimate.parameters import count
    from tonnage.model.hf import model_from_config

    start = time.monotonic()
    card, free = card_here(is_tiny=is_tiny)
    prompt, made = (64, 8) if is_tiny else (PROMPT, MADE)
    rows: list[dict[str, Any]] = []
    with out.open("w", encoding="utf-8") as file:
        for engine, version in engines_here(asked, is_tiny=is_tiny):
            for name, config in (TINY if is_tiny else MODELS).items():
                left = limit - (time.monotonic() - start)
                if left < 20:
                    said(f"{engine} {name}: no time left")
                    continue
                if engine == "llama.cpp" and (config["model_type"] != "llama" or is_tiny):
                    continue
                if not is_tiny and 2.0 * count(model_from_config(config)).total > SHARE * free:
                    said(f"{engine} {name}: larger than this card")
                    continue
                try:
                    measured = measured_by(engine, config, is_tiny=is_tiny, prompt=prompt, made=made, left=left)
                except Exception as error:  # noqa: BLE001  one engine's failure is no reason to lose the others' rows
                    said(f"{engine} {name}: {type(error).__name__}: {str(error)[:300]}")
                    continue
                row = row_of(engine, name, config, measured, card, version, prompt, made)
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                show(row)
    return rows


def show(row: dict[str, Any]) -> None:
    for metric, value in row["measured"].items():
        told = row["predicted"].get(metric)
        beside = "not predicted" if told is None else f"predicted {told:10.4g}  {100 * (told / value - 1):+7.1f} %"
        print(f"{row['engine']:13s} {row['model'].partition(',')[0]:16s} {metric:18s} {value:10.4g}  {beside}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("probe.jsonl"))
    parser.add_argument("--engines", default="transformers,vllm,llama.cpp")
    parser.add_argument("--limit", type=float, default=420.0, help="seconds; nothing new is started afterwards")
    parser.add_argument("--tiny", action="store_true", help="small models on the processor")
    arguments = parser.parse_args()
    rows = probe(arguments.out, arguments.engines, arguments.limit, is_tiny=arguments.tiny)
    said(f"{len(rows)} rows in {arguments.out}: tonnage score {arguments.out} --worst 5")
    sys.exit(0 if rows else 4)


if __name__ == "__main__":
    main()
