"""Hubs, driven against a small server on loopback: what is asked for, what each refusal means, where the token goes."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("huggingface_hub")

from tests.model.gguf_bytes import data_bytes
from tests.model.gguf_bytes import header as gguf_header
from tests.model.test_gguf import LAYER, H, V, llama
from tests.model.test_safetensors import header as safetensors_header
from tests.probe.test_files import CONFIG, TOTAL, weights

from tonnage.api import read_model
from tonnage.errors import BadFileError, OutsideError, RequestError
from tonnage.estimate.parameters import count
from tonnage.probe import hub

TOKEN = "hf_a_token_of_nobody"


class Server(ThreadingHTTPServer):
    """Files by path, refusals by path, and a note of every request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.refusals, self.redirects, self.asked = {}, {}, {}, []
        self.ignores_ranges = False

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        path = parts.path + (f"?{query['FilePath'][0]}" if "FilePath" in query else "")
        self.server.asked.append((path, self.headers.get("Range"), self.headers.get("Authorization")))
        if path in self.server.redirects:
            return self.answer(302, b"", Location=self.server.redirects[path])
        if path in self.server.refusals:
            status, code = self.server.refusals[path]
            return self.answer(status, b"no", **({"X-Error-Code": code} if code else {}))
        if path not in self.server.files:
            return self.answer(404, b"", **{"X-Error-Code": "EntryNotFound"})
        data = self.server.files[path]
        asked = re.fullmatch(r"bytes=0-(\d+)", self.headers.get("Range") or "")
        if asked and not self.server.ignores_ranges:
            piece = data[: int(asked[1]) + 1]
            return self.answer(206, piece, **{"Content-Range": f"bytes 0-{len(piece) - 1}/{len(data)}"})
        return self.answer(200, data)

    def answer(self, status, data, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client may have read enough
            self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        monkeypatch.setenv("MODELSCOPE_DOMAIN", running.address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def closed(monkeypatch, tmp_path):
    """An address where nobody answers."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("MODELSCOPE_DOMAIN", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


def put(server, model, files):
    for name, data in files.items():
        server.files[f"/{model}/resolve/main/{name}"] = data
        server.files[f"/api/v1/models/{model}/repo?{name}"] = data
    server.files[f"/api/models/{model}"] = json.dumps({"siblings": [{"rfilename": name} for name in files]}).encode()
    listed = {"Code": 200, "Data": {"Files": [{"Path": name} for name in files]}}
    server.files[f"/api/v1/models/{model}/repo/files"] = json.dumps(listed).encode()


def config(**fields):
    return json.dumps(CONFIG | fields).encode()


def gguf_file(names=None, **more):
    metadata, tensors = llama()
    kept = {name: tensors[name] for name in (names or tensors)}
    return gguf_header(metadata | more, kept) + bytes(data_bytes(kept))


def safetensors_file():
    data, stored = safetensors_header(weights())
    return data + bytes(stored)


def both(model):
    return model, f"modelscope:{model}"


@pytest.mark.parametrize("spec", both("acme/model"))
def test_a_config(server, spec):
    put(server, "acme/model", {"config.json": config()})
    model = read_model(spec)
    assert (model.name, count(model).total) == ("acme/model", TOTAL)


@pytest.mark.parametrize("spec", both("acme/model-NVFP4"))
def test_what_the_model_optimizer_wrote_beside_the_config(server, spec):
    beside = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, "producer": {"name": "modelopt"}}
    put(server, "acme/model-NVFP4", {"config.json": config(), "hf_quant_config.json": json.dumps(beside).encode()})
    quantization = read_model(spec).quantization
    if quantization is not None:  # read by the config's own parser
        assert quantization.scheme == "nvfp4"
    assert any(path.endswith("hf_quant_config.json") for path, _, _ in server.asked)


def test_the_token_goes_to_the_hub_and_not_further(server):
    put(server, "acme/model", {"config.json": config()})
    other = f"http://localhost:{server.server_port}/elsewhere"
    server.files["/elsewhere"] = config()
    server.redirects["/acme/model/resolve/main/config.json"] = other
    assert count(read_model("acme/model")).total == TOTAL
    assert [(path, token) for path, _, token in server.asked] == [
        ("/acme/model/resolve/main/config.json", f"Bearer {TOKEN}"),
        ("/elsewhere", None),
    ]


def test_modelscope_gets_no_token(server):
    put(server, "acme/model", {"config.json": config()})
    read_model("modelscope:acme/model")
    assert {token for _, _, token in server.asked} == {None}


@pytest.mark.parametrize("ignores_ranges", [False, True])
@pytest.mark.parametrize("spec", both("acme/new"))
def test_an_unknown_family_is_counted_from_the_beginning_of_its_weights(server, spec, ignores_ranges):
    server.ignores_ranges = ignores_ranges
    big = safetensors_file() + bytes(0)
    put(server, "acme/new", {"config.json": config(model_type="never_heard_of_it"), "model.safetensors": big})
    model = read_model(spec)
    assert (model.status, count(model).total) == ("header", TOTAL)
    ranges = [asked for path, asked, _ in server.asked if "model.safetensors" in path and asked]
    assert ranges == ["bytes=0-262143"]


@pytest.mark.parametrize("spec", both("acme/new"))
def test_an_unknown_family_without_weights_is_refused(server, spec):
    put(server, "acme/new", {"config.json": config(model_type="never_heard_of_it"), "pytorch_model.bin": b"x"})
    with pytest.raises(RequestError, match="never_heard_of_it"):
        read_model(spec)


@pytest.mark.parametrize("spec", both("acme/gguf"))
def test_a_repository_of_gguf_files(server, spec):
    names = list(llama()[1])
    put(
        server,
        "acme/gguf",
        {
            "m-Q4_K_M.gguf": gguf_file(),
            "big/m-BF16-00001-of-00002.gguf": gguf_file(names[:9], **{"split.tensors.count": len(names)}),
            "big/m-BF16-00002-of-00002.gguf": gguf_file(names[9:]),
            "mmproj-F16.gguf": gguf_file(),
        },
    )
    total = V * H + H + 2 * LAYER
    assert count(read_model(f"{spec}:Q4_K_M")).total == total
    assert count(read_model(f"{spec}:bf16")).total == total
    with pytest.raises(RequestError, match="holds 2 GGUF models; name one of: big/m-BF16"):
        read_model(spec)
    with pytest.raises(BadFileError, match="no GGUF file named like 'Q2_K'"):
        read_model(f"{spec}:Q2_K")


def test_a_long_header_is_fetched_in_steps(server):
    words = {"tokenizer.ggml.tokens": ["a long token of a vocabulary"] * 20_000}
    put(server, "acme/long", {"m.gguf": gguf_file(**words)})
    assert count(read_model("acme/long")).total == V * H + H + 2 * LAYER
    ranges = [asked for path, asked, _ in server.asked if path.endswith("m.gguf")]
    assert ranges == ["bytes=0-262143", "bytes=0-1048575"]


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, "GatedRepo", "acme/model is gated; accept its licence at http"),
        (403, "GatedRepo", "hf auth login"),
        (401, "RepoNotFound", "there is no model acme/model, or it is private"),
        (404, "RepoNotFound", "there is no model acme/model, or it is private"),
        (401, "", "there is no model acme/model, or it is private"),
        (403, "", "not open to this token"),
        (429, "", "answered 429; try again later, or set HF_ENDPOINT"),
        (503, "", "answered 503"),
    ],
)
def test_each_refusal_says_what_to_do(server, status, code, says):
    server.refusals["/acme/model/resolve/main/config.json"] = (status, code)
    with pytest.raises(OutsideError) as caught:
        read_model("acme/model")
    assert says in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("spec", both("acme/model"))
def test_a_model_that_is_not_there(server, spec):
    with pytest.raises(OutsideError, match="there is no model acme/model"):
        read_model(spec)


def test_a_misspelt_model_is_suggested(server):
    with pytest.raises(OutsideError, match=r"in the catalogue: .*Qwen/Qwen3\.5-27B"):
        read_model("Qwen/Qwen3.5-27")


def test_a_private_model_of_modelscope(server):
    server.refusals["/api/v1/models/acme/model/repo?config.json"] = (403, "")
    with pytest.raises(OutsideError, match="private or gated"):
        read_model("modelscope:acme/model")


@pytest.mark.parametrize("spec", both("acme/model"))
@pytest.mark.parametrize("data", [b"<html>", b"[]", b'{"siblings": 7}', b'{"Data": []}', b"\xff"])
def test_a_server_that_talks_nonsense(server, spec, data):
    put(server, "acme/model", {"config.json": data})
    for path in ("/api/models/acme/model", "/api/v1/models/acme/model/repo/files"):
        server.files[path] = data
    with pytest.raises(RequestError) as caught:
        read_model(spec)
    assert "\n" not in str(caught.value)


def test_a_server_that_redirects_to_a_file_is_not_followed(server):
    server.redirects["/acme/model/resolve/main/config.json"] = "file:///etc/passwd"
    with pytest.raises(OutsideError):
        read_model("acme/model")


def test_a_config_without_end_is_not_read_to_its_end(server, monkeypatch):
    monkeypatch.setattr("tonnage.probe.repository.MAX_JSON_BYTES", 1000)
    put(server, "acme/model", {"config.json": config() + b" " * 5000})
    with pytest.raises(BadFileError, match="is larger than"):
        read_model("acme/model")


@pytest.mark.parametrize("spec", both("acme/model"))
def test_nobody_answers(closed, spec):
    with pytest.raises(OutsideError, match="cannot be reached"):
        read_model(spec)


def cached(tmp_path, data):
    """Lay a config.json into the cache, the way huggingface_hub does."""
    place = tmp_path / "models--acme--model"
    (place / "snapshots" / "abc").mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc")
    (place / "snapshots" / "abc" / "config.json").write_bytes(data)


def test_unreachable_but_in_the_cache(closed, tmp_path):
    cached(tmp_path, config())
    assert count(read_model("acme/model")).total == TOTAL


def test_switched_off(closed, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OutsideError, match=r"switched off \(HF_HUB_OFFLINE\); unset"):
        read_model("acme/model")
    cached(tmp_path, config())
    assert count(read_model("acme/model")).total == TOTAL


def test_without_the_extra_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(OutsideError, match=r"pip install 'tonnage\[hub\]'"):
        read_model("acme/model")


def test_the_catalogue_and_files_ask_nobody(monkeypatch):
    monkeypatch.setattr(hub, "get", lambda *_: pytest.fail("a request was sent"))
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    assert read_model("Qwen/Qwen3.5-27B").status == "catalogue"


@pytest.mark.parametrize("address", ["file:///etc", "ftp://x", "gopher://x"])
def test_an_endpoint_is_http(monkeypatch, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("MODELSCOPE_DOMAIN", address)
    for spec in both("acme/model"):
        with pytest.raises(OutsideError, match="is not a web address"):
            read_model(spec)
