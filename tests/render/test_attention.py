"""Attention follows the device and what the bundle installs."""

import json

import pytest

from tonnage import api
from tonnage.engines.transformers.attention import attention_implementation
from tonnage.plan.request import make_request


@pytest.mark.parametrize(("capability", "packages", "expected"), [
    (7.0, ["torch"], "sdpa"), (8.0, ["torch"], "sdpa"), (None, ["flash-attn"], "sdpa"),
    (7.5, ["flash-attn==2.8.3"], "sdpa"), (8.0, ["flash_attn>=2.3.3"], "flash_attention_2"),
    (9.0, ["flash-attn", "flash-attn-3"], "flash_attention_3"), (8.9, ["flash-attn-3"], "sdpa"),
    (10.0, ["flash-attn-3", "flash-attn"], "flash_attention_2"),
])  # fmt: skip
def test_what_is_installed_and_what_the_device_runs(capability, packages, expected):
    assert attention_implementation(capability, packages) == expected
    assert attention_implementation(capability, packages, has_flash_attention=False) == "eager"


def test_a_bundle_asks_for_what_it_installs():
    plan = api.plan(make_request("Qwen/Qwen3-0.6B", goal="finetune", finetune="lora", gpus=["h100-sxm5-80gb"],
                                 limits={"engines": ["transformers"]})).plans[0]  # fmt: skip
    files = {file.path: file.text for file in api.deploy(plan).files}
    assert json.loads(files["job.json"])["attn_implementation"] == "sdpa"
    assert "flash" not in files["install.sh"]
