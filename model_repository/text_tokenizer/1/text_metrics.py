"""What `text_tokenizer` tells Prometheus, on Triton's metrics endpoint."""

import time
from collections import deque
from threading import Event, Thread

import numpy as np
import triton_python_backend_utils as pb_utils

REJECTION_REASONS = ("utf8", "empty", "too_long", "parameter")
# Titles have about ten tokens, articles hundreds; most models take 512, a few 8192.
TOKEN_BUCKETS = (8, 16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192)
FLUSH_INTERVAL_S = 1
EXPORT_FACTS = ("architecture", "layout", "device", "precision", "max_tokens")


class Metrics:
    """One instance's counts. Where Triton's metrics are switched off, nobody reads them.

    Each number is a message to the server and takes 17 µs. So requests only leave theirs here, and
    once a second a thread adds them up and passes them on: a message for each text, as Triton's own
    histograms take it, made this model's step a third longer for requests of 64 texts.
    """

    def __init__(self, args: dict, report: dict) -> None:
        """Takes `initialize`'s arguments, and the classifier's export report if there is one."""
        kind = pb_utils.MetricFamily
        # Metrics end with their family.
        self._families: list = []
        self._version = {"version": args["model_version"]}
        tokens = "tokens of each text as the model saw it"
        buckets = self._family("text_tokens_bucket", f"Histogram: {tokens}", kind.COUNTER)
        self._buckets = [self._metric(buckets, le=le) for le in (*TOKEN_BUCKETS, "+Inf")]
        self._sum, self._count, self._truncated = (
            self._metric(self._family(name, description, kind.COUNTER))
            for name, description in (
                ("text_tokens_sum", f"Sum: {tokens}"),
                ("text_tokens_count", "Texts answered"),
                ("truncated_texts_total", "Texts that were cut to the limit"),
            )
        )
        rejected = self._family(
            "rejected_requests_total", "Requests refused with INVALID_ARGUMENT", kind.COUNTER
        )
        self._rejected = {
            reason: self._metric(rejected, reason=reason) for reason in REJECTION_REASONS
        }
        info = self._family("model_info", "How the model was exported; always 1", kind.GAUGE)
        self._info = self._metric(
            info, **{name: report.get(name, "unknown") for name in EXPORT_FACTS}
        )
        self._info.set(1)
        loaded = self._family(
            "loaded_timestamp_seconds", "When this version was loaded, Unix time", kind.GAUGE
        )
        self._loaded = self._metric(loaded)
        self._loaded.set(time.time())
        self._pending: deque[tuple[np.ndarray, np.ndarray]] = deque()
        self._closed = Event()
        self._thread = Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def count_texts(self, counts: np.ndarray, truncated: np.ndarray) -> None:
        """Counts one request's texts: their tokens and whether they were cut, [texts, 1] each."""
        self._pending.append((counts, truncated))

    def count_rejected(self, reason: str) -> None:
        """Counts a request that got an error, for one of REJECTION_REASONS."""
        self._rejected[reason].increment(1)

    def close(self) -> None:
        """Returns when everything is passed on."""
        self._closed.set()
        self._thread.join()

    def _pass_on(self) -> None:
        last = False
        while not last:
            last = self._closed.wait(FLUSH_INTERVAL_S)
            batch = [self._pending.popleft() for _ in range(len(self._pending))]
            if batch:
                counts, truncated = (np.concatenate(parts) for parts in zip(*batch, strict=True))
                for limit, metric in zip((*TOKEN_BUCKETS, np.inf), self._buckets, strict=True):
                    metric.increment(int((counts <= limit).sum()))
                self._sum.increment(int(counts.sum()))
                self._count.increment(len(counts))
                self._truncated.increment(int(truncated.sum()))

    def _family(self, name: str, description: str, kind):
        self._families.append(
            pb_utils.MetricFamily(name=f"text_pipeline_{name}", description=description, kind=kind)
        )
        return self._families[-1]

    def _metric(self, family, **labels: object):
        return family.Metric(labels=self._version | {k: str(v) for k, v in labels.items()})
