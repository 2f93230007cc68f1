"""The address of a model's page, as a browser shows it, names the model."""

from __future__ import annotations

import pytest

from tonnage.errors import RequestError
from tonnage.probe.spec import hub_id_of, read_spec

HUB, SCOPE = "https://huggingface.co", "https://www.modelscope.cn/models"


@pytest.mark.parametrize(
    ("page", "named"),
    [
        (f"{HUB}/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        (f"{HUB}/Qwen/Qwen3-8B/", "Qwen/Qwen3-8B"),
        (f"{HUB}/Qwen/Qwen3-8B/tree/main", "Qwen/Qwen3-8B"),
        (f"{HUB}/Qwen/Qwen3-8B/blob/main/config.json", "Qwen/Qwen3-8B"),
        (f"{HUB}/Qwen/Qwen3-8B?library=transformers", "Qwen/Qwen3-8B"),
        (f"{HUB}/o/n-GGUF/blob/main/n-Q4_K_M.gguf", "o/n-GGUF:n-Q4_K_M"),
        ("hf.co/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("https://hf-mirror.com/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        (f"{SCOPE}/Qwen/Qwen3-8B", "modelscope:Qwen/Qwen3-8B"),
        (f"{SCOPE}/Qwen/Qwen3-8B/summary", "modelscope:Qwen/Qwen3-8B"),
        (f"{SCOPE}/Qwen/Qwen3-8B/files", "modelscope:Qwen/Qwen3-8B"),
        ("modelscope.cn/models/Qwen/Qwen3-8B", "modelscope:Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("o/n-GGUF:Q4_K_M", "o/n-GGUF:Q4_K_M"),
    ],
)
def test_pages(page, named):
    assert hub_id_of(page) == named


@pytest.mark.parametrize(
    "page", [f"{HUB}/Qwen/Qwen3-8B/tree/dev", f"{HUB}/models", "https://example.com/a/b", "ftp://x/y/z"]
)
def test_other_addresses_are_refused_in_one_line(page):
    with pytest.raises(RequestError):
        read_spec(page)


def test_a_page_of_a_known_model_needs_no_network():
    assert read_spec(f"{HUB}/Qwen/Qwen3-8B/tree/main").status in ("catalogue", "reconstructed", "config")
