"""How far off a replay is, beside the closed form, on measured throughput at a stated number of requests in flight.

    python validation/simulated.py [FILE]          the shipped rows by default

Every row with a numeric `concurrency` is run as clients that ask again as soon as they are answered. No bound: the
figures are reported in SCORES.md.
"""

from __future__ import annotations

import json
import sys
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


def main() -> None:
    """Print each row and the medians."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    chosen = [
        row
        for row in rows
        if isinstance(row.get("concurrency"), int | float) and row.get("measured", {}).get("throughput_tps")
    ]
    errors = []
    for row in chosen:
        try:
            name, measured, closed, replayed = compared(row)
        except TonnageError as error:
            print(f"{row['id']}: left out: {error}")
            continue
        errors.append((abs(closed - measured) / measured, abs(replayed - measured) / measured))
        print(f"{name}  measured {measured:10.1f}  closed form {closed:10.1f}  replay {replayed:10.1f}")
    for name, column in zip(("closed form", "replay"), zip(*errors, strict=True), strict=True):
        print(f"{name}: {len(column)} of {len(chosen)} rows, median absolute error {100 * median(column):.1f} %")


if __name__ == "__main__":
    main()
