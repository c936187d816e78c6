"""Writes Grafana's dashboard: `python -m deploy.monitoring.dashboard`."""

from pathlib import Path

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.monitoring.panels import AnyPanel, buckets, graph, number

FILE = Path(__file__).parent / "grafana" / "dashboards" / "text-pipeline.json"
ENSEMBLES = '{model=~".+_ensemble"}'
STEPS = '{model!~".+_ensemble"}'
TOKENIZER = '{model="text_tokenizer"}'
CLASSIFIER = '{model="text_classifier_onnx"}'

QUEUE = "nv_inference_queue_duration_us"
DURATION = "nv_inference_request_duration_us"
INPUT, INFER, OUTPUT = (
    f"nv_inference_compute_{part}_duration_us" for part in ("input", "infer", "output")
)
SUCCESS = "nv_inference_request_success"
TEXTS = "text_pipeline_text_tokens_count"
TOKENS = "text_pipeline_text_tokens_sum"
LABELS = "text_pipeline_answered_labels_total"
NOT_FROM_CPP = "Not from Triton's C++ backend, which the GPU image has."


def rate(metric: str, selector: str = "", by: str = "") -> str:
    """The metric's sum over all servers, per second."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({metric}{selector}[$__rate_interval]))"


def per_request(*metrics: str, selector: str) -> str:
    """The seconds that these metrics, in microseconds, hold for each request to an ensemble."""
    spent = " + ".join(rate(metric, selector) for metric in metrics)
    return f"({spent}) / 1e6 / {rate(SUCCESS, ENSEMBLES)}"


def percentile(selector: str, by: str) -> str:
    """Seconds, of the slowest server: percentiles of several cannot be put together.

    README.md says what the histogram of newer servers is too coarse for.
    """
    return f"max by ({by}) (nv_inference_request_summary_us{selector}) / 1e6"


def tokens_quantile(quantile: float) -> str:
    """Tokens that so many of the texts do not have more of."""
    buckets_now = rate("text_pipeline_text_tokens_bucket", by="le")
    return f"histogram_quantile({quantile}, {buckets_now})"


def busy_instances() -> str:
    """Requests of one batch are busy together: the time of each batch, times batches a second."""
    spent = " + ".join(rate(metric, STEPS, "model") for metric in (INPUT, INFER, OUTPUT))
    batches = rate("nv_inference_exec_count", by="model")
    return f"({spent}) / 1e6 * {batches} / {rate(SUCCESS, by='model')}"


ROWS: dict[str, list[AnyPanel]] = {
    "Is it healthy?": [
        number(
            "Servers",
            {"up": 'sum(up{job="text-pipeline"})', "of": 'count(up{job="text-pipeline"})'},
            "That answer Prometheus.",
            width=4,
        ),
        number(
            "Alerts",
            {"firing": 'count(ALERTS{alertstate="firing"}) or vector(0)'},
            "Prometheus says which, under Alerts.",
            width=4,
        ),
        number(
            "Model",
            {
                "version {{version}}: {{architecture}}, {{layout}}, {{precision}} on {{device}}": (
                    "count by (version, architecture, layout, precision, device) "
                    "(text_pipeline_model_info)"
                )
            },
            "How many servers have loaded which version.",
            width=16,
        ),
        graph(
            "Requests",
            "reqps",
            {
                "answered": rate(SUCCESS, ENSEMBLES),
                "failed, {{reason}}": rate("nv_inference_request_failure", ENSEMBLES, "reason"),
            },
            "Triton counts a failure twice; OTHER holds what the tokenizer refuses.",
        ),
        graph(
            "Refused requests",
            "reqps",
            {"{{reason}}": rate("text_pipeline_rejected_requests_total", by="reason")},
            "Their senders got INVALID_ARGUMENT; the log has a line for each.",
        ),
        graph(
            "Errors",
            "percentunit",
            {"{{instance}}": "text_pipeline:error_ratio:5m"},
            "Requests that failed and were not refused, over 5 minutes.",
            limit=0.01,
        ),
    ],
    "Is it fast?": [
        graph(
            "Time of a request",
            "s",
            {"p{{quantile}}": percentile('{model="text_pipeline_ensemble"}', "quantile")},
            "From text to labels inside the server, without the network; of the slowest server.",
            width=12,
            limit=1,
        ),
        graph(
            "99th percentile of each model",
            "s",
            {"{{model}}": percentile('{quantile="0.99"}', "model")},
            "An ensemble's time holds that of its steps.",
            width=12,
        ),
    ],
    "Is it full?": [
        graph(
            "Queue time",
            "s",
            {"{{instance}}": "text_pipeline:queue_seconds:5m"},
            "How long a request waits for tokenizer and classifier, on average of 5 minutes. If it "
            "keeps rising, there is too little capacity.",
            limit=0.1,
        ),
        graph(
            "Pending requests",
            "short",
            {"{{model}}": "sum by (model) (nv_inference_pending_request_count)"},
            "Those that wait for an instance.",
        ),
        graph(
            "Instances busy",
            "short",
            {"{{model}}": busy_instances()},
            "Estimated from the times of requests, so too high where batches differ in size. As "
            "many as the model's instance_group has: full.",
        ),
        graph(
            "Batch size",
            "short",
            {
                "{{model}}": f"{rate('nv_inference_count', STEPS, 'model')} / "
                f"{rate('nv_inference_exec_count', by='model')}"
            },
            "Texts of a batch on average; at most max_batch_size, 64.",
            limit=64,
        ),
        buckets(
            "Batches of the classifier by size",
            rate("text_pipeline_batch_texts_bucket", by="le"),
            NOT_FROM_CPP,
        ),
        graph(
            "Texts of a request",
            "short",
            {"mean": f"{rate('nv_inference_count', ENSEMBLES)} / {rate(SUCCESS, ENSEMBLES)}"},
            "Health checks included.",
        ),
    ],
    "Where does the time go?": [
        graph(
            "Time of a request by step",
            "s",
            {
                "tokenizer: queue": per_request(QUEUE, selector=TOKENIZER),
                "tokenizer: work": per_request(INPUT, INFER, OUTPUT, selector=TOKENIZER),
                "classifier: queue": per_request(QUEUE, selector=CLASSIFIER),
                "classifier: tensors": per_request(INPUT, OUTPUT, selector=CLASSIFIER),
                "classifier: graph": per_request(INFER, selector=CLASSIFIER),
                "ensemble": f"{per_request(DURATION, selector=ENSEMBLES)} - "
                f"{per_request(DURATION, selector=STEPS)}",
            },
            "On average; a request takes as long as the whole batch that it is in.",
            width=24,
            stacked=True,
        ),
    ],
    "What is it fed?": [
        graph(
            "Tokens of a text",
            "short",
            {
                "median": tokens_quantile(0.5),
                "p95": tokens_quantile(0.95),
                "mean": f"{rate(TOKENS)} / {rate(TEXTS)}",
            },
            "As the model saw it.",
        ),
        graph(
            "Texts and tokens a second",
            "short",
            {"texts": rate(TEXTS), "tokens": rate(TOKENS)},
            "Without health checks.",
        ),
        graph(
            "Cut texts",
            "percentunit",
            {
                "last 30 minutes": "text_pipeline:truncated_ratio:30m",
                "day before": "text_pipeline:truncated_ratio:1d",
            },
            "Longer than the model takes, or than max_tokens.",
        ),
        graph(
            "Labels",
            "percentunit",
            {
                "{{label}}": f"{rate(LABELS, by='label')} / ignoring (label) group_left "
                f"{rate(LABELS)}"
            },
            f"The best label of each text. {NOT_FROM_CPP}",
            width=12,
            stacked=True,
        ),
        graph(
            "Label drift",
            "percentunit",
            {"last hour": "text_pipeline:label_drift"},
            "The part of the last hour's labels that are other ones than the day before.",
            width=12,
            limit=0.2,
        ),
    ],
    "GPU": [
        graph(
            "GPU utilisation",
            "percentunit",
            {"{{gpu_uuid}}": "nv_gpu_utilization"},
            "Whether anything ran, not how much of the GPU it used.",
        ),
        graph(
            "GPU memory in use",
            "percentunit",
            {"{{gpu_uuid}}": "nv_gpu_memory_used_bytes / nv_gpu_memory_total_bytes"},
            "A fifth stays free.",
            limit=0.8,
        ),
        graph(
            "GPU power",
            "watt",
            {"{{gpu_uuid}}": "nv_gpu_power_usage", "limit of {{gpu_uuid}}": "nv_gpu_power_limit"},
            "Near its limit the GPU slows down.",
        ),
    ],
    "CPU": [
        graph(
            "CPU utilisation",
            "percentunit",
            {"{{instance}}": "nv_cpu_utilization"},
            "Of the whole machine, not of the server alone.",
            width=12,
        ),
        graph(
            "Memory in use",
            "percentunit",
            {"{{instance}}": "nv_cpu_memory_used_bytes / nv_cpu_memory_total_bytes"},
            "Of the whole machine.",
            width=12,
        ),
    ],
}


def build() -> str:
    """The dashboard as JSON."""
    board = dashboard.Dashboard("Text pipeline").uid("text-pipeline").readonly()
    board.refresh("10s").time("now-1h", "now")
    for row, (title, panels) in enumerate(ROWS.items(), start=1):
        board.with_row(dashboard.Row(title).id(100 * row))
        for index, panel in enumerate(panels, start=1):
            board.with_panel(panel.id(100 * row + index))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


if __name__ == "__main__":
    FILE.write_text(build())
