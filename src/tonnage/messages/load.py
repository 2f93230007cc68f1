"""What is said of a server under load: requests answered, and how late the latest are."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "requests": (
        "{number} requests at once: {rate} a second, first token of 99 in 100 within {first}, each further one {each}",
        "同时 {number} 个请求：每秒 {rate} 个，99% 的请求首 token 在 {first} 内、此后每 token {each} 内",
    ),
    "goodput": ("{share} of them keep the limits on latency", "其中 {share} 满足时延限制"),
}
