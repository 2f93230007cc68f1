"""Random small configurations of every family count as transformers builds them on the meta device."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch", reason="platform: optional check, torch is not installed")
pytest.importorskip("transformers", reason="platform: optional check, transformers is not installed")

from tests.model.random_configs import PARTS, valid

from tonnage.estimate.parameters import count
from tonnage.model.hf import BUILDERS, model_from_config

pytestmark = [pytest.mark.trace, pytest.mark.filterwarnings("ignore")]

NUM_TRIALS = int(os.environ.get("TRACE_TRIALS", "3"))
FIRST_SEED = int(os.environ.get("TRACE_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + NUM_TRIALS))
@pytest.mark.parametrize("model_type", sorted(set(BUILDERS) - PARTS))
def test_total_is_exact(model_type: str, seed: int):
    config, wanted, saved = valid(model_type, f"{model_type} {seed}")
    found = count(model_from_config(config))
    assert found.total == wanted, f"off by {found.total - wanted}: {config}"
    as_saved = count(model_from_config(saved))
    assert as_saved.total == wanted, f"as saved, off by {as_saved.total - wanted}: {saved}"
