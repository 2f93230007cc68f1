"""How far off a replay is, beside the closed form, on measured throughput at a stated number of requests in flight.

    python validation/simulated.py [FILE]          the shipped rows by default

Every row with a numeric `concurrency` is run as clients that ask again as soon as they are answered. No bound: the
figures are reported in SCORES.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tonnage.calibrate.inference_rows import case_of_row, load_of_case, running_requests
from tonnage.engines import find_engine
from tonnage.errors import TonnageError
from tonnage.estimate.serving_speed import serving_times
from tonnage.simulate.fleet import maker_of_load
from tonnage.simulate.replay import replay_clients

ROWS = Path(__file__).parents[1] / "src/tonnage/data/measurements/inference.jsonl"
ROUNDS = 4  # requests of each client


def compared(row: dict) -> tuple[str, float, float, float]:
    """Return the row's id, and tokens a second as measured, by the closed form and by the replay."""
    case = case_of_row(row)
    accounting = find_engine(case.candidate.engine).accounting
    load = load_of_case(case, accounting)
    needs = accounting.memory(load)
    running = running_requests(case, load, needs.cache_tokens)
    load = accounting.with_concurrency(load, running)
    times = serving_times(load, accounting.rates(load), needs.cache_tokens)
    replica = maker_of_load(case.candidate.engine, load, accounting)(0.0)
    clients = max(1, round(running))
    out = replay_clients(
        replica,
        num_clients=clients,
        num_requests=clients * ROUNDS,
        input_tokens=int(load.input_tokens),
        output_tokens=int(load.output_tokens),
    )
    closed, replayed = float(times.throughput_tokens_per_s) * load.dp, out.output_tokens_per_s * load.dp
    return row["id"], row["measured"]["throughput_tps"], closed, replayed


def checked(rows: list[dict]) -> dict:
    """Return, for each row that states how many requests were in flight, what was measured, computed and replayed."""
    found, left_out = {}, 0
    for row in rows:
        if not (isinstance(row.get("concurrency"), int | float) and row.get("measured", {}).get("throughput_tps")):
            continue
        try:
            name, measured, closed, replayed = compared(row)
        except TonnageError:
            left_out += 1
            continue
        found[name] = {"engine": row["engine"], "measured": measured, "closed": closed, "replayed": replayed}
    return {"rows": found, "left_out": left_out}


def section(found: dict) -> Iterator[str]:
    """Yield the part of SCORES.md: medians by engine."""
    rows = list(found["rows"].values())
    yield "| engine | rows | closed form, median error % | replay, median error % |"
    yield "|---|---|---|---|"
    for engine in (*sorted({row["engine"] for row in rows}), "all"):
        some = [row for row in rows if engine in (row["engine"], "all")]
        errors = [100 * median(abs(row[way] / row["measured"] - 1) for row in some) for way in ("closed", "replayed")]
        yield f"| {engine} | {len(some)} | {errors[0]:.1f} | {errors[1]:.1f} |"
    if found["left_out"]:
        yield ""
        yield f"{found['left_out']} rows cannot be replayed."


def main() -> None:
    """Print each row and the medians."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    found = checked([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()])
    for name, row in found["rows"].items():
        print(
            f"{name}  measured {row['measured']:10.1f}  closed form {row['closed']:10.1f}  replay {row['replayed']:10.1f}"
        )
    print("\n".join(section(found)))


if __name__ == "__main__":
    main()
