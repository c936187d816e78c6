"""The load runs, short, with the real perf_analyzer against embedded servers.

Here rather than with the unit tests, for perf_analyzer needs a container where glibc is old.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from load import experiments, idle, report
from load.__main__ import main
from load.experiments import Experiment, served
from tests.conftest import REPOSITORY
from text_pipeline.errors import TextPipelineError
from text_pipeline.measure import perf_analyzer
from text_pipeline.measure.perf_analyzer import Load
from text_pipeline.measure.workload import Workload
from text_pipeline.repository.configuration import Settings
from text_pipeline.server import ports
from text_pipeline.server.tritonserver import EmbeddedServer

TEXTS = tuple(f"Shares of company {number} fell" for number in range(12))


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedServer]:
    with EmbeddedServer(REPOSITORY) as server:
        yield server


def load(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("protocol", perf_analyzer.PROTOCOLS)
def test_every_request_is_one_that_the_server_counted(
    embedded: EmbeddedServer, protocol: str
) -> None:
    run = perf_analyzer.run(TEXTS, Load(24, concurrency=4), embedded, protocol=protocol)
    assert run.requests.count == 24
    assert {name: stats.requests for name, stats in run.models.items()} == {
        "text_pipeline_ensemble": 24, "text_tokenizer": 24, "text_classifier_onnx": 24,
    }  # fmt: skip
    assert sorted(run.requests.texts) == sorted(TEXTS * 2)


def test_a_sweep_writes_its_report(embedded: EmbeddedServer, tmp_path: Path) -> None:
    texts, results = tmp_path / "mine.txt", tmp_path / "results"
    texts.write_text("\n".join(TEXTS))
    done = load(
        "sweep", "--workload", texts, "--concurrency", 1, "--concurrency", 8, "--rate", 20,
        "--seconds", 0.5, "--results", results,
        "--url", embedded.grpc_url, "--metrics-url", embedded.metrics_url,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    closed_1, closed_8, opened = rows(results / "levels.csv")
    for level in (closed_1, closed_8):
        assert level["server_requests"] == level["requests"]
        assert int(level["requests"]) % (3 * len(TEXTS)) == 0, "whole passes over the texts"
    assert float(closed_8["mean_batch_size"]) > float(closed_1["mean_batch_size"]) == 1.0
    assert (opened["concurrency"], opened["rate"], opened["failures"]) == ("", "20.0", "0")
    assert (results / "report.png").read_bytes().startswith(b"\x89PNG")
    report = (results / "report.md").read_text()
    assert report.count("| mine.txt, grpc |") == 3
    assert json.loads((results / "machine.json").read_text())["processor"] in report
    watched = rows(results / "metrics.csv")
    assert 'nv_inference_pending_request_count{model="text_tokenizer",version="1"}' in watched[0]
    commands_run = (results / "commands.txt").read_text().splitlines()
    assert ["--concurrency-range 8" in line for line in commands_run] == [False, True, False]


class Exported:
    """The default model as it lies in model_repository, in place of an export."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def idle(self) -> Path:
        path = self.folder / "idle"
        if not path.exists():
            idle.copy(REPOSITORY, path)
        return path

    def get(self, *_: str) -> Path:
        return REPOSITORY


def test_an_experiment_compares_its_variants_in_interleaved_rounds(tmp_path: Path) -> None:
    experiment = Experiment(
        "Batching",
        [
            served("no batching", Settings(batching=False)),
            served("batching", Settings()),
            served("no model", idle=True),
        ],
        concurrencies=[4],
        shows_processor_time=True,
    )
    order: list[str] = []
    outcomes = experiments.run(
        experiment, Exported(tmp_path), [Workload("mine", TEXTS)],
        rounds=2, seconds=0.1, progress=order.append,
    )  # fmt: skip
    variants = [variant.name for variant in experiment.variants]
    assert [line.split(", ")[1] for line in order] == [*variants, *variants[::-1]]
    assert [len(outcome.rounds) for outcome in outcomes] == [2, 2, 2]
    report.write_experiment(tmp_path, "batching", experiment, outcomes, {"processor": "any"}, 2)
    figures = rows(tmp_path / "batching.csv")
    assert len(figures) == 6
    for figure in figures:
        assert float(figure["tritonserver_processor_s"]) > 0
        assert float(figure["text_tokenizer_processor_s"]) > 0
    table = (tmp_path / "batching.md").read_text()
    assert "| mine, 4 in flight | no batching |" in table
    assert "| text_tokenizer us | text_classifier_onnx us |" in table
    assert (tmp_path / "batching.png").read_bytes().startswith(b"\x89PNG")


def test_no_server_is_an_error_that_says_so() -> None:
    [port] = ports.free_ports(1, "127.0.0.1")
    done = load("sweep", "--url", f"127.0.0.1:{port}", "--seconds", 0.1)
    assert done.exit_code == 1
    assert f"127.0.0.1:{port}" in done.output


def test_a_repository_without_a_model_is_an_error_that_says_so(tmp_path: Path) -> None:
    done = load("sweep", "--repository", tmp_path, "--seconds", 0.1)
    assert done.exit_code == 1
    assert "has no model" in done.output


def test_what_the_server_refuses_is_an_error_with_its_answer(embedded: EmbeddedServer) -> None:
    with pytest.raises(TextPipelineError, match=r"ended with code 99.*HTTP code"):
        perf_analyzer.run_endpoint(
            [{"text": 5}], Load(4, concurrency=1), embedded.http_url,
            "v2/models/text_pipeline_ensemble/generate",
        )  # fmt: skip
