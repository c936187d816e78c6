"""The texts that a server is measured with."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from text_pipeline.default_model import corpus
from text_pipeline.errors import TextPipelineError
from text_pipeline.files.records import RecordFile
from text_pipeline.measure.measurement import PARTS

WITH_ARTICLES = "short with articles"
"""*short*, every 20th text an article of more than 512 tokens; the titles' latencies count."""
# name: texts in one pass, and how they are made
_MADE = {
    "mixed": (100, corpus.mixed),
    "short": (300, corpus.short),
    "long": (40, corpus.long),
    WITH_ARTICLES: (300, corpus.short_with_articles),
}
NAMES = tuple(_MADE)
MAX_TEXTS = 10_000
"""Texts of a file that are used: perf_analyzer keeps them all in memory."""


@dataclass(frozen=True)
class Workload:
    """Texts that are sent again and again, in this order."""

    name: str
    texts: tuple[str, ...]
    reported: Callable[[str], bool] = lambda _: True
    """Which texts' latencies are reported."""

    def requests(self, per_s: float, seconds: float, concurrency: int) -> int:
        """Requests that take about `seconds` at `per_s`, and at least two for each in flight.

        Whole passes over the texts for each third of the measurement, so that all do the same work.
        """
        unit = PARTS * len(self.texts)
        return unit * max(1, math.ceil(2 * concurrency / unit), round(seconds * per_s / unit))


def find(name: str) -> Workload:
    """One of NAMES, or a file of texts: one a line, or JSON lines with a field `text`."""
    if name in _MADE:
        count, make = _MADE[name]
        texts = tuple(make(count))
        if name == WITH_ARTICLES:
            return Workload(name, texts, frozenset(corpus.short(count)).__contains__)
        return Workload(name, texts)
    path = Path(name)
    if not path.is_file():
        raise TextPipelineError(
            f"workload {name!r}: expected {', '.join(NAMES)} or a file of texts"
        )
    found = []
    for record in RecordFile(name):
        # A blank line at the end of a file is not a text that anybody sends.
        if record["text"].strip():
            found.append(record["text"])
        if len(found) == MAX_TEXTS:
            break
    if not found:
        raise TextPipelineError(f"{name}: expected at least one text, got none")
    return Workload(path.name, tuple(found))
