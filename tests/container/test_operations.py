"""The container in production: it is stopped, it breaks, it starts in poor places."""

import re
import shutil
import socket
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from tritonclient.utils import InferenceServerException

from tests.conftest import REPOSITORY, Server
from tests.containers import STOP_GRACE_S, ServerContainer
from tests.integration.protocols import infer
from text_pipeline.default_model import corpus

TEXTS = corpus.mixed(8, seed=8)
IN_FLIGHT = 20
ANSWER_LIMIT_S = 15.0
"""No caller waits longer, whatever happens to the server."""
RECOVERY_LIMIT_S = 60.0
KILL_STUB = """
import pathlib, signal, os, sys
stubs = [
    process for process in pathlib.Path("/proc").glob("[0-9]*")
    if b"python_backend_stub" in (line := (process / "cmdline").read_bytes())
    and sys.argv[1].encode() in line
]
os.kill(int(stubs[0].name), signal.SIGKILL)
"""


def start(repository: Path = REPOSITORY, **options: Any) -> ServerContainer:
    return ServerContainer("container", repository, **options)


def outcome(container: ServerContainer, protocol: str = "grpc") -> int | str:
    """The number of texts answered, or the error."""
    try:
        answer = infer(Server(container.http_url, container.grpc_url), protocol, TEXTS)
    # OSError: an HTTP connection that was refused or closed.
    except (InferenceServerException, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return len(answer["labels"])


def until(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.2)


def test_stop_answers_every_request_in_flight() -> None:
    protocols = ["grpc", "http-binary"] * (IN_FLIGHT // 2)
    with start() as container, ThreadPoolExecutor(IN_FLIGHT + 1) as callers:
        requests = [callers.submit(outcome, container, protocol) for protocol in protocols]
        time.sleep(0.3)  # all are on their way, and two cores need seconds for them
        finished_before = sum(request.done() for request in requests)
        started = time.monotonic()
        stop = callers.submit(container.get_wrapped_container().stop, timeout=STOP_GRACE_S)
        while not stop.done():
            sent = time.monotonic()
            assert outcome(container) == len(TEXTS) or time.monotonic() - sent < ANSWER_LIMIT_S
            time.sleep(0.2)
        assert time.monotonic() - started < STOP_GRACE_S
        _, unanswered = wait(requests, timeout=0)
        assert not unanswered
        assert finished_before < IN_FLIGHT, "the stop came too late to prove anything"
        assert [request.result() for request in requests] == [len(TEXTS)] * IN_FLIGHT
        assert container.state()["ExitCode"] == 0


def test_requests_to_a_stopped_server_are_refused_at_once() -> None:
    with start() as container:
        container.get_wrapped_container().stop(timeout=STOP_GRACE_S)
        for protocol in ("grpc", "http-binary"):
            sent = time.monotonic()
            assert isinstance(outcome(container, protocol), str)
            assert time.monotonic() - sent < ANSWER_LIMIT_S


def is_unhealthy(container: ServerContainer) -> bool:
    """What Docker's health check finds."""
    try:
        return container.exec(["text-pipeline", "health"]).exit_code != 0
    except APIError:  # on its way down
        return True


@pytest.mark.parametrize("model", ["text_tokenizer", "text_classifier_onnx"])
def test_a_dead_stub_is_noticed_and_a_restart_brings_it_back(model: str) -> None:
    with start(restart_policy={"Name": "unless-stopped"}) as container:
        first_start = container.state()["StartedAt"]
        killed = container.exec(["python3", "-c", KILL_STUB, model])
        assert killed.exit_code == 0, killed.output
        # The classifier has two instances, which take turns, and others ask, too.
        assert any(is_unhealthy(container) for _ in range(6))
        sent = time.monotonic()
        outcome(container)
        assert time.monotonic() - sent < ANSWER_LIMIT_S

        def back() -> bool:
            state = container.state()
            return state["StartedAt"] != first_start and state["Health"]["Status"] == "healthy"

        until(back, RECOVERY_LIMIT_S, f"a restart\n{container.log()}")
        assert "the server broke down" in container.log(10_000)
        assert [outcome(container) for _ in range(4)] == [len(TEXTS)] * 4


@pytest.mark.parametrize(
    "options",
    [{"nano_cpus": 10**9}, {"cpuset_cpus": "0"}, {"shm_size": None}],
    ids=["--cpus 1", "--cpuset-cpus 0", "Docker's 64 MB of shared memory"],
)
def test_it_works_with(options: dict[str, Any]) -> None:
    with start(**options) as container, ThreadPoolExecutor(IN_FLIGHT) as callers:
        requests = [callers.submit(outcome, container) for _ in range(IN_FLIGHT)]
        assert [request.result() for request in requests] == [len(TEXTS)] * IN_FLIGHT


def test_it_may_write_nowhere_but_in_tmp() -> None:
    with start() as container:
        assert container.exec(["id", "-u"]).output == b"1000\n"
        for place in ("/models", "/", "/opt/tritonserver", "/opt/text-pipeline"):
            assert container.exec(["touch", f"{place}/file"]).exit_code != 0
        assert container.exec(["touch", "/tmp/file"]).exit_code == 0
        capabilities = container.exec(["grep", "CapBnd", "/proc/1/status"]).output
        assert int(capabilities.split()[1], 16) == 0


def only_line(ended: tuple[int, str]) -> str:
    code, log = ended
    assert code == 1
    (line,) = log.splitlines()
    return line


def test_texts_and_labels_are_counted() -> None:
    def counted(name: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{container.metrics_port}/metrics") as page:
            values = re.findall(rf"^{name}\{{.*\}} (\d+)$", page.read().decode(), re.MULTILINE)
        return sum(map(int, values))

    with start() as container:
        assert outcome(container) == len(TEXTS)
        for name in ("text_pipeline_text_tokens_count", "text_pipeline_answered_labels_total"):
            until(lambda name=name: counted(name) == len(TEXTS), 5, name)


def test_without_a_model_one_line_names_the_command(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    line = only_line(start(tmp_path).run_to_end())
    assert line.startswith("error: /models has no model: run `make model`")


def test_a_repository_it_may_not_read_is_named(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(REPOSITORY, repository)
    (repository / "text_classifier_onnx" / "1" / "model.onnx").chmod(0o600)
    line = only_line(start(repository).run_to_end())
    assert "/models/text_classifier_onnx/1/model.onnx is not readable for user 1000" in line


def test_too_little_shared_memory_says_what_to_raise() -> None:
    code, log = start(shm_size="1m").run_to_end()
    assert code == 1
    last = log.splitlines()[-1]
    assert last.startswith("error: the server did not start")
    assert "--shm-size" in last


def test_a_taken_port_is_named() -> None:
    container = start()
    with socket.create_server(("127.0.0.1", container.http_port)):
        try:
            with pytest.raises(APIError, match=str(container.http_port)):
                container.start()
        finally:
            container.stop()


def test_a_container_that_ends_early_fails_in_seconds_with_its_log(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(REPOSITORY, repository)
    (repository / "text_classifier_onnx" / "1" / "model.onnx").write_bytes(b"not a graph")
    started = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match=r"model\.onnx failed"), start(repository):
        pass
    assert time.monotonic() - started < 30
