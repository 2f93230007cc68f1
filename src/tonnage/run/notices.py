"""Notices that a cloud is about to take a machine away, read from its metadata address.

Sources: Amazon EC2 User Guide, "Spot Instance interruption notices" (`spot/instance-action` 404 or JSON with action and
time; session token by PUT, every 5 s); Google Compute Engine, "Create and use preemptible VMs" (`instance/preempted`
TRUE or FALSE, 30 s); Azure, "Scheduled Events for Linux VMs" (`EventType` Preempt, `NotBefore`, 30 s and more); Alibaba
Cloud ECS, "Query the interruption events of preemptible instances" (`instance/spot/termination-time`, a time or nothing);
Tencent Cloud CVM, "Querying instance metadata" (`spot/termination-time`, a time or 404).
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Final

from tonnage.nouns import noun

__all__ = ["CLOUDS", "Notice", "read_notice", "watch_notices"]

CLOUDS: Final = ("aws", "gcp", "azure", "aliyun", "tencent")
_ADDRESS: Final = {
    "aws": "http://169.254.169.254",
    "gcp": "http://metadata.google.internal",
    "azure": "http://169.254.169.254",
    "aliyun": "http://100.100.100.200",
    "tencent": "http://metadata.tencentyun.com",
}
_TIMEOUT_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 5.0
_LARGEST_BYTES: Final = 1 << 20
_SHORTEST_SECONDS: Final = 25.0  # what Google and Azure leave, less the time between two looks
_MARGIN_SECONDS: Final = 10.0


@noun
class Notice:
    """A machine is going to be taken away."""

    cloud: str
    seconds_left: float


def read_notice(cloud: str, url: str | None = None) -> Notice | None:
    """Return the notice that a cloud has out for this machine; None where it has none.

    Raises
    ------
    OSError
        Nothing answers there: another cloud, or none.
    """
    base = (url or _ADDRESS[cloud]).rstrip("/")
    ask = {"aws": _aws, "gcp": _gcp, "azure": _azure, "aliyun": _aliyun, "tencent": _tencent}
    return ask[cloud](base)


def _aws(base: str) -> Notice | None:
    ask = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _get(f"{base}/latest/api/token", ask, method="PUT")
    if token is None:
        raise OSError("no token")
    text = _get(f"{base}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    if text is None:
        return None
    when = _object(text).get("time")
    return Notice(cloud="aws", seconds_left=_left(_iso(when)))


def _gcp(base: str) -> Notice | None:
    text = _get(f"{base}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    if text is None:
        raise OSError("not there")
    return Notice(cloud="gcp", seconds_left=_SHORTEST_SECONDS) if text.strip().upper() == "TRUE" else None


def _azure(base: str) -> Notice | None:
    text = _get(f"{base}/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    if text is None:
        raise OSError("not there")
    events = _object(text).get("Events")
    for one in events if isinstance(events, list) else ():
        if isinstance(one, dict) and one.get("EventType") in ("Preempt", "Terminate"):
            return Notice(cloud="azure", seconds_left=_left(_mail_date(one.get("NotBefore"))))
    return None


def _aliyun(base: str) -> Notice | None:
    ask = {"X-aliyun-ecs-metadata-token-ttl-seconds": "60"}
    token = _get(f"{base}/latest/api/token", ask, method="PUT")
    if token is None:
        raise OSError("no token")
    text = _get(f"{base}/latest/meta-data/instance/spot/termination-time", {"X-aliyun-ecs-metadata-token": token})
    when = _iso(text.strip()) if text else None
    return None if when is None else Notice(cloud="aliyun", seconds_left=_left(when))


def _tencent(base: str) -> Notice | None:
    if _get(f"{base}/latest/meta-data/instance-id", {}) is None:
        raise OSError("not there")
    text = _get(f"{base}/latest/meta-data/spot/termination-time", {})
    when = _iso(text.strip()) if text else None
    return None if when is None else Notice(cloud="tencent", seconds_left=_left(when))


def _get(url: str, headers: dict[str, str], method: str = "GET") -> str | None:
    """Return what an address answers, past any proxy; None where it has no such page."""
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310  http, by our own table or the person's
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.read(_LARGEST_BYTES).decode(errors="replace")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 405):
            return None
        raise OSError(f"answers {error.code}") from None


def _object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _iso(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def _mail_date(text: object) -> datetime | None:
    try:
        return parsedate_to_datetime(str(text))
    except (TypeError, ValueError):
        return None


def _left(when: datetime | None) -> float:
    """Return the seconds until a time, less a margin; what a short notice leaves where the time is not said."""
    if when is None:
        return _SHORTEST_SECONDS
    aware = when if when.tzinfo else when.replace(tzinfo=timezone.utc)  # noqa: UP017  3.11 has it, the name is older
    return max(1.0, (aware - datetime.now(tz=timezone.utc)).total_seconds() - _MARGIN_SECONDS)  # noqa: UP017


@contextlib.contextmanager
def watch_notices(
    cloud: str, url: str | None, ask: Callable[[str, float], None], every_seconds: float = _EVERY_SECONDS
) -> Iterator[None]:
    """Ask for a stop when a notice comes, as long as the block runs.

    Parameters
    ----------
    cloud : str
        One of `CLOUDS`, "auto" to find out which answers, or "off".
    url : str or None
        In place of the cloud's own address.
    ask : callable
        Called once with a reason and the seconds that are left.
    every_seconds : float
        Between two looks. [s]
    """
    if cloud == "off":
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(cloud, url, ask, every_seconds, over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()


def _watch(
    cloud: str, url: str | None, ask: Callable[[str, float], None], every_seconds: float, over: threading.Event
) -> None:
    candidates = list(CLOUDS if cloud == "auto" else (cloud,))
    while not over.is_set():
        for one in tuple(candidates):
            try:
                notice = read_notice(one, url)
            except (OSError, ValueError):  # a silent address is asked again; of several, the first to answer stays
                continue
            candidates = [one]
            if notice is not None and not over.is_set():
                ask(f"{one} notice", notice.seconds_left)
                return
        over.wait(every_seconds)
