"""Notices of three clouds, from a metadata address on loopback; nothing waits where nobody answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from validation.fake_bundle import write_bundle
from validation.faults import FAST

from tonnage import api
from tonnage.run import notices


def soon(seconds):
    return datetime.now(tz=UTC) + timedelta(seconds=seconds)


TIMES = {
    "aliyun": "/latest/meta-data/instance/spot/termination-time",
    "tencent": "/latest/meta-data/spot/termination-time",
}


class Metadata(BaseHTTPRequestHandler):
    cloud, is_taken = "aws", False

    def do_PUT(self):
        life = {"aws": "X-aws-ec2-metadata-token-ttl-seconds", "aliyun": "X-aliyun-ecs-metadata-token-ttl-seconds"}
        if self.path == "/latest/api/token" and self.headers[life.get(self.cloud, "none")]:
            self.answer("secret")
        else:
            self.send_error(404)

    def do_GET(self):
        headers, path = self.headers, self.path
        if self.cloud == "aws" and path == "/latest/meta-data/spot/instance-action":
            if headers["X-aws-ec2-metadata-token"] != "secret":
                self.send_error(401)
            elif self.is_taken:
                self.answer(json.dumps({"action": "terminate", "time": soon(120).strftime("%Y-%m-%dT%H:%M:%SZ")}))
            else:
                self.send_error(404)
        elif (
            self.cloud == "gcp"
            and path == "/computeMetadata/v1/instance/preempted"
            and headers["Metadata-Flavor"] == "Google"
        ):
            self.answer("TRUE" if self.is_taken else "FALSE")
        elif (
            self.cloud == "azure"
            and path.startswith("/metadata/scheduledevents?api-version=")
            and headers["Metadata"] == "true"
        ):
            event = {"EventType": "Preempt", "NotBefore": format_datetime(soon(40), usegmt=True)}
            self.answer(json.dumps({"DocumentIncarnation": 1, "Events": [event] if self.is_taken else []}))
        elif self.cloud == "tencent" and path == "/latest/meta-data/instance-id":
            self.answer("ins-1")
        elif self.is_taken and path == TIMES.get(self.cloud):
            if self.cloud == "aliyun" and headers["X-aliyun-ecs-metadata-token"] != "secret":
                self.send_error(403)
            else:
                self.answer(soon(100).strftime("%Y-%m-%dT%H:%M:%SZ"))
        else:
            self.send_error(404)

    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def metadata():
    handler = type("Handler", (Metadata,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("cloud", "least", "most"),
    [("aws", 100, 111), ("gcp", 10, 30), ("azure", 20, 31), ("aliyun", 80, 91), ("tencent", 80, 91)],
)
def test_a_notice_is_read(metadata, cloud, least, most):
    handler, url = metadata
    handler.cloud = cloud
    assert notices.read_notice(cloud, url) is None
    handler.is_taken = True
    notice = notices.read_notice(cloud, url)
    assert notice.cloud == cloud
    assert least < notice.seconds_left < most


@pytest.mark.parametrize(
    "other", [("aws", "gcp"), ("gcp", "azure"), ("azure", "aws"), ("aws", "aliyun"), ("aliyun", "tencent")]
)
def test_another_cloud_does_not_answer(metadata, other):
    handler, url = metadata
    handler.cloud = other[0]
    with pytest.raises(OSError, match="no"):
        notices.read_notice(other[1], url)


def test_who_answers_is_found_and_asked(metadata):
    handler, url = metadata
    handler.cloud = "gcp"
    asked = threading.Event()
    found = []
    with notices.watch_notices("auto", url, lambda *words: (found.append(words), asked.set()), 0.02):
        time.sleep(0.1)
        assert not found
        handler.is_taken = True
        assert asked.wait(5)
    assert found[0][0] == "gcp notice"


def test_nothing_waits_where_nobody_answers():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begun = time.monotonic()
        with notices.watch_notices("aws", f"http://127.0.0.1:{silent.getsockname()[1]}", lambda *_: None):
            pass
        assert time.monotonic() - begun < 0.5
        with pytest.raises(OSError, match="timed out"):
            notices.read_notice("aws", f"http://127.0.0.1:{silent.getsockname()[1]}")


def test_off_is_off(monkeypatch):
    monkeypatch.setattr(notices, "read_notice", lambda *_: pytest.fail("asked"))
    with notices.watch_notices("off", None, lambda *_: None, 0.0):
        time.sleep(0.02)


def test_a_run_stops_with_a_checkpoint_in_the_time_that_is_left(metadata, tmp_path):
    handler, url = metadata
    handler.cloud = "gcp"

    def watch(update):
        handler.is_taken = handler.is_taken or (update.step is not None and update.step.step >= 3)

    place = write_bundle(tmp_path / "b", num_steps=400, save_every=300)
    state = api.run(str(place), watch=watch, **{**FAST, "notice": "auto", "notice_url": url, "notice_seconds": 0.02})
    assert (state.status, state.exit_code, state.attempts[0].detail.partition(" (")[0]) == ("stopped", 75, "gcp notice")
    assert 3 <= int(state.last_checkpoint.removeprefix("step-")) < 400
