"""Pins: the fields of a candidate that a person may fix, each with the flag that fixes it and the values it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tonnage.errors import RequestError, UnknownNameError
from tonnage.estimate.types import Candidate
from tonnage.model.types import Model
from tonnage.nouns import noun
from tonnage.plan.types import Scalar
from tonnage.workload.optimizers import OPTIMIZERS

OWN: Final = "own"  # of the weights or the cache: as the checkpoint has it
_LARGEST_COUNT: Final = 10**9
_LONGEST_TEXT: Final = 200


@noun
class Pin:
    """One field: its path in `Candidate`, its flag if it has one of its own, and what it takes."""

    path: str
    kind: str  # count, natural, layers, ratio, switch, choice, weights, cache
    flag: str = ""
    choices: tuple[str, ...] = ()
    largest: int = _LARGEST_COUNT


_RECOMPUTE: Final = ("none", "selective", "full")
_FROZEN_ONLY: Final = ("gptq_int4", "gptq_int8")
_COMPUTE: Final = ("bf16", "fp16", "fp8", "fp32")
_TABLE: Final = (
    Pin(path="layout.tp", kind="count", flag="--tp"),
    Pin(path="layout.pp", kind="count", flag="--pp"),
    Pin(path="layout.cp", kind="count", flag="--cp"),
    Pin(path="layout.ep", kind="count", flag="--ep"),
    Pin(path="layout.dp", kind="count", flag="--dp"),
    Pin(path="layout.zero_stage", kind="natural", flag="--zero", largest=3),
    Pin(path="layout.num_virtual_stages", kind="count"),
    Pin(path="layout.has_sequence_parallel", kind="switch"),
    Pin(path="layout.first_stage_layers", kind="count"),
    Pin(path="layout.last_stage_layers", kind="count"),
    Pin(path="micro_batch_size", kind="count", flag="--micro-batch"),
    Pin(path="recompute", kind="choice", flag="--recompute", choices=_RECOMPUTE),
    Pin(path="recompute_every", kind="count"),
    Pin(path="optimizer", kind="choice", flag="--optimizer", choices=tuple(OPTIMIZERS)),
    Pin(path="precision.compute", kind="choice", flag="--precision", choices=_COMPUTE),
    Pin(path="precision.weights", kind="weights", flag="--quant"),
    Pin(path="precision.kv", kind="cache", flag="--kv"),
    Pin(path="precision.gradients", kind="choice", choices=("bf16", "fp16", "fp32")),
    Pin(path="precision.has_fp32_master", kind="switch"),
    Pin(path="precision.experts", kind="choice", choices=("bf16", "fp16", "nf4", "nf4_dq", "int8")),
    Pin(path="settings.max_num_seqs", kind="count", flag="--max-num-seqs"),
    Pin(path="settings.max_batched_tokens", kind="count", flag="--max-batched-tokens"),
    Pin(path="settings.utilization_ratio", kind="ratio", flag="--utilization"),
    Pin(path="settings.has_flash_attention", kind="switch"),
    Pin(path="settings.has_fused_loss", kind="switch"),
    Pin(path="settings.has_compile", kind="switch"),
    Pin(path="offload.num_cpu_expert_layers", kind="layers", flag="--cpu-experts"),
    Pin(path="offload.num_cpu_layers", kind="layers"),
    Pin(path="offload.optimizer", kind="switch"),
    Pin(path="offload.parameters", kind="switch"),
    Pin(path="offload.activations", kind="switch"),
    Pin(path="offload.optimizer_nvme", kind="switch"),
    Pin(path="offload.parameters_nvme", kind="switch"),
    Pin(path="offload.experts_nvme", kind="switch"),
)
PINS: Final = {pin.path: pin for pin in _TABLE}
FLAGS: Final = {pin.flag: pin for pin in _TABLE if pin.flag}
_EXTRA: Final = "settings.extra."
_SERVING_ONLY: Final = (
    "precision.kv", "settings.max_num_seqs", "settings.max_batched_tokens", "settings.utilization_ratio",
    "offload.num_cpu_layers", "offload.experts_nvme",
)  # fmt: skip
_TRAINING_ONLY: Final = (
    "layout.zero_stage", "layout.num_virtual_stages", "layout.has_sequence_parallel", "micro_batch_size", "recompute",
    "recompute_every", "optimizer", "precision.gradients", "precision.has_fp32_master", "precision.experts",
    "settings.has_fused_loss", "settings.has_compile", "offload.optimizer", "offload.parameters", "offload.activations",
    "offload.optimizer_nvme", "offload.parameters_nvme",
)  # fmt: skip
_TYPES: Final = {"bfloat16": "bf16", "float16": "fp16"}
_SWITCHES: Final = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}


def read_pin(path: str, value: object, where: str = "") -> tuple[str, Scalar]:
    """Check one pin and return its path and its value in its own type.

    Raises
    ------
    RequestError
        The path is no field of a candidate, or the value is none that it takes.

    Examples
    --------
    >>> read_pin("layout.tp", "2"), read_pin("offload.optimizer", "true")
    (('layout.tp', 2), ('offload.optimizer', True))
    """
    where = where or f"--set {path[:60]}"
    text = str(value).strip()
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise RequestError("the value is too long or not text", where=where, fix="write a plain value")
    if path.startswith(_EXTRA) and path.removeprefix(_EXTRA).replace("-", "_").isidentifier():
        return path, text
    if path not in PINS:
        import difflib  # noqa: PLC0415  only a mistake pays for it

        near = tuple(difflib.get_close_matches(path, PINS, n=3, cutoff=0.4))
        fix = "" if near else f"fields are {', '.join(PINS)}"
        raise UnknownNameError(f"'{path[:60]}' is not a field of a plan", where="--set", fix=fix, suggestions=near)
    pin = PINS[path]
    return path, _READERS[pin.kind](pin, text, where)


def check_goal(pins: Mapping[str, Scalar], *, is_serving: bool) -> None:
    """Refuse a pin that says nothing for the goal: silence would look like consent.

    Raises
    ------
    RequestError
        The first such pin.
    """
    foreign = _TRAINING_ONLY if is_serving else _SERVING_ONLY
    for path, value in pins.items():
        if path in foreign or (path.startswith(_EXTRA) and not is_serving):
            goal = "serving" if is_serving else "training"
            flag = write_pin(path, value)
            where = flag[0] if flag[0] != "--set" else f"--set {path[:60]}"
            raise RequestError(f"says nothing for {goal}", where=where, fix="leave it out")
        if value == OWN and not is_serving:
            raise RequestError(
                f"'{OWN}' says nothing for training", where=write_pin(path, value)[0], fix="name a format"
            )


def _read_count(pin: Pin, text: str, where: str) -> int:
    least = 0 if pin.kind == "natural" else 1
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
    if not least <= number <= pin.largest:
        upto = f" to {pin.largest}" if pin.largest < _LARGEST_COUNT else " or more"
        raise RequestError(f"'{text}' does not do", where=where, fix=f"write a whole number, {least}{upto}")
    return number


def _read_layers(pin: Pin, text: str, where: str) -> int | str:
    """Read a number of layers, or "all", or "all-12" for all but twelve; `settle` needs the model for those."""
    head, dash, rest = text.lower().partition("-")
    if head != "all":
        return _read_count(replace(pin, kind="natural"), text, where)
    return f"all-{_read_count(replace(pin, kind='natural'), rest, where)}" if dash else "all"


def _read_ratio(pin: Pin, text: str, where: str) -> float:
    del pin
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 < ratio <= 1:
        raise RequestError(f"'{text}' is not a share", where=where, fix="write a number above 0 and up to 1, like 0.9")
    return ratio


def _read_switch(pin: Pin, text: str, where: str) -> bool:
    del pin
    if text.lower() not in _SWITCHES:
        raise RequestError(f"'{text}' is neither true nor false", where=where, fix="write true or false")
    return _SWITCHES[text.lower()]


def _read_choice(pin: Pin, text: str, where: str) -> str:
    name = text.lower().replace("-", "_")
    if name not in pin.choices:
        raise UnknownNameError(f"'{text}' is not known", where=where, fix=f"one of {', '.join(pin.choices)}")
    return name


def _read_weights(pin: Pin, text: str, where: str) -> str:
    """Read a format of weights; some frozen weights below adapters have names of their own."""
    from tonnage.estimate.weights import find_format  # noqa: PLC0415  only this pin needs it

    del pin
    name = text.lower().replace("-", "_")
    if name not in (*_FROZEN_ONLY, OWN):
        try:
            find_format(name)
        except UnknownNameError as error:
            fix = "write one like bf16, fp8, awq or q4_k_m"
            raise UnknownNameError(
                f"'{text[:40]}' is not a format of weights", where=where, fix=fix, suggestions=error.suggestions
            ) from None
    return name


def _read_cache(pin: Pin, text: str, where: str) -> str:
    """Read a format of the cache: one that some engine has."""
    from tonnage.engines import ENGINES  # noqa: PLC0415  only this pin needs all of them

    del pin
    name = text.lower().replace("-", "_")
    known = sorted({one for engine in ENGINES for one in engine.traits.cache_formats})
    if name not in (*known, OWN):
        raise UnknownNameError(
            f"'{text[:40]}' is not a format of the cache", where=where, fix=f"one of {', '.join(known)}"
        )
    return name


_READERS: Final = {
    "count": _read_count,
    "natural": _read_count,
    "layers": _read_layers,
    "ratio": _read_ratio,
    "switch": _read_switch,
    "choice": _read_choice,
    "weights": _read_weights,
    "cache": _read_cache,
}


def write_pin(path: str, value: Scalar) -> tuple[str, ...]:
    """Return the arguments that set a pin.

    >>> write_pin("layout.tp", 2), write_pin("offload.optimizer", True)
    (('--tp', '2'), ('--set', 'offload.optimizer=true'))
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    pin = PINS.get(path)
    return (pin.flag, text) if pin and pin.flag else ("--set", f"{path}={text}")


