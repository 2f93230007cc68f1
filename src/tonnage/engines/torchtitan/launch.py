"""Candidate -> torchtitan's trainer with a recipe of its own, and the plan's numbers on the command line.

As in torchtitan 0.3.0: a configuration is a Python function (`--module`, `--config`: torchtitan/config/manager.py),
its fields are flags (torchtitan/config/configs.py), activation checkpointing is a subcommand that comes last
(torchtitan/distributed/activation_checkpoint.py). The recipe names what no flag can: flavour, loss, converters.
"""

from __future__ import annotations

from typing import Final

from tonnage import datafiles
from tonnage.engines.elastic import num_accumulation_steps, num_steps, torchrun_words, training_of
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate, Recompute
from tonnage.workload.types import TrainingKind

__all__ = ["RECIPE", "flavour_of", "launch"]

RECIPE: Final = "plan_recipe"
_STEPS_WITHOUT_END: Final = 1000  # torchtitan counts steps, not passes over the data
_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16"}
_RECOMPUTE: Final = {Recompute.NONE: "none", Recompute.SELECTIVE: "selective", Recompute.FULL: "full"}


def flavour_of(name: str) -> tuple[str, str, str] | None:
    """Return module, recipe and flavour of a model, or None: torchtitan builds the models that it lists.

    >>> flavour_of("Qwen/Qwen3-8B")
    ('qwen3', 'qwen3_14b', '8B')
    """
    for row in datafiles.table("engines/torchtitan.toml")["flavour"]:
        if name in row["models"]:
            return row["module"], row["recipe"], row["name"]
    return None


def recipe_text(candidate: Candidate) -> str:
    """Return the recipe: a module with one function."""
    module, recipe, flavour = flavour_of(candidate.model.name) or ("", "", "")
    is_fp8 = candidate.precision.compute == "fp8"
    converter = "Float8LinearConverter.Config(model_compile_enabled=config.compile.enable)"
    has_chunks = candidate.settings.has_fused_loss
    lines = [
        '"""The plan as a recipe of torchtitan 0.3.0: what no flag can name."""',
        "",
        "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss",
        *(["from torchtitan.components.quantization import Float8LinearConverter"] if is_fp8 else []),
        "from torchtitan.models.common.config_utils import decoder_vocab_size",
        f"from torchtitan.models.{module} import model_registry",
        f"from torchtitan.models.{module}.config_registry import {recipe} as recipe",
        "",
        "",
        "def plan():",
        "    config = recipe()",
        f"    config.model_spec = model_registry({flavour!r}{f', converters=[{converter}]' if is_fp8 else ''})",
        "    loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))",
        f"    config.loss = {'ChunkedLossWrapper.Config(loss_fn=loss)' if has_chunks else 'loss'}",
        "    return config",
    ]
    return "\n".join(lines) + "\n"


def _parallelism(candidate: Candidate) -> list[str]:
    layout = candidate.layout
    words = [
        "--parallelism.data_parallel_shard_degree", str(layout.dp if layout.zero_stage else 1),
        "--parallelism.data_parallel_replicate_degree", str(1 if layout.zero_stage else layout.dp),
        "--parallelism.fsdp_reshard_after_forward", "never" if layout.zero_stage == 2 else "default",
        "--parallelism.tensor_parallel_degree", str(layout.tp),
        "--parallelism.context_parallel_degree", str(layout.cp),
        "--parallelism.expert_parallel_degree", str(layout.ep),
        "--parallelism.pipeline_parallel_degree", str(layout.pp),
    ]  # fmt: skip
    if layout.tp > 1 and not layout.has_sequence_parallel:
        words.append("--parallelism.no-enable_sequence_parallel")
    if layout.pp == 1:
        return words
    layers, per_rank = candidate.model.num_layers, layout.num_virtual_stages
    first, last = (layers_less(candidate, ends) for ends in (layout.first_stage_layers, layout.last_stage_layers))
    words += [
        "--parallelism.pipeline_parallel_schedule", "1F1B" if per_rank == 1 else "Interleaved1F1B",
        "--parallelism.pipeline_parallel_microbatch_size", str(candidate.micro_batch_size),
        "--parallelism.pipeline_parallel_first_stage_less_layers", str(first),
        "--parallelism.pipeline_parallel_last_stage_less_layers", str(last),
        "--parallelism.pipeline_parallel_layers_per_stage", str(-(-(layers + first + last) // (layout.pp * per_rank))),
    ]  # fmt: skip
    return words


def layers_less(candidate: Candidate, ends: int | None) -> int:
    """Return how many layers an end of the pipeline holds less than a stage between."""
    layout = candidate.layout
    if ends is None:
        return 0
    held = (layout.first_stage_layers or ends) + (layout.last_stage_layers or ends)
    between = -(-(candidate.model.num_layers - held) // max(layout.pp - 2, 1))
    return max(0, between - ends)


def launch(candidate: Candidate) -> Launch:
    """Return the command line and the recipe."""
    workload, layout = training_of(candidate), candidate.layout
    micro = candidate.micro_batch_size
    in_pipeline = micro * num_accumulation_steps(candidate) if layout.pp > 1 else micro
    argv = [
        *torchrun_words(candidate), "-m", "torchtitan.train", "--module", RECIPE, "--config", "plan",
        "--hf_assets_path", "assets",
        "--dump_folder", "run",
        "--training.local_batch_size", str(in_pipeline),
        "--training.global_batch_size", str(workload.global_batch_size),
        "--training.seq_len", str(workload.seq_len),
        "--training.steps", str(num_steps(candidate) or _STEPS_WITHOUT_END),
        "--training.dtype", _DTYPES.get(candidate.precision.weights, "float32"),
        "--training.mixed_precision_param", "float32" if candidate.precision.compute == "fp32" else "bfloat16",
        "--training.disable_cuda_graphs",
        *_parallelism(candidate),
        *(["--training.enable_cpu_offload"] if candidate.offload.parameters else []),
        "--compile.enable" if candidate.settings.has_compile else "--compile.no-enable",
        "--optimizer.implementation", "fused_opt_states_bf16" if candidate.optimizer == "adamw_bf16" else "fused",
        "--checkpoint.enable",
        "--checkpoint.interval", "500",
        *(["--checkpoint.initial_load_in_hf"] if workload.kind is TrainingKind.FULL else []),
        f"activation-checkpoint:{_RECOMPUTE[candidate.recompute]}",
    ]  # fmt: skip
    return Launch(argv=tuple(argv), files={f"{RECIPE}.py": recipe_text(candidate)})
