"""What Triton counts, between two moments."""

from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2

from tests.unit.onnx_backend import ragged_model
from tests.unit.server.test_tritonserver import make_server
from text_pipeline.contract import CLASSIFIER, ENSEMBLE, TOKENIZER
from text_pipeline.errors import TextPipelineError
from text_pipeline.measure.statistics import ServerStatistics


def statistics(requests: int, batches: dict[int, int]) -> ServerStatistics:
    """Every request took 5 ms, of them 2 in the queue."""

    def model(name: str) -> service_pb2.ModelStatistics:
        found = service_pb2.ModelStatistics(name=name, execution_count=sum(batches.values()))
        found.inference_stats.success.count = requests
        found.inference_stats.success.ns = requests * 5_000_000
        found.inference_stats.queue.ns = requests * 2_000_000
        found.inference_stats.fail.count = requests // 10
        for size, count in batches.items():
            found.batch_stats.add(batch_size=size).compute_infer.count = count
        return found

    return ServerStatistics({name: model(name) for name in (ENSEMBLE, TOKENIZER, CLASSIFIER)})


def test_only_what_happened_in_between_counts() -> None:
    before, after = statistics(10, {1: 10}), statistics(50, {1: 20, 5: 6})
    found = after.since(before)[CLASSIFIER]
    assert (found.requests, found.failures, found.executions) == (40, 4, 16)
    assert found.total_ms == pytest.approx(5)
    assert found.queue_ms == pytest.approx(2)
    assert found.batch_sizes == {1: 10, 5: 6}
    assert found.mean_batch_size == pytest.approx(40 / 16)
    assert after.answered == 55


def test_nothing_in_between_is_zero() -> None:
    same = statistics(10, {1: 10})
    found = same.since(same)[ENSEMBLE]
    assert (found.requests, found.total_ms, found.mean_batch_size) == (0, 0.0, 0.0)


def test_a_server_without_the_pipeline_is_named(tmp_path: Path) -> None:
    with (
        make_server(ragged_model.write(tmp_path, ragged_model.config())) as server,
        pytest.raises(TextPipelineError, match=f"{server.grpc_url} has no model {ENSEMBLE}"),
    ):
        ServerStatistics.read(server.grpc_url)
