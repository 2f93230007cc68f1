"""How long a replay of the 19,366 requests of the Azure conversation trace takes on one core.

The bounds are 3 s for one replica and 10 s for ten. Vidur (github.com/microsoft/vidur, snapshot of 2025) took 26 s for
the loop alone on a machine of the same kind; it does not install beside this project, so that figure is quoted, not run.
"""

from __future__ import annotations

import time

from tonnage import api, datafiles
from tonnage.engines import find_engine
from tonnage.plan.request import make_request
from tonnage.simulate.arrivals import faster, read_requests
from tonnage.simulate.fleet import replica_maker
from tonnage.simulate.replay import replay

BOUNDS = {1: 3.0, 10: 10.0}
VIDUR_SECONDS = 26.0


def test_a_trace_is_replayed_in_seconds():
    request = make_request(
        "meta-llama/Llama-3.1-8B", gpus=["a100-80gb-sxm"], load={"concurrency": "64"}, limits={"engines": ("vllm",)}
    )
    candidate = api.plan(request).plans[0].estimate.candidate
    make = replica_maker(candidate, find_engine(candidate.engine).accounting)
    load = read_requests(datafiles.packed("traces/azure-conv.csv.xz"))
    for number, bound in BOUNDS.items():
        sent = faster(load, float(number))
        start = time.process_time()
        run = replay(sent, [make(0.0) for _ in range(number)])
        seconds = time.process_time() - start
        held = "held" if seconds <= bound else "NOT HELD"
        print(
            f"\n{number} replica(s): {seconds:.2f} s of {bound:.0f} s ({held}), {run.num_steps} steps; "
            f"Vidur's quoted {VIDUR_SECONDS:.0f} s for one is {VIDUR_SECONDS / seconds:.0f} times that"
        )
        assert run.num_finished == len(load)