def settle(pins: Mapping[str, Scalar], num_layers: int) -> dict[str, Scalar]:
    """Return the pins with "all" and "all-12" layers counted, and more layers than there are as all of them.

    >>> settle({"offload.num_cpu_layers": "all-12", "layout.tp": 2}, 48)
    {'offload.num_cpu_layers': 36, 'layout.tp': 2}
    """
    settled = dict(pins)
    for path, value in pins.items():
        if path not in PINS or PINS[path].kind != "layers":
            continue
        if isinstance(value, str):
            settled[path] = max(0, num_layers - int(value.removeprefix("all").lstrip("-") or "0"))
        else:
            settled[path] = min(int(value), num_layers)
    return settled


def as_stored(pins: Mapping[str, Scalar], model: Model) -> dict[str, Scalar]:
    """Return the pins with "own" as what the checkpoint holds: its format, and its type of numbers for the cache."""
    from tonnage.estimate.weights import checkpoint_format  # noqa: PLC0415  only these pins need it

    settled = dict(pins)
    if settled.get("precision.weights") == OWN:
        settled["precision.weights"] = checkpoint_format(model)
    if settled.get("precision.kv") == OWN:
        compute = str(pins.get("precision.compute", ""))
        settled["precision.kv"] = compute if compute in _TYPES.values() else _TYPES.get(model.dtype, "bf16")
    return settled


def with_pins(candidate: Candidate, pins: Mapping[str, Scalar]) -> Candidate:
    """Return the candidate with the pinned fields set; the other fields stay."""
    changed: dict[str, Any] = {}
    for path, value in pins.items():
        head, _, rest = path.partition(".")
        inner = changed.get(head, getattr(candidate, head))
        if path.startswith(_EXTRA):
            changed[head] = replace(inner, extra={**inner.extra, path.removeprefix(_EXTRA): str(value)})
        elif rest:
            changed[head] = replace(inner, **{rest: value})
        else:
            changed[head] = type(inner)(value)
    return replace(candidate, **changed) if changed else candidate


def get(candidate: Candidate, path: str) -> Any:
    """Return the field of a candidate that a path names."""
    value: Any = candidate
    for name in path.split("."):
        value = getattr(value, name)
    return value


def pins_of(candidate: Candidate) -> dict[str, Scalar]:
    """Return every pinnable field of a candidate: pinning them all asks for this one candidate."""
    values = {path: get(candidate, path) for path in PINS}
    return {path: getattr(value, "value", value) for path, value in values.items() if value is not None}
