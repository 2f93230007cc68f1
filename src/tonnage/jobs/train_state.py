"""What a training is made of, as pieces and plain values, whichever engine runs it: single, DDP, FSDP2, ZeRO-1 to 3.

All engines write the same keys, so that a checkpoint of one can be loaded by another and by any number of ranks:
`model/<parameter>` in the precision that the optimizer updates (the master copy under DeepSpeed), and
`optimizer/<state>/<parameter>`. Frozen parameters are not written: they come from where the model comes from.

DeepSpeed's fragments as in deepspeed 0.19.8 utils/tensor_fragment.py, runtime/zero/stage_1_and_2.py, stage3.py.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from train_pieces import BadCheckpointError, Entry, Piece

MODEL, OPTIMIZER = "model", "optimizer"


def _flat(tensor: torch.Tensor, key: str) -> torch.Tensor:
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        raise BadCheckpointError(f"{key}: is not contiguous in memory, and cannot be saved in pieces")
    return tensor.view(-1)


def _local(key: str, tensor: torch.Tensor, *, is_written: bool | None = None) -> Piece | None:
    """Return what this rank holds of a tensor; to write it, None where another rank writes it."""
    if not _is_sharded(tensor):
        data = _flat(tensor, key)
        return None if is_written is False else Piece(key=key, shape=tuple(tensor.shape), start=0, data=data)
    from torch.distributed.tensor import Replicate, Shard  # noqa: PLC0415  only where sharded
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset  # noqa: PLC0415

    mesh, placements = tensor.device_mesh, tensor.placements
    if any(not isinstance(one, Replicate) and one != Shard(0) for one in placements):
        raise BadCheckpointError(
            f"{key}: is sharded along {placements}; only the first dimension can be saved in pieces"
        )
    copies = [at for at, one in zip(mesh.get_coordinate(), placements, strict=True) if isinstance(one, Replicate)]
    if any(copies) and is_written is not None:
        return None
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    data = _flat(tensor.to_local(), key)
    if data.numel() != int(np.prod(shape)):
        raise BadCheckpointError(f"{key}: holds {data.numel()} elements where {shape} was expected")
    row = int(np.prod(tensor.shape[1:])) if tensor.dim() else 1
    return Piece(key=key, shape=tuple(tensor.shape), start=int(offset[0]) * row if offset else 0, data=data)


def _is_sharded(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "to_local")


class TorchState:
    """A model and a torch optimizer: one process, DDP or FSDP2."""

    def __init__(self, model: nn.Module, optimizer: Any, *, rank: int, world_size: int) -> None:
        self.model, self.rank, self.world_size = model, rank, world_size
        self.optimizer = getattr(optimizer, "optimizer", optimizer)
        self.parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self.has_frozen = any(not one.requires_grad for one in model.parameters())

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self.parameters.items():
            yield f"{MODEL}/{name}", parameter
        if not self.has_frozen:
            kept = self.model.state_dict().keys()
            for name, buffer in self.model.named_buffers():
                if name in kept:
                    yield f"{MODEL}/{name}", buffer

    def to_save(self) -> list[Piece]:
        """Return the pieces that this rank writes; tensors that all ranks hold are shared out."""
        tensors = list(self._tensors())
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if torch.is_tensor(value) and key != "step":
                    tensors.append((f"{OPTIMIZER}/{key}/{name}", value))
        found = (
            _local(key, tensor, is_written=number % self.world_size == self.rank)
            for number, (key, tensor) in enumerate(tensors)
        )
        return [piece for piece in found if piece is not None and (piece.data.numel() or piece.start == 0)]

    def to_fill(self, entries: dict[str, Entry]) -> list[Piece]:
        """Return the pieces that this rank needs, its optimizer's states made ready."""
        tensors = list(self._tensors())
        self.optimizer.state.clear()
        names = {}
        for key in entries:
            if key.startswith(f"{OPTIMIZER}/"):
                _, state, name = key.split("/", 2)
                names.setdefault(name, []).append(state)
        for name, parameter in self.parameters.items():
            for state in names.get(name, ()):
                key = f"{OPTIMIZER}/{state}/{name}"
                value = self._empty_state(parameter, entries[key])
                self.optimizer.state[parameter][state] = value
                tensors.append((key, value))
        pieces = [_local(key, tensor) for key, tensor in tensors]
        return [piece for piece in pieces if piece is not None]

    def _empty_state(self, parameter: torch.Tensor, entry: Entry) -> torch.Tensor:
        if entry.shape == tuple(parameter.shape):
            return torch.zeros_like(parameter, dtype=entry.dtype, requires_grad=False)
        return torch.zeros(entry.shape, dtype=entry.dtype, device=parameter.device)

    def values(self) -> dict[str, Any]:
        """Return what is not a tensor: steps, rates and the like."""
        steps, others = {}, {}
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if key == "step":
                    steps[name] = float(value)
                elif not torch.is_tensor(value):
                    others.setdefault(name, {})[key] = value
        usual = max(steps.values(), default=0.0)
        counts = [state["step"] for state in self.optimizer.state.values() if "step" in state]
        return {
            "step": usual,
            "has_tensor_step": all(torch.is_tensor(count) for count in counts),
            "step_of": {name: step for name, step in steps.items() if step != usual},
            "states": others,
            "groups": [_plain_group(group) for group in self.optimizer.param_groups],
        }

    def set_values(self, values: dict[str, Any]) -> None:
        """Put them back."""
        for group, saved in zip(self.optimizer.param_groups, values["groups"], strict=False):
            group.update(_typed_group(group, saved))
        groups = {id(one): group for group in self.optimizer.param_groups for one in group["params"]}
        for name, parameter in self.parameters.items():
            state = self.optimizer.state.get(parameter)
            if not state:
                continue
            group = groups.get(id(parameter), {})
            on_device = group.get("fused") or group.get("capturable")
            step = torch.tensor(
                values["step_of"].get(name, values["step"]), dtype=torch.float32,
                device=parameter.device if on_device else "cpu",
            )  # fmt: skip
            if values["step"]:
                state["step"] = step if values.get("has_tensor_step", True) else int(step)
            state.update(values["states"].get(name, {}))

    def finish(self) -> None:
        """Do what must follow when the pieces are filled."""


