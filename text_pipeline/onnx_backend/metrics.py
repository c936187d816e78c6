"""What the backend `onnxruntime` tells Prometheus; Triton's C++ backend counts neither of it.

Runs in Triton's Python stub, where `triton_python_backend_utils` is.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

# A batch holds at most 64 items here, and 1000 where somebody has raised max_batch_size.
BATCH_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


class Metrics:
    """Items of each run, and the labels answered.

    Each number is a message to the server and takes 17 µs, so a thread of its own passes them on
    while the answer is on its way.
    """

    def __init__(self, args: dict[str, str]) -> None:
        """Takes the arguments of the model's `initialize`."""
        self._of_model = {"model": args["model_name"], "version": args["model_version"]}
        family = pb_utils.MetricFamily
        self._batches = family(
            name="text_pipeline_batch_texts",
            description="Texts of each batch that ran",
            kind=family.HISTOGRAM,
        )
        self._batch = self._batches.Metric(labels=self._of_model, buckets=BATCH_BUCKETS)
        self._labels = family(
            name="text_pipeline_answered_labels_total",
            description="Texts answered with this label as the best",
            kind=family.COUNTER,
        )
        self._label: dict[bytes, Any] = {}
        self._thread = ThreadPoolExecutor(max_workers=1)

    def count(self, items: int, labels: Sequence[np.ndarray]) -> None:
        """Counts one run and its requests' labels, bytes [items, classes] each, best first."""
        self._thread.submit(self._pass_on, items, labels)

    def close(self) -> None:
        """Returns when everything is passed on."""
        self._thread.shutdown()

    def _pass_on(self, items: int, labels: Sequence[np.ndarray]) -> None:
        self._batch.observe(items)
        for label, number in Counter(best for part in labels for best in part[:, 0]).items():
            if label not in self._label:
                of_label = self._of_model | {"label": label.decode()}
                self._label[label] = self._labels.Metric(labels=of_label)
            self._label[label].increment(number)
