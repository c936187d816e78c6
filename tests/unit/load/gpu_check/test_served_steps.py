"""The service under load: what is measured of a server, whichever one it is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from load import levels
from load.gpu_check import compose, memory, served_steps, suite, warm_up
from load.gpu_check.record import Record
from load.gpu_check.served_steps import Served
from load.levels import Level, Measured
from tests.unit.stand_in import StandIn, serving
from text_pipeline.contract import CLASSIFIER, ENSEMBLE
from text_pipeline.errors import TextPipelineError
from text_pipeline.measure.measurement import Measurement
from text_pipeline.measure.statistics import ModelStatistics
from text_pipeline.repository import configuration
from text_pipeline.repository.configuration import Settings
from text_pipeline.repository.versions import Repository

LEVEL = Level(
    workload="short", protocol="grpc", concurrency=1, rate=None, requests=900, texts_per_s=0,
    p50_ms=1, p95_ms=2, p99_ms=3, mean_ms=1.2, spread=0, stable=True, server_requests=900,
    failures=0, mean_batch_size=4, tokenizer_ms=0, queue_ms=0, compute_ms=0, ensemble_ms=0,
    network_ms=0,
)  # fmt: skip


@dataclass(frozen=True)
class Server:
    http_url: str = "127.0.0.1:1"
    grpc_url: str = "127.0.0.1:2"
    metrics_url: str | None = None


class Machine:
    """Answers at most 4,000 texts a second, p99 growing with what is in flight; 512 fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[tuple[Path, str, str]] = []
        self.refused = 0
        monkeypatch.setattr(levels, "measure", self.measure)
        monkeypatch.setattr(served_steps.ServerStatistics, "read", lambda _: self)
        monkeypatch.setattr(warm_up, "measure", lambda *_: None)

    @contextmanager
    def start(self, repository: Path, configuration: str, profile: str) -> Iterator[Server]:
        self.started.append((repository, configuration, profile))
        yield Server()

    def since(self, _: "Machine") -> dict[str, ModelStatistics]:
        refused, self.refused = self.refused, 0
        return {ENSEMBLE: ModelStatistics(failures=refused)}

    def measure(self, _, workload, *, concurrency, texts_a_request, **__) -> Measured:
        if concurrency == served_steps.MOST:
            self.refused = 7
            raise TextPipelineError("perf_analyzer ended with code 99: queue is full")
        rate = min(4000.0, 400.0 * concurrency) * (0.5 if workload.name == "mixed" else 1)
        level = replace(
            LEVEL, workload=workload.name, concurrency=concurrency, texts_per_s=rate,
            p99_ms=concurrency / 2, texts_a_request=texts_a_request,
        )  # fmt: skip
        return Measured(level, Measurement((), np.array([]), np.array([])), {})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def settings(machine: Machine) -> Served:
    return Served(device="cpu", precision="fp32", start=machine.start)


def test_the_default_configuration_is_measured_at_every_level(
    machine: Machine, tmp_path: Path
) -> None:
    record = Record()
    served_steps.measure_default(settings(machine), record, tmp_path)
    assert machine.started == [(tmp_path / "packed-fp32", "cpu", "cpu")]
    [table] = record.tables
    assert len(table.rows) == 2 * 6 + 2 * 2 * 3
    assert table.rows[5][-1].startswith("failed: perf_analyzer ended")
    # 16 in flight: 4,000 a second, 8 ms; with 64 they take 32 ms.
    assert record.figures["requests/s below 20 ms"] == 4000
    assert record.figures["failures at 512"] == 14
    assert record.figures["default mixed requests/s"] == 2000
    assert record.figures["default lone p50 ms"] == 1
    series = {point.series for point in record.points}
    assert series == {
        f"{w}, {n} a request" for w in ("short", "mixed") for n in ("1 text", "8 texts", "64 texts")
    }


def test_a_variant_is_the_configuration_changed(machine: Machine, tmp_path: Path) -> None:
    repository = tmp_path / "packed-fp32"
    Repository(repository).create()
    record, served = Record(), settings(machine)
    served_steps.variant(
        "no batching", "packed", None, Settings(batching=False), served, record, tmp_path
    )
    assert machine.started == [(repository, "check-no-batching", "cpu")]
    written = configuration.read(repository, CLASSIFIER, "check-no-batching")
    assert not written.HasField("dynamic_batching")
    assert record.figures["no batching short requests/s"] == 4000
    assert len(record.tables[0].rows) == 3


