"""`text-pipeline serve` in the foreground."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.unit.onnx_backend import ragged_model
from tests.unit.server.test_tritonserver import model_problem
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import Repository
from text_pipeline.server import ports, serve
from text_pipeline.server.tritonserver import EmbeddedServer


class RaggedRepository(Repository):
    """The small model in place of a classifier."""

    def versions(self) -> list[int]:
        return [1]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    def make(*args: Any, **options: Any) -> EmbeddedServer:
        return EmbeddedServer(*args, problem=model_problem, **options)

    monkeypatch.setattr(serve, "EmbeddedServer", make)
    return RaggedRepository(ragged_model.write(tmp_path / "models", ragged_model.config()))


def run(repository: Repository, progress: Callable[[str], None] = print, **options: Any) -> None:
    http, grpc, metrics = ports.free_ports(3)
    chosen = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics} | options
    serve.serve(repository, host="127.0.0.1", model_config_name="cpu", progress=progress, **chosen)


def tritonserver() -> psutil.Process:
    """The tritonserver that this process started last: the suite may have one of its own."""
    servers = [child for child in psutil.Process().children() if child.name() == "tritonserver"]
    return max(servers, key=lambda server: server.create_time())


def when_ready(messages: list[str], act: Callable[[], None]) -> Callable[[str], None]:
    """Collects messages, and acts from another thread as soon as the server is ready."""

    def progress(message: str) -> None:
        messages.append(message)
        if message.startswith("ready"):
            threading.Timer(0.1, act).start()

    return progress


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_ends_everything_within_15_seconds(
    repository: Repository, number: signal.Signals
) -> None:
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    messages: list[str] = []
    sent: list[float] = []
    servers: list[psutil.Process] = []

    def stop() -> None:
        servers.append(tritonserver())
        sent.append(time.monotonic())
        os.kill(os.getpid(), number)

    run(repository, when_ready(messages, stop))
    assert time.monotonic() - sent[0] < 15
    assert not servers[0].is_running()
    assert messages[-1] == "stopped"
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_the_welcome_holds_a_request_to_try(repository: Repository) -> None:
    messages: list[str] = []
    (port,) = ports.free_ports(1)
    progress = when_ready(messages, lambda: os.kill(os.getpid(), signal.SIGTERM))
    run(repository, progress, http_port=port)
    path = f"127.0.0.1:{port}/v2/models/text_pipeline_ensemble/generate"
    assert f'curl -s {path} -d \'{{"text": ' in messages[0]


def test_a_server_that_dies_is_an_error_that_names_its_log(repository: Repository) -> None:
    progress = when_ready([], lambda: tritonserver().kill())
    with pytest.raises(TextPipelineError, match=r"ended with code -9.*its log: ") as error:
        run(repository, progress)
    log = Path(str(error.value).rsplit("its log: ", 1)[1])
    assert ragged_model.NAME in log.read_text()
    log.unlink()


def test_a_given_log_file_stays(repository: Repository, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    progress = when_ready([], lambda: os.kill(os.getpid(), signal.SIGTERM))
    run(repository, progress, log_path=log)
    assert ragged_model.NAME in log.read_text()


def test_a_repository_without_a_model_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match=r"make model.*text-pipeline export"):
        run(Repository(tmp_path))


def test_a_taken_port_is_an_error_before_anything_starts(
    repository: Repository, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TextPipelineError, match=f"{port}.*--metrics-port"):
            run(repository, metrics_port=port, log_path=tmp_path / "log")
    assert not (tmp_path / "log").exists()
