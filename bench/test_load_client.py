"""How many requests a second the load client keeps up with, on one core, against a trivial server beside it.

The bound is 500 a second, sent when due. The server runs in a process of its own; the client's own processor time a
request is reported, for that is what a load test adds to the machine that it runs on.
"""

from __future__ import annotations

import multiprocessing
import time

import pytest

pytest.importorskip("aiohttp", reason="tonnage[bench] is not installed")

from tests.load.servers import serving

from tonnage.load.ask import LoadTest, bench
from tonnage.simulate.arrivals import constant

RATE = 500.0


def serve(pipe) -> None:
    with serving() as (url, _):
        pipe.send(url)
        pipe.recv()


def test_five_hundred_requests_a_second():
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    process.start()
    url = here.recv()
    start = time.process_time()
    found, _, _ = bench(LoadTest(url=url, requests=constant(2500, RATE, 16, 4)))
    each = (time.process_time() - start) / found.num_requests
    here.send(None)
    process.join(10)
    held = "held" if found.requests_per_s >= 0.98 * RATE and not found.is_client_limited else "NOT HELD"
    print(
        f"\n{found.requests_per_s:.0f} requests/s of {RATE:.0f} due ({held}); {1e6 * each:.0f} us of processor a "
        f"request, sent {1e3 * (found.late.p99 or 0):.1f} ms late at P99, busy {found.client_busy_ratio:.0%}"
    )
    assert found.num_ok == found.num_requests