def test_a_named_configuration_that_is_not_there_is_said(machine: Machine, tmp_path: Path) -> None:
    Repository(tmp_path / "packed-fp32").create()
    served = settings(machine)
    with pytest.raises(TextPipelineError, match="no configuration 'never'"):
        served_steps.variant("x", "packed", None, "never", served, Record(), tmp_path)
    assert not machine.started


def test_the_first_requests_are_compared_with_the_hundredth() -> None:
    record, servicer = Record(), StandIn()
    with serving(servicer):
        warm_up.measure(replace(Server(), grpc_url=servicer.url), record)
    assert servicer.sizes == [1] * 100 + [8] * 100 + [64] * 100
    assert [row[0] for row in record.tables[0].rows] == ["1", "8", "64"]
    assert "first over hundredth ms" in record.figures


def test_the_formula_is_the_manuals() -> None:
    # README, GPUs and memory: 0.09 GB, 2.4 GB, and for two instances 5.5 GB.
    sizes = memory.Sizes(22_700_000, 384, 1536, 12, 512)
    assert memory.formula_bytes(sizes, 0, 1) - 0.5e9 == pytest.approx(0.09e9, rel=0.02)
    assert memory.formula_bytes(sizes, 64, 2) == pytest.approx(5.5e9, rel=0.01)


def test_memory_is_what_a_gpu_has_more_than_before() -> None:
    def sample(one: float, two: float) -> tuple[float, dict[str, float]]:
        series = 'nv_gpu_memory_used_bytes{{gpu_uuid="GPU-{}"}}'
        return 1.0, {series.format(1): one, series.format(2): two, "nv_cpu_utilization": 9e9}

    samples = [sample(5e9, 1e9), sample(7e9, 1e9), sample(6e9, 1e9)]
    assert memory.growth_bytes(samples, {"GPU-1": 4e9, "GPU-2": 1e9}) == 3e9
    with pytest.raises(TextPipelineError, match="no nv_gpu_memory_used_bytes"):
        memory.growth_bytes([(1.0, {"nv_cpu_utilization": 1.0})], {})


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a `docker` in the place of the real one; the file has what it was called with."""
    calls = tmp_path / "calls"
    script = f"""#!/bin/sh
echo "$MODEL_REPOSITORY $BIND_ADDRESS $HTTP_PORT $*" >> {calls}
case "$*" in *" logs "*) echo "gpu-1 | no GPU here" ;; *" up "*) exit "${{UP:-0}}" ;; esac
"""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(script)
    (tmp_path / "bin" / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return calls


def test_a_server_of_compose_is_a_project_of_its_own(docker: Path, tmp_path: Path) -> None:
    with compose.ComposeServer(tmp_path / "models", "latency") as server:
        assert len({server.http_url, server.grpc_url, server.metrics_url}) == 3
    up, down = docker.read_text().splitlines()
    port = server.http_url.removeprefix("127.0.0.1:")
    assert up.startswith(f"{tmp_path / 'models'} 127.0.0.1 {port} compose --project-directory ")
    assert f"--project-name {server.project} up --no-build --detach --wait" in up
    assert "--profile gpu" in up and f"{compose.ROOT / 'compose.yaml'}" in up
    assert f"--project-name {server.project} down " in down


def test_a_server_that_does_not_start_is_taken_down(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UP", "1")
    with (
        pytest.raises(TextPipelineError, match=r"did not start: gpu-1 \| no GPU here"),
        compose.ComposeServer(tmp_path, "gpu"),
    ):
        pytest.fail("it has started")
    assert " down " in docker.read_text().splitlines()[-1]


def test_the_suites_results_are_counted(tmp_path: Path) -> None:
    tests = """
import pytest
def test_good(): pass
def test_bad(): assert 1 == 2, "one is not two"
@pytest.fixture
def broken(): raise OSError("no port")
def test_without_a_fixture(broken): pass
@pytest.mark.skip
def test_left_out(): pass
"""
    (tmp_path / "test_some.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "--junitxml", "suite.xml", "-c", os.devnull]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    record = Record()
    suite.note(tmp_path / "suite.xml", record)
    assert record.figures == {"suite failed": 2, "suite passed": 1}
    [table] = record.tables
    assert [row[0].rpartition("::")[2] for row in table.rows] == [
        "test_bad", "test_without_a_fixture",
    ]  # fmt: skip
    assert "one is not two" in table.rows[0][1]
