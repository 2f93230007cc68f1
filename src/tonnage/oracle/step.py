"""Run one training step of a job on fake tensors, and note what it allocates."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tonnage.errors import RequestError, TonnageError
from tonnage.oracle import flash
from tonnage.oracle.adapters import adapt
from tonnage.oracle.ledger import Ledger
from tonnage.oracle.model import build, configuration, keep_layers, kinds_of, layers_of, recompute_layers
from tonnage.oracle.timeline import FIRST_LAYER, FORWARD, HEAD_BACKWARD, INNER_LAYERS, LAST_LAYER, REST, STEP
from tonnage.oracle.types import Job, Timeline
from tonnage.workload.types import TrainingKind

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@contextmanager
def _refusing(model_type: str) -> Iterator[None]:
    """Say in one line that a family's code does not run on tensors without data."""
    try:
        yield
    except TonnageError:
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise RequestError(
            f"the code of {model_type} does not run on tensors without data ({type(error).__name__}: {text})"[:300],
            where="--oracle",
            fix="leave --oracle out where formulae know the family",
        ) from error


def kinds_of_job(job: Job) -> list[Hashable]:
    """Return the kinds of the layers of the job's model, in order."""
    config = configuration(job.config)
    with _refusing(config.model_type), FakeTensorMode():
        number = config.get_text_config().num_hidden_layers
        holder, name = layers_of(build(config, job, _attention(job)), number)
        return kinds_of(getattr(holder, name))


def run(job: Job, chosen: Sequence[int] | None = None) -> Timeline:
    """Run a step twice, so that the second finds the optimizer's states; `chosen` layers, or all."""
    config = configuration(job.config)
    number = config.get_text_config().num_hidden_layers
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with _refusing(config.model_type), mode, _gpu_dropout(), torch.random.fork_rng(devices=[]):
        model = build(config, job, _attention(job))
        if chosen is not None and len(chosen) < number:
            keep_layers(model, chosen, number)
        layers = getattr(*layers_of(model, number if chosen is None else len(chosen)))
        if job.kind in (TrainingKind.LORA, TrainingKind.QLORA):
            adapt(model, job)
        if job.recomputes:
            recompute_layers(model)
        return _steps(job, model, layers)


def _attention(job: Job) -> str:
    return flash.register() if job.attention == "flash" else job.attention


@contextmanager
def _gpu_dropout() -> Iterator[None]:
    """Let dropout keep a mask of one byte, as its CUDA kernel does, not one of the input's type."""
    original = torch.nn.functional.dropout

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        return torch.native_dropout(input, p, True)[0] if training and p > 0 else original(input, p, training, inplace)

    torch.nn.functional.dropout = dropout
    try:
        yield
    finally:
        torch.nn.functional.dropout = original


def _watch(ledger: Ledger, layers: Sequence[torch.nn.Module], model: Any) -> None:
    """Mark where forward reaches the head, and where backward reaches a layer."""

    def reached(name: str) -> Callable[[Any], None]:
        def mark(_: Any) -> None:
            ledger.mark(name)

        return mark

    def after(name: str) -> Callable[..., None]:
        def hook(_: Any, __: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(reached(name))

        return hook

    def before(_: Any, args: Any, kwargs: Any) -> None:
        tensor = args[0] if args else kwargs.get("hidden_states")
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            tensor.register_hook(reached(REST))

    def head(_: Any, __: Any) -> None:
        ledger.pool = "logits"

    last = len(layers) - 1
    for index, layer in enumerate(layers):
        inner = INNER_LAYERS if index == last - 1 else ""
        name = FIRST_LAYER if index == 0 else LAST_LAYER if index == last else inner
        if name:
            layer.register_forward_hook(after(name))
    layers[0].register_forward_pre_hook(before, with_kwargs=True)
    found = model.get_output_embeddings()
    if found is not None:
        found.register_forward_pre_hook(head)


def _steps(job: Job, model: Any, layers: Sequence[torch.nn.Module]) -> Timeline:
    tokens = torch.zeros((job.micro_batch_size, job.seq_len), dtype=torch.long)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = _optimizer(job, trained)
    flash.Calls.number = 0
    ledger = Ledger()
    _watch(ledger, layers, model)
    ledger.name(model.parameters(), "weights")
    ledger.name(model.buffers(), "buffers")
    ledger.name([tokens], "buffers")
    cast: AbstractContextManager[Any] = (
        torch.autocast("cpu", dtype=_DTYPES[job.compute]) if job.compute != job.weights else nullcontext()
    )
    was_collecting = gc.isenabled()
    gc.disable()  # when it would run says nothing of the model
    try:
        with ledger:
            for _ in range(1 if optimizer is None else 2):
                ledger.mark(FORWARD)
                ledger.pool = "activations"
                with cast:
                    loss = _loss(job, model, tokens)
                ledger.pool = None
                ledger.mark(HEAD_BACKWARD)
                loss.backward()
                del loss
                ledger.name([p.grad for p in trained if p.grad is not None], "gradients")
                if optimizer is None:
                    continue
                ledger.mark(STEP)
                optimizer.step()
                states = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
                ledger.name(states, "optimizer_states")
                del states
                optimizer.zero_grad(set_to_none=True)
    finally:
        if was_collecting:
            gc.enable()
    attention = job.attention if job.attention != "flash" or flash.Calls.number else "eager"
    return ledger.timeline(
        attention=attention,
        num_parameters=sum(p.numel() for p in model.parameters()),
        num_trained_parameters=sum(p.numel() for p in trained),
    )


def _loss(job: Job, model: Any, tokens: torch.Tensor) -> torch.Tensor:
    if job.trains_with_loss:
        return model(input_ids=tokens, labels=tokens).loss
    return model(input_ids=tokens).logits.sum()


def _optimizer(job: Job, trained: list[torch.nn.Parameter]) -> torch.optim.Optimizer | None:
    if job.step == "none":
        return None
    if job.step == "sgd":
        return torch.optim.SGD(trained, lr=1e-3, foreach=True)
    is_fused = job.step == "adamw_fused"
    return torch.optim.AdamW(trained, lr=1e-3, foreach=not is_fused, fused=is_fused)
