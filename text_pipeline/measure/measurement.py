"""What a load run measured, request by request."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from text_pipeline.errors import TextPipelineError

PARTS = 3
"""A measurement is stable if its thirds, in the order of sending, agree."""
TOLERANCE = 0.15
"""By how much the throughput of two thirds may differ: perf_analyzer's own limit is 0.1 for windows
of one length; these have one number of requests and end within a batch."""


@dataclass(frozen=True)
class Measurement:
    """The answered requests of one load; times are in seconds."""

    texts: tuple[str, ...]
    starts: NDArray[np.float64]
    """When each request was sent, ascending."""
    ends: NDArray[np.float64]
    processor_s: Mapping[str, float] = field(default_factory=dict)
    """Processor time of the server's processes meanwhile, by name; empty where it was not read."""

    @classmethod
    def read(cls, export: Path) -> "Measurement":
        """Reads a file that perf_analyzer wrote for --profile-export-file."""
        requests = [
            request
            for experiment in json.loads(export.read_text(encoding="utf-8"))["experiments"]
            for request in experiment["requests"]
            if request["response_timestamps"]
        ]
        if not requests:
            raise TextPipelineError("perf_analyzer got no answer to any request")
        requests.sort(key=lambda request: request["timestamp"])
        return cls(
            # Other services than Triton get a `payload`.
            tuple(str(next(iter(r["request_inputs"].values()))) for r in requests),
            np.array([r["timestamp"] for r in requests]) / 1e9,
            np.array([r["response_timestamps"][-1] for r in requests]) / 1e9,
        )

    @property
    def count(self) -> int:
        """Requests that were answered."""
        return len(self.starts)

    @property
    def latencies(self) -> NDArray[np.float64]:
        """Seconds from sending to the answer, in the order of sending."""
        return self.ends - self.starts

    @property
    def throughput(self) -> float:
        """Texts a second from the first to the last request sent; till then the load is full."""
        return _rate(self.starts, self.ends, self.starts[0], self.starts[-1])

    def latency_ms(self, percentile: float, of: Callable[[str], bool] = lambda _: True) -> float:
        """A percentile of the latencies in milliseconds; `of` chooses texts."""
        chosen = [of(text) for text in self.texts]
        return float(np.percentile(self.latencies[chosen], percentile)) * 1000

    @property
    def spread(self) -> float:
        """The fastest third's throughput over the slowest one's, minus 1."""
        edges = np.linspace(self.starts[0], self.starts[-1], PARTS + 1)
        rates = [_rate(self.starts, self.ends, *edges[i : i + 2]) for i in range(PARTS)]
        return max(rates) / min(rates) - 1 if min(rates) > 0 else float("inf")

    @property
    def growth(self) -> float:
        """The median latency of the last third over the first one's, minus 1."""
        first, *_, last = np.array_split(self.latencies, PARTS)
        return float(np.median(last) / np.median(first)) - 1


def _rate(
    starts: NDArray[np.float64], ends: NDArray[np.float64], begin: float, end: float
) -> float:
    """Answers a second within [begin, end]."""
    if end <= begin:
        # All requests were in flight together.
        begin, end = starts[0], ends.max()
    return float(((ends >= begin) & (ends <= end)).sum() / (end - begin))
