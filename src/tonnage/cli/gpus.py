"""`tonnage gpus`: browse and compare accelerators."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from tonnage import api, datafiles
from tonnage.cli.options import common, emit_json, note
from tonnage.cli.tables import table, width, wrap
from tonnage.hardware import browse, ecosystem
from tonnage.hardware.types import Device
from tonnage.hardware.worth import Worth, training_dtype, worth
from tonnage.messages import say
from tonnage.units import GIB, format_bytes, parse_bytes

if TYPE_CHECKING:
    from tonnage.estimate.fit import Fit
    from tonnage.hardware.prices import PriceBook

_MOST_COMPARED = 6
_NARROWEST_SHEET = 20
_FIT_FORMATS = ("bf16", "fp8", "q4_k_m")


@click.command(help="Browse and compare accelerators: memory, rates, links, ecosystem, power, price.")
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("--sort", "order", type=click.Choice(list(browse.ORDERS)), help="Order of the list, best first.")
@click.option("--vendor", default="", help="Only these makers: nvidia, amd, intel, apple, ... (comma-separated).")
@click.option("--min-memory", default="", help='Only devices with at least this much memory: "24 GB".')
@click.option("--model", "model_name", default="", help="Say in which formats a model's weights fit.")
@common
def command(
    queries: tuple[str, ...],
    order: str | None,
    vendor: str,
    min_memory: str,
    model_name: str,
    is_json: bool,
    is_quiet: bool,
) -> None:
    """Print the devices asked for: one as a sheet, a few side by side, many as a list."""
    _book.cache_clear()
    least = parse_bytes(min_memory, "--min-memory") if min_memory else 0
    found = api.find_gpus(*queries, vendor=vendor, min_memory_bytes=least, order=order or "")
    fits = _fits(model_name, found)
    if is_json:
        emit_json({"gpus": [as_json(device, fits.get(device.slug)) for device in found]})
        return
    is_named = 0 < len(found) <= _MOST_COMPARED and bool(queries) and browse.named(queries)[1]
    print("\n".join(_sheets(found, fits) if is_named else _listed(found, fits)))
    if model_name and found:
        note(say("gpus.weights_alone", model=model_name), is_quiet=is_quiet)


def _fits(model_name: str, found: Sequence[Device]) -> Mapping[str, tuple[Fit, ...]]:
    """Return how a model's weights fit on each device, by slug; nothing where no model is named."""
    if not model_name:
        return {}
    return api.weights_fit(api.read_model(model_name), found, _FIT_FORMATS)


# -- figures as text ---------------------------------------------------------------------------------------------


def _unknown(text: str | None) -> str:
    return text or "-"


def _tera(value: float | None) -> str:
    """Write a rate in T(FL)OPS: enough digits to tell cards apart, no more."""
    if value is None:
        return "-"
    return f"{value / 1e12:.0f}" if value >= 1e14 else f"{value / 1e12:.1f}"


def _bandwidth(value: float) -> str:
    return f"{value / 1e9:.0f}"


