"""What `tonnage bench` says."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "title": ("{model} at {url}, {api}", "{url} 上的 {model}，{api}"),
    "open": ("{num} requests sent when due, {rate:.3g}/s on average", "按时发送 {num} 个请求，平均 {rate:.3g}/秒"),
    "closed": ("{num} requests, {clients} in flight", "{num} 个请求，{clients} 个在途"),
    "ended": ("{ok} of {num} ended well in {span}", "{num} 个请求中 {ok} 个正常结束，用时 {span}"),
    "error": ("{number} × {kind}: {reason}", "{number} × {kind}：{reason}"),
    "what": ("time", "时间"),
    "ttft": ("to the first token (TTFT)", "首个 token（TTFT）"),
    "tpot": ("per token after (TPOT)", "后续每个 token（TPOT）"),
    "gap": ("longest gap in a stream", "流内最长间隔"),
    "e2e": ("end to end", "端到端"),
    "predicted": ("plan", "方案"),
    "rates": (
        "{qps:.3g} requests/s, {tokens:,.0f} output tokens/s; within the limits {kept:.1%}, goodput {goodput:.3g}/s",
        "{qps:.3g} 请求/秒，输出 {tokens:,.0f} token/秒；满足限制 {kept:.1%}，有效吞吐 {goodput:.3g}/秒",
    ),
    "plan_rate": (
        "the plan predicts {best:,.0f} output tokens/s ({low:,.0f} to {high:,.0f})",
        "方案预测输出 {best:,.0f} token/秒（{low:,.0f} 至 {high:,.0f}）",
    ),
    "client": (
        "client: {busy} of a core, requests sent {late} late at P99",
        "客户端：占用 {busy} 个核，P99 发送延迟 {late}",
    ),
    "limited": (
        "the client itself was the limit: these figures are of it, not of the server; use fewer requests or more clients",
        "瓶颈在客户端：以上数字反映的是客户端而非服务器；请减少请求或使用更多客户端",
    ),
    "few": (
        "too few requests for {names}: at least {number} are needed",
        "请求太少，{names} 不可靠：至少需要 {number} 个",
    ),
    "lengths": (
        "prompts have {input:.0f} tokens on average and answers {output:.0f}; asked were {asked_input:.0f} and {asked_output:.0f}",
        "提示平均 {input:.0f} token，回答 {output:.0f}；要求为 {asked_input:.0f} 与 {asked_output:.0f}",
    ),
    "saved": ("Written to {path}", "已写入 {path}"),
    "told": ("{number} requests ended", "已完成 {number} 个请求"),
}
