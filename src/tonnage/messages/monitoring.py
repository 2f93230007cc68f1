"""What the files that watch a plan say."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "prometheus": ("where Prometheus finds the metrics", "Prometheus 采集配置"),
    "rules": ("recording and alert rules with the plan's numbers", "按方案数字生成的记录与告警规则"),
    "rules_test": ("a test of each rule: promtool test rules", "每条规则的测试：promtool test rules"),
    "alertmanager": ("who is told of alerts", "告警通知对象"),
    "alerts": ("what each alert means and what to do", "每条告警的含义与应对"),
    "title": ("Alerts", "告警"),
    "wrong": ("It would be wrong where", "以下情况属误报"),
}