def _plain_group(group: dict[str, Any]) -> dict[str, Any]:
    values = {}
    for key, value in group.items():
        if key == "params":
            continue
        if torch.is_tensor(value):
            values[key] = float(value)
        elif isinstance(value, (int, float, str, bool, list, tuple, type(None))):
            values[key] = value
    return values


def _typed_group(group: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    # How a step is computed (fused, foreach) belongs to the machine, not to the training.
    kept = {key: value for key, value in saved.items() if key not in ("fused", "foreach", "capturable")}
    for key, value in kept.items():
        if isinstance(group.get(key), tuple):
            kept[key] = tuple(value)
        elif torch.is_tensor(group.get(key)):
            kept[key] = torch.tensor(value, dtype=group[key].dtype, device=group[key].device)
    return kept


class ZeroState:
    """A DeepSpeed engine with ZeRO 1, 2 or 3."""

    def __init__(self, model: nn.Module, engine: Any, *, rank: int, world_size: int) -> None:
        self.model, self.engine, self.rank, self.world_size = model, engine, rank, world_size
        self.zero = engine.optimizer
        self.inner = getattr(self.zero, "optimizer", self.zero)
        self.stage = engine.zero_optimization_stage()
        self.parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
        if self.stage in (1, 2) and not hasattr(next(iter(self.parameters.values())), "_hp_mapping"):
            raise BadCheckpointError("this DeepSpeed keeps no map of its master weights; deepspeed 0.19 does")

    def _flat_partitions(self) -> list[torch.Tensor]:
        if self.stage == 3:
            return list(self.zero.fp32_partitioned_groups_flat)
        return list(self.zero.single_partition_of_fp32_groups)

    def _states(self) -> list[str]:
        names: dict[str, None] = {}
        for flat in self._flat_partitions():
            for key, value in self.inner.state.get(flat, {}).items():
                if torch.is_tensor(value) and value.dim() == 1:  # empty while it lies on a drive
                    names[key] = None
        return list(names)

    def _pieces(self, states: list[str]) -> list[Piece]:
        return [
            piece
            for name, parameter in self.parameters.items()
            for state in [None, *states]
            if (piece := self._piece(name, parameter, state)) is not None
        ]

    def _piece(self, name: str, parameter: Any, state: str | None) -> Piece | None:
        key = f"{MODEL}/{name}" if state is None else f"{OPTIMIZER}/{state}/{name}"
        if self.stage == 3:
            return self._third_stage_piece(key, parameter, state)
        fragment = parameter._hp_mapping  # noqa: SLF001  there is no other way to the local part
        if fragment is None:
            return None
        if state is None:
            data = fragment.hp_fragment
        else:
            # Not `optim_fragment`: with several groups of parameters it is linked before the later ones have states.
            flat = self.zero.single_partition_of_fp32_groups[fragment.param_group_index]
            address = fragment.hp_fragment_address
            data = self.inner.state[flat][state].narrow(0, address.start, address.numel)
        shape = tuple(parameter.shape)
        return Piece(key=key, shape=shape, start=fragment.lp_fragment_address.start, data=data.detach().view(-1))

    def _third_stage_piece(self, key: str, parameter: Any, state: str | None) -> Piece | None:
        from deepspeed.utils import (  # noqa: PLC0415  only where DeepSpeed runs
            safe_get_local_fp32_param,
            safe_get_local_optimizer_state,
            safe_set_local_fp32_param,
            safe_set_local_optimizer_state,
        )

        whole = (
            safe_get_local_fp32_param(parameter) if state is None else safe_get_local_optimizer_state(parameter, state)
        )
        start = whole.numel() * self.rank
        num_real = max(0, min(whole.numel(), parameter.ds_numel - start))  # the last ranks hold filling
        if not num_real:
            return None
        whole = whole.detach().clone()

        def put(_filled: torch.Tensor) -> None:
            if state is None:
                safe_set_local_fp32_param(parameter, whole)
                parameter.ds_tensor.data.copy_(whole)
            else:
                safe_set_local_optimizer_state(parameter, whole, state)

        shape = tuple(parameter.ds_shape)
        return Piece(key=key, shape=shape, start=start, data=whole.view(-1)[:num_real], put=put)

    def to_save(self) -> list[Piece]:
        """Return the pieces that this rank writes."""
        return self._pieces(self._states())

    def to_fill(self, entries: dict[str, Entry]) -> list[Piece]:
        """Return the pieces that this rank needs, its optimizer's states made ready."""
        states = sorted({key.split("/", 2)[1] for key in entries if key.startswith(f"{OPTIMIZER}/")})
        for flat in self._flat_partitions():
            held = self.inner.state[flat]
            held.update({one: torch.zeros_like(flat, requires_grad=False) for one in states if one not in held})
        pieces = self._pieces(states)
        if self.stage != 3:
            # The copy that computes is whole on every rank, and follows its master.
            for name, parameter in self.parameters.items():
                master = entries[f"{MODEL}/{name}"].dtype if f"{MODEL}/{name}" in entries else parameter.dtype
                whole = torch.empty(parameter.numel(), dtype=master)
                pieces.append(
                    Piece(
                        key=f"{MODEL}/{name}", shape=tuple(parameter.shape), start=0, data=whole,
                        put=lambda filled, parameter=parameter: parameter.data.copy_(filled.view(parameter.shape)),
                    )
                )  # fmt: skip
        return pieces

    def values(self) -> dict[str, Any]:
        """Return what is not a tensor: steps, rates, counters and the scale of the loss."""
        steps = [
            float(self.inner.state[flat]["step"])
            for flat in self._flat_partitions()
            if "step" in self.inner.state.get(flat, {})
        ]
        scaler = getattr(self.zero, "loss_scaler", None)
        return {
            "step": max(steps, default=0.0),
            "step_of": {},
            "states": {},
            "groups": [_plain_group(group) for group in self.inner.param_groups],
            "counters": {name: getattr(self.engine, name) for name in COUNTERS},
            "loss_scaler": {key: value for key, value in vars(scaler).items() if isinstance(value, (int, float, bool))}
            if scaler is not None
            else {},
        }

    def set_values(self, values: dict[str, Any]) -> None:
        """Put them back."""
        for group, saved in zip(self.inner.param_groups, values["groups"], strict=False):
            group.update(_typed_group(group, saved))
        if values["step"]:
            for flat in self._flat_partitions():
                old = self.inner.state[flat].get("step")
                is_number = isinstance(old, int) or type(self.inner).__name__ == "DeepSpeedCPUAdam"
                self.inner.state[flat]["step"] = (
                    int(values["step"]) if is_number else torch.tensor(values["step"], dtype=torch.float32)
                )
        for name, value in values.get("counters", {}).items():
            setattr(self.engine, name, value)
        scaler = getattr(self.zero, "loss_scaler", None)
        for key, value in values.get("loss_scaler", {}).items():
            setattr(scaler, key, value)

    def finish(self) -> None:
        """Gather anew what ZeRO-3 keeps whole on every rank."""
        kept = getattr(self.zero, "persistent_parameters", ())
        if self.stage == 3 and len(kept) > 0:
            kept[0].partition(kept)
            kept[0].all_gather(kept)


COUNTERS = ("global_steps", "global_samples", "micro_steps", "skipped_steps")


def random_state() -> dict[str, Any]:
    """Return the state of every source of random numbers of this process, as plain values."""
    version, numbers, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002  the state that libraries draw from
    state: dict[str, Any] = {
        "python": [version, list(numbers), gauss],
        "numpy": [name, [int(key) for key in keys], int(position), int(has_gauss), float(cached)],
        "torch": _text(torch.get_rng_state()),
    }
    if torch.cuda.is_available():
        state["cuda"] = _text(torch.cuda.get_rng_state())
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Put it back."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(_tensor(state["torch"]))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(_tensor(state["cuda"]))


def _text(tensor: torch.Tensor) -> str:
    return base64.b64encode(tensor.numpy().tobytes()).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8).clone()
