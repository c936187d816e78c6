"""What the server tells about itself: metrics, dashboard, alerts, traces and log."""

import json
import re
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
import yaml
from tritonclient.utils import InferenceServerException

from deploy.monitoring import dashboard, picture
from tests.conftest import REPOSITORY, Server
from tests.integration.protocols import infer
from tests.monitoring.conftest import ANSWERED, SECRET, Monitored
from tests.monitoring.prometheus import CONFIGURATION, promtool
from text_pipeline.contract import TOKENIZER
from text_pipeline.server.tritonserver import EmbeddedServer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCUMENTATION = (ROOT / "deploy" / "monitoring" / "README.md").read_text()
RULES = [
    rule
    for group in yaml.safe_load((CONFIGURATION / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
# A metric's name and its selector, in PromQL.
SELECTOR = re.compile(r"\b(?:up|ALERTS|(?:nv|text_pipeline)[\w:]+)\b(?:\{[^}]*\})?")


def dashboard_queries() -> list[str]:
    panels = json.loads(dashboard.FILE.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def selectors(query: str) -> set[str]:
    """The series that a query reads."""
    return set(SELECTOR.findall(query))


@pytest.mark.parametrize("file", ["alerts.yml", "alerts_of_a_day.yml"])
def test_every_alert_fires_when_it_must_and_only_then(file: str) -> None:
    promtool("test", "rules", HERE / file)


def test_every_alert_is_tested() -> None:
    tested = set(
        re.findall(r"alertname: (\w+)", "".join(p.read_text() for p in HERE.glob("*.yml")))
    )
    assert tested == {rule["alert"] for rule in RULES if "alert" in rule}


def test_the_configuration_is_valid() -> None:
    promtool("check", "config", CONFIGURATION / "prometheus.yml")


def test_the_dashboard_is_what_its_source_builds() -> None:
    assert dashboard.FILE.read_text() == dashboard.build()


def test_every_query_of_the_dashboard_returns_data(monitored: Monitored) -> None:
    queries = dashboard_queries()
    assert queries
    for query in queries:
        now = query.replace("$__rate_interval", "30s")
        assert monitored.prometheus.values(now), query


def test_every_graph_of_the_dashboard_can_be_drawn(monitored: Monitored) -> None:
    panels = json.loads(dashboard.FILE.read_text())["panels"]
    graphs = [panel["title"] for panel in panels if panel["type"] == "timeseries"]
    figure = picture.draw(f"http://{monitored.prometheus.url}", minutes=0.5)
    titles = [axes.get_title() for axes in figure.axes]
    assert [title.split(" (")[0] for title in titles] == graphs


def test_every_rule_runs_and_finds_the_series_that_it_reads(monitored: Monitored) -> None:
    for group in monitored.prometheus.get("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", rule
    for rule in RULES:
        for selector in selectors(rule["expr"]):
            assert monitored.prometheus.values(selector), (rule, selector)


def test_nothing_is_alerted_under_a_small_load(monitored: Monitored) -> None:
    alerts = monitored.prometheus.get("alerts")["alerts"]
    assert [alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"] == []


def test_texts_tokens_and_labels_are_counted_without_health_checks(monitored: Monitored) -> None:
    (counted,) = monitored.prometheus.values("sum(text_pipeline_text_tokens_count)")
    (all_below,) = monitored.prometheus.values('text_pipeline_text_tokens_bucket{le="+Inf"}')
    (tokens,) = monitored.prometheus.values("text_pipeline_text_tokens_sum")
    (labels,) = monitored.prometheus.values("sum(text_pipeline_answered_labels_total)")
    assert counted == all_below == ANSWERED
    assert tokens > 5 * ANSWERED
    assert labels == ANSWERED - 1


def test_buckets_hold_what_their_limits_say(monitored: Monitored) -> None:
    buckets = {
        int(limit): int(count)
        for limit, count in re.findall(
            r'^text_pipeline_text_tokens_bucket\{le="(\d+)".*\} (\d+)$',
            monitored.metrics(),
            re.MULTILINE,
        )
    }
    counts = [count for _, count in sorted(buckets.items())]
    assert counts == sorted(counts)
    # Two texts of the load were cut to 8 tokens, and no text has more than 512.
    assert buckets[8] >= 1
    assert buckets[512] == buckets[8192] == ANSWERED


def test_refused_requests_are_counted_by_reason(monitored: Monitored) -> None:
    refused = {
        series["metric"]["reason"]: int(series["value"][1])
        for series in monitored.prometheus.get(
            "query", query="text_pipeline_rejected_requests_total"
        )["result"]
    }
    assert refused == {"utf8": 1, "empty": 0, "too_long": 1, "parameter": 2}
    # They are no errors of the server.
    (ratio,) = monitored.prometheus.values("text_pipeline:error_ratio:5m")
    assert ratio == pytest.approx(0, abs=1e-9)


def test_a_dead_process_is_errors() -> None:
    with EmbeddedServer(REPOSITORY) as server:
        (stub,) = (
            process
            for process in psutil.Process(server.pid).children()
            if any(TOKENIZER in argument for argument in process.cmdline())
        )
        stub.kill()
        urls = Server(server.http_url, server.grpc_url)
        with pytest.raises(InferenceServerException, match="not healthy"):
            infer(urls, "grpc", ["A text."])
        with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as page:
            metrics = page.read().decode()
        # Triton would wait for what the dead process was to answer.
        server.stop(grace_s=0)
    # What text_pipeline:failed_requests:rate5m in rules.yml makes of them is in alerts.yml.
    failures = re.findall(r'failure\{model="(\w+)",reason="(\w+)".* ([1-9]\d*)$', metrics, re.M)
    assert sorted(failures) == [
        ("text_pipeline_ensemble", "OTHER", "2"),
        ("text_tokenizer", "BACKEND", "1"),
    ]


def test_the_model_says_how_it_was_exported(monitored: Monitored) -> None:
    (line,) = re.findall(r"^text_pipeline_model_info\{(.*)\} 1$", monitored.metrics(), re.MULTILINE)
    assert dict(re.findall(r'(\w+)="(\w+)"', line)) == {
        "version": "1",
        "architecture": "BertForSequenceClassification",
        "layout": "packed",
        "device": "cpu",
        "precision": "fp32",
        "max_tokens": "512",
    }


def test_every_metric_is_documented(monitored: Monitored) -> None:
    own = set(re.findall(r"^# TYPE (text_pipeline_\w+) ", monitored.metrics(), re.MULTILINE))
    read = {
        re.match(r"[\w:]+", selector)[0]
        for query in [*dashboard_queries(), *(rule["expr"] for rule in RULES)]
        for selector in selectors(query)
    }
    documented = set(re.findall(r"`([\w:]+)`", DOCUMENTATION))
    assert own | read <= documented


def test_the_trace_of_a_request_holds_every_step(monitored: Monitored) -> None:
    # Spans are sent in batches, at the latest after 5 s.
    deadline = time.monotonic() + 10
    while not (traces := whole_traces(monitored)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    spans = traces[0]
    (ensemble,) = (s for s in spans if s["name"] == "text_pipeline_ensemble")
    steps = {s["name"]: s for s in spans if s.get("parentSpanId") == ensemble["spanId"]}
    assert set(steps) == {"text_tokenizer", "text_classifier_onnx"}
    for step in steps.values():
        (compute,) = (s for s in spans if s.get("parentSpanId") == step["spanId"])
        assert compute["name"] == "compute"
        assert ensemble["startTimeUnixNano"] <= compute["startTimeUnixNano"]
        assert compute["endTimeUnixNano"] <= ensemble["endTimeUnixNano"]


def whole_traces(monitored: Monitored) -> list[list[dict]]:
    """The spans of each trace of a classification whose root is there."""
    traces: dict[str, list[dict]] = {}
    for span in monitored.traces.spans():
        traces.setdefault(span["traceId"], []).append(span)
    return [
        spans
        for spans in traces.values()
        if any(s["name"] == "InferRequest" for s in spans)
        and any(s["name"] == "text_classifier_onnx" for s in spans)
        and any(s["name"] == "text_pipeline_ensemble" for s in spans)
    ]


def test_a_refused_request_is_one_line_of_log_and_no_text(monitored: Monitored) -> None:
    log = monitored.log.read_text()
    lines = re.findall(r'"rejected (.*)"$', log, re.MULTILINE)
    assert sorted(lines) == [
        "reason=parameter request_id=-",
        "reason=parameter request_id=-",
        "reason=too_long request_id=-",
        "reason=utf8 request_id=-",
    ]
    assert "Starting Python backend stub" in log, "the log is verbose"
    assert SECRET not in log
    assert not any(SECRET.encode() in body for body in monitored.traces.received)
