"""The server's own metrics while it is loaded, once a second."""

import csv
import http.client
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from text_pipeline.client import rest

INTERVAL_S = 1.0
TIMEOUT_S = 5.0
# Of Triton's metrics; those of GPUs and models have labels.
_WATCHED = (
    "nv_inference_pending_request_count",
    "nv_cpu_utilization",
    "nv_cpu_memory_used_bytes",
    "nv_gpu_utilization",
    "nv_gpu_memory_used_bytes",
    "nv_gpu_power_usage",
)
_LINE = re.compile(rf"^((?:{'|'.join(_WATCHED)})(?:\{{[^}}]*\}})?) (\S+)$", re.MULTILINE)

Sample = tuple[float, dict[str, float]]
"""Seconds since the watch began, and the value of each series."""


@contextmanager
def watching(url: str | None) -> Iterator[list[Sample]]:
    """Reads the metrics endpoint at `host:port` in the background, inside the block.

    A server that gives none, or stops giving them, is watched no further: the load run says itself
    what is wrong with it.
    """
    samples: list[Sample] = []
    if url is None:
        yield samples
        return
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(url, samples, ended), daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _watch(url: str, samples: list[Sample], ended: threading.Event) -> None:
    started = time.monotonic()
    while not ended.wait(INTERVAL_S):
        try:
            _, metrics = rest.request(url, TIMEOUT_S, "GET", "/metrics")
        except (OSError, http.client.HTTPException):
            return
        values = {series: float(value) for series, value in _LINE.findall(metrics)}
        samples.append((time.monotonic() - started, values))


def write(samples: Sequence[Sample], path: Path) -> None:
    """CSV: a row for each sample, a column for each series."""
    names = sorted({name for _, values in samples for name in values})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", *names])
        for seconds, values in samples:
            writer.writerow([f"{seconds:.1f}", *(values.get(name, "") for name in names)])
