"""What is read out of perf_analyzer's requests."""

import json
from pathlib import Path

import numpy as np
import pytest

from text_pipeline.errors import TextPipelineError
from text_pipeline.measure.measurement import Measurement


def closed_loop(latencies_s: list[float]) -> Measurement:
    """One request in flight: each is sent when the one before it is answered."""
    ends = np.cumsum(latencies_s)
    texts = tuple(f"text {number}" for number in range(len(latencies_s)))
    return Measurement(texts, ends - np.array(latencies_s), ends)


def test_throughput_is_that_of_the_time_with_full_load() -> None:
    # Two in flight, 0.1 s each; the last request runs alone and longer.
    starts = np.array([0.0, 0.0, 0.1, 0.1, 0.2])
    ends = np.array([0.1, 0.1, 0.2, 0.2, 0.9])
    assert Measurement(("",) * 5, starts, ends).throughput == pytest.approx(4 / 0.2)


def test_requests_that_were_all_in_flight_together_count_until_the_last_answer() -> None:
    found = Measurement(("", ""), np.array([0.0, 0.0]), np.array([0.5, 1.0]))
    assert found.throughput == pytest.approx(2.0)


def test_latencies_can_be_those_of_some_texts() -> None:
    found = closed_loop([0.01] * 99 + [1.0])
    assert found.latency_ms(100) == pytest.approx(1000)
    assert found.latency_ms(100, lambda text: text != "text 99") == pytest.approx(10)


def test_a_run_that_slows_down_is_told_from_a_steady_one() -> None:
    steady, slowing = closed_loop([0.01] * 300), closed_loop([0.01] * 150 + [0.02] * 150)
    assert steady.spread < 0.1 < slowing.spread
    assert steady.growth == pytest.approx(0)
    assert slowing.growth == pytest.approx(1)


def test_requests_are_read_in_the_order_of_sending(tmp_path: Path) -> None:
    def request(text: str, start: int, answers: list[int]) -> dict:
        return {
            "timestamp": start,
            "request_inputs": {"text": text},
            "response_timestamps": answers,
        }

    requests = [
        request("b", 2_000_000_000, [2_500_000_000]),
        request("a", 1_000_000_000, [1_100_000_000, 1_250_000_000]),
        request("never answered", 3_000_000_000, []),
    ]
    export = tmp_path / "requests.json"
    export.write_text(json.dumps({"experiments": [{"requests": requests}]}))
    found = Measurement.read(export)
    assert found.texts == ("a", "b")
    np.testing.assert_allclose(found.latencies, [0.25, 0.5])


def test_no_answer_at_all_is_an_error(tmp_path: Path) -> None:
    export = tmp_path / "requests.json"
    export.write_text(json.dumps({"experiments": [{"requests": []}]}))
    with pytest.raises(TextPipelineError, match="no answer"):
        Measurement.read(export)