def _usd(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _small_usd(value: float | None) -> str:
    """Write a cost per unit with three significant digits."""
    return "-" if value is None else f"{value:.3g}"


def _link_text(device: Device) -> str:
    if device.has_nvlink and device.nvlink_bytes_per_s:
        generation = (device.nvlink_generation or "").removeprefix("nvlink")
        return f"NVLink {generation}, {_bandwidth(device.nvlink_bytes_per_s)}"
    if device.nvlink_generation and device.nvlink_bytes_per_s:
        return f"{device.nvlink_generation}, {_bandwidth(device.nvlink_bytes_per_s)}"
    if device.is_unified_memory or device.form_factor == "cloud":
        return "-"
    return {True: "PCIe P2P", False: say("gpus.through_host"), None: "PCIe"}[device.has_p2p]


def _yes_no(value: bool | None) -> str:
    return "-" if value is None else say("gpus.yes") if value else say("gpus.no")


@cache
def _book() -> PriceBook:
    from tonnage.probe.prices import price_book

    return price_book()


def _of_kind(device: Device, *kinds: str) -> Worth | None:
    return next((w for w in worth(device, _book()) if w.kind in kinds), None)


def _price_text(found: Worth | None) -> str:
    return "-" if found is None else _usd(found.usd)


# -- a list ------------------------------------------------------------------------------------------------------


def _list_columns() -> tuple[tuple[str, Callable[[Device], str], bool], ...]:
    """Return the columns of a list, the most important first: name, figure, whether it is set flush right."""
    return (
        ("gpus.column_name", lambda d: d.slug + (" *" if d.is_unofficial else ""), False),
        ("gpus.column_memory", lambda d: f"{d.memory_bytes / GIB:.1f}", True),
        ("gpus.column_bandwidth", lambda d: _bandwidth(d.bandwidth_bytes_per_s), True),
        ("gpus.column_rate", lambda d: _tera(d.flop_per_s.get(training_dtype(d))), True),
        ("gpus.column_price", lambda d: _price_text(_of_kind(d, "own", "launch", "third-party")), True),
        ("gpus.column_rent", lambda d: _price_text(_of_kind(d, "rent")), True),
        ("gpus.column_power", lambda d: f"{d.power_watts:.0f}" if d.power_watts else "-", True),
        ("gpus.column_link", _link_text, False),
        ("gpus.column_fp8", lambda d: _tera(d.flop_per_s.get("fp8")), True),
        ("gpus.column_fp4", lambda d: _tera(d.flop_per_s.get("fp4")), True),
        ("gpus.column_architecture", lambda d: d.architecture, False),
    )


def _listed(found: Sequence[Device], fits: Mapping[str, tuple[Fit, ...]]) -> list[str]:
    """Return a list of devices, with as many columns as the terminal is wide."""
    if not found:
        return [say("gpus.none")]
    columns = [(say(head), [figure(d) for d in found], is_right) for head, figure, is_right in _list_columns()]
    for position, name in enumerate(_FIT_FORMATS) if fits else ():
        columns.insert(2 + position, (name, [_fit_text(fits[d.slug][position]) for d in found], True))
    room, kept = shutil.get_terminal_size().columns, []
    for head, cells, is_right in columns:
        room -= max(width(t) for t in (head, *cells)) + 2
        if room < -2 and len(kept) >= 3:
            break
        kept.append((head, cells, is_right))
    lines = table(
        [head for head, _, _ in kept],
        [[cells[i] for _, cells, _ in kept] for i in range(len(found))],
        right=[i for i, (_, _, is_right) in enumerate(kept) if is_right],
    )
    notes = [say("gpus.list_note")]
    if any(d.is_unofficial for d in found):
        notes.append("* " + say("gpus.unofficial"))
    return [*lines, "", *(line for text in notes for line in wrap(text, columns=shutil.get_terminal_size().columns))]


def _fit_text(fit: Fit) -> str:
    if fit.num_devices == 1:
        return say("gpus.fits", left=format_bytes(fit.memory_bytes - fit.weights_bytes))
    return f"{fit.num_devices} ×"


# -- sheets side by side -----------------------------------------------------------------------------------------


def _sheet_rows(device: Device, fits: tuple[Fit, ...]) -> list[tuple[str, str]]:
    """Return what a sheet says of one device: label and text."""
    rates = device.flop_per_s
    rows = [
        (say("gpus.row_name"), device.name),
        (say("gpus.row_architecture"), " ".join(filter(None, (device.architecture, device.compute_capability)))),
        (say("gpus.row_form"), device.form_factor),
        (say("gpus.row_memory"), _memory_text(device)),
        (say("gpus.row_bandwidth"), f"{_bandwidth(device.bandwidth_bytes_per_s)} GB/s"),
        *((_rate_label(d), _tera(rates.get(d))) for d in ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")),
        (say("gpus.row_l2"), format_bytes(device.l2_bytes, 0) if device.l2_bytes else "-"),
        (say("gpus.row_link"), _link_text(device) + (" GB/s" if device.nvlink_bytes_per_s else "")),
        (say("gpus.row_pcie"), f"{device.pcie_generation}.0 x{device.pcie_lanes}" if device.pcie_generation else "-"),
        (say("gpus.row_p2p"), _yes_no(device.has_p2p)),
        ("ECC", _yes_no(device.has_ecc)),
        (say("gpus.row_power"), f"{device.power_watts:.0f} W" if device.power_watts else "-"),
        (say("gpus.row_cuda"), _cuda_text(device)),
        (say("gpus.row_driver"), _driver_text(device)),
        (say("gpus.row_engines"), ", ".join(s.engine for s in ecosystem.engines(device)) or "-"),
        (say("gpus.row_launch"), _unknown(device.launch_day)),
    ]
    rows += [(say("gpus.row_fit", format=fit.format), _fit_text(fit)) for fit in fits]
    return rows + _worth_rows(device)


def _rate_label(dtype: str) -> str:
    return say("gpus.row_rate", dtype=dtype, unit="TOPS" if dtype == "int8" else "TFLOPS")


def _memory_text(device: Device) -> str:
    size = f"{format_bytes(device.memory_bytes, 2)} {device.memory_type}"
    return say("gpus.sold_as", size=size, sold_as=device.sold_as)


def _cuda_text(device: Device) -> str:
    if device.min_cuda is None:
        return "-"
    return f"{device.min_cuda} - {device.max_cuda}" if device.max_cuda else f">= {device.min_cuda}"


def _driver_text(device: Device) -> str:
    text = ecosystem.driver_class(device)
    if device.min_driver_branch:
        last = device.last_driver_branch
        text += f", {device.min_driver_branch} - {last}" if last else f", >= {device.min_driver_branch}"
    return text + (f", {say('gpus.open_modules')}" if device.needs_open_modules else "")


def _worth_rows(device: Device) -> list[tuple[str, str]]:
    """Return price and costs, to buy and to rent; the same rows for every device, unknown ones as a dash."""
    rows: list[tuple[str, str]] = []
    for label, kinds in (("buy", ("own", "launch", "third-party")), ("rent", ("rent",)), ("spot", ("spot",))):
        found = _of_kind(device, *kinds)
        rows.append((say(f"gpus.row_{label}"), _dated_price(found)))
        if label == "spot":
            continue
        rows.append((say("gpus.row_per_tflops"), _small_usd(_scaled(found, "usd_per_flop_per_s", 1e12))))
        rows.append((say("gpus.row_per_gib"), _small_usd(_scaled(found, "usd_per_byte", GIB))))
        rows.append((say("gpus.row_per_gbs"), _small_usd(_scaled(found, "usd_per_byte_per_s", 1e9))))
    return rows


def _dated_price(found: Worth | None) -> str:
    """Write a price with who asks it and when."""
    if found is None:
        return "-"
    kind = say("gpus.kind_" + found.kind.replace("-", "_"))
    return say("gpus.dated", usd=_usd(found.usd), who=", ".join(filter(None, (found.provider or kind, found.day))))


def _scaled(found: Worth | None, field: str, scale: float) -> float | None:
    value = None if found is None else getattr(found, field)
    return None if value is None else value * scale


def _sheets(found: Sequence[Device], fits: Mapping[str, tuple[Fit, ...]]) -> list[str]:
    """Return devices side by side, as many at once as the terminal is wide, and below them what to know of each."""
    room = shutil.get_terminal_size().columns
    sheets = [_sheet_rows(device, fits.get(device.slug, ())) for device in found]
    label_width = max(width(label) for label, _ in sheets[0])
    at_once = max((room - label_width) // (_NARROWEST_SHEET + 2), 1)
    lines: list[str] = []
    for start in range(0, len(found), at_once):
        end = min(start + at_once, len(found))
        lines += [*_side_by_side(found[start:end], sheets[start:end], room - label_width), ""]
    for device in found:
        lines += _remarks(device, room, is_one=len(found) == 1)
    return lines


def _side_by_side(found: Sequence[Device], sheets: Sequence[list[tuple[str, str]]], room: int) -> list[str]:
    """Return the lines of some sheets: a row a figure that any of them has, long texts broken inside their column."""
    columns = room // len(found) - 2
    rows: list[list[str]] = []
    for number, (label, _) in enumerate(sheets[0]):
        texts = [sheet[number][1] for sheet in sheets]
        if all(text == "-" for text in texts):
            continue
        cells = [wrap(text, columns=columns) or [""] for text in texts]
        rows += [[label if not i else "", *line] for i, line in enumerate(zip_longest(*cells, fillvalue=""))]
    return table(["", *(device.slug for device in found)], rows)


def _remarks(device: Device, room: int, *, is_one: bool) -> list[str]:
    """Return what to know of a device and where its figures come from."""
    head = "" if is_one else f"{device.slug}: "
    lines = [line for text in ecosystem.risks(device) for line in wrap(f"! {head}{text}", columns=room)]
    keys = list(dict.fromkeys(f"{device.source} {device.memory_source}".split()))
    said = say("gpus.sources", keys=", ".join(keys), confidence=device.confidence)
    lines += wrap(head + said, columns=room)
    if is_one:
        lines += [f"  {key}: {address}" for key in keys if (address := _source(key)["address"])]
    return lines


# -- JSON --------------------------------------------------------------------------------------------------------


def _source(key: str) -> dict[str, str | None]:
    row = next((r for r in datafiles.rows("sources.csv") if r["key"] == key), {})
    return {"key": key, "title": row.get("title"), "address": row.get("address") or None, "day": row.get("day") or None}


def as_json(device: Device, fits: tuple[Fit, ...] | None = None) -> dict[str, Any]:
    """Return everything on record of a device, in base units; unknown is null."""
    found: dict[str, Any] = {
        "slug": device.slug,
        "name": device.name,
        "vendor": device.vendor,
        "architecture": device.architecture,
        "compute_capability": device.compute_capability,
        "form_factor": device.form_factor,
        "sold_as": device.sold_as,
        "memory_bytes": device.memory_bytes,
        "is_memory_reported": device.is_memory_reported,
        "unified_memory_bytes": device.unified_memory_bytes,
        "memory_type": device.memory_type,
        "bandwidth_bytes_per_s": device.bandwidth_bytes_per_s,
        "flop_per_s": {d: device.flop_per_s.get(d) for d in ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")},
        "l2_bytes": device.l2_bytes,
        "num_multiprocessors": device.num_multiprocessors,
        "has_nvlink": device.has_nvlink,
        "fabric": device.nvlink_generation,
        "fabric_bytes_per_s": device.nvlink_bytes_per_s,
        "pcie_generation": device.pcie_generation,
        "pcie_lanes": device.pcie_lanes,
        "has_p2p": device.has_p2p,
        "has_ecc": device.has_ecc,
        "power_watts": device.power_watts,
        "num_mig_slices": device.num_mig_slices,
        "is_unofficial": device.is_unofficial,
        "is_unified_memory": device.is_unified_memory,
        "export_variant_of": device.export_variant_of or None,
        "launch_day": device.launch_day,
        "ecosystem": {
            "driver_class": ecosystem.driver_class(device),
            "min_cuda": device.min_cuda,
            "max_cuda": device.max_cuda,
            "min_driver_branch": device.min_driver_branch,
            "last_driver_branch": device.last_driver_branch,
            "needs_open_modules": device.needs_open_modules,
            "formats": list(device.formats),
            "engines": [{"engine": s.engine, "via": s.via or None} for s in ecosystem.engines(device)],
        },
        "prices": [_price_json(w) for w in worth(device, _book())],
        "confidence": device.confidence,
        "sources": [_source(k) for k in dict.fromkeys((device.source + " " + device.memory_source).split())],
        "warnings": list(ecosystem.risks(device)),
    }
    if fits is not None:
        found["fit"] = {
            fit.format: {
                "weights_bytes": fit.weights_bytes,
                "fits": fit.num_devices == 1,
                "num_devices": fit.num_devices,
            }
            for fit in fits
        }
    return found


def _price_json(found: Worth) -> dict[str, Any]:
    unit = "usd_per_hour" if found.is_rent else "usd"
    return {
        "kind": found.kind,
        unit: found.usd,
        f"{unit}_per_flop_per_s": found.usd_per_flop_per_s,
        f"{unit}_per_byte": found.usd_per_byte,
        f"{unit}_per_byte_per_s": found.usd_per_byte_per_s,
        "dtype": found.dtype,
        "provider": found.provider or None,
        "day": found.day or None,
        "source": [_source(k) for k in found.source.split()],
    }
