"""What perf_analyzer is asked to do, and what is made of its answer."""

import numpy as np
import pytest

from load import levels
from text_pipeline.contract import CLASSIFIER, ENSEMBLE, TOKENIZER
from text_pipeline.measure import perf_analyzer
from text_pipeline.measure.measurement import Measurement
from text_pipeline.measure.perf_analyzer import Load, Run
from text_pipeline.measure.statistics import ModelStatistics
from text_pipeline.measure.workload import Workload


class Server:
    http_url, grpc_url = "127.0.0.1:1", "127.0.0.1:2"


@pytest.mark.parametrize("texts, batch", [(1, []), (64, ["-b", "64"])])
def test_several_texts_a_request_are_its_batch(
    texts: int, batch: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(perf_analyzer, "_run", lambda _, arguments, *__: asked.append(arguments))
    perf_analyzer.run(["a", "b"], Load(9, concurrency=3), Server(), texts_a_request=texts)
    [arguments] = asked
    assert arguments[3:5] == ["-m", ENSEMBLE]
    assert arguments[5:] == [*batch, "--concurrency-range", "3", "--request-count", "9"]


def test_a_level_counts_texts_not_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.arange(1, 13) / 100  # 100 requests a second
    found = Measurement(("x",) * 12, ends - 0.01, ends)
    models = dict.fromkeys((ENSEMBLE, TOKENIZER, CLASSIFIER), ModelStatistics(requests=12))
    asked: list[int] = []

    def run(*_: object, texts_a_request: int, **__: object) -> Run:
        asked.append(texts_a_request)
        return Run(found, models)

    monkeypatch.setattr(perf_analyzer, "run", run)
    level = levels.measure(
        Server(), Workload("some", ("x",)), concurrency=1, seconds=0.1, texts_a_request=8
    ).level
    assert asked == [8, 8]
    assert level.texts_per_s == pytest.approx(800, rel=0.1)
    assert level.texts_a_request == 8
