"""What one real inference says about a server."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from text_pipeline.server import ports
from text_pipeline.server.probe import ensemble_problem, is_final

DEAD_STUB = (
    '{"error":"in ensemble \'text_pipeline_ensemble\', '
    "Stub process 'text_tokenizer_0_0' is not healthy.\"}"
)


class Answers(BaseHTTPRequestHandler):
    """Answers what the server was told to."""

    server: "Stub"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.classified += self.server.classifies_meanwhile
        if self.server.hangs:
            self.server.released.wait(10)
        self.reply(self.server.answer)

    def do_GET(self) -> None:
        count = {"success": {"count": self.server.classified}}
        self.reply(json.dumps({"model_stats": [{"inference_stats": count}]}))

    def reply(self, text: str) -> None:
        # The other side may have given up.
        with contextlib.suppress(OSError):
            self.send_response(self.server.status)
            self.end_headers()
            self.wfile.write(text.encode())

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


class Stub(ThreadingHTTPServer):
    status = 200
    answer = "{}"
    hangs = False
    classified = 5
    classifies_meanwhile = 0

    def __init__(self) -> None:
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), Answers)


@pytest.fixture
def server() -> Iterator[Stub]:
    with Stub() as started:
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        yield started
        started.released.set()
        started.shutdown()
        thread.join()


def url(server: Stub) -> str:
    return f"127.0.0.1:{server.server_port}"


def test_an_answer_is_no_problem(server: Stub) -> None:
    assert ensemble_problem(url(server)) is None


def test_a_dead_stub_is_a_problem_that_does_not_pass(server: Stub) -> None:
    server.status, server.answer = 400, DEAD_STUB
    problem = ensemble_problem(url(server))
    assert problem is not None
    assert "Stub process 'text_tokenizer_0_0' is not healthy" in problem
    assert is_final(problem)


def test_another_error_may_pass(server: Stub) -> None:
    server.status, server.answer = 503, "too many\nrequests"
    problem = ensemble_problem(url(server), timeout_s=0.2)
    assert problem == f"HTTP 503 from {url(server)}: too many requests"
    assert not is_final(problem)


def test_a_full_queue_of_a_server_that_answers_others_is_no_problem(server: Stub) -> None:
    server.status, server.answer = 503, "Exceeds maximum queue size"
    server.classifies_meanwhile = 1
    assert ensemble_problem(url(server)) is None


def test_no_server_is_named() -> None:
    (port,) = ports.free_ports(1)
    problem = ensemble_problem(f"127.0.0.1:{port}")
    assert problem is not None
    assert f"no server at 127.0.0.1:{port}" in problem
    assert not is_final(problem)


def test_a_server_that_answers_nobody_hangs(server: Stub) -> None:
    server.hangs = True
    assert ensemble_problem(url(server), timeout_s=0.2) == "no answer within 0.2 s"


def test_a_server_that_answers_others_meanwhile_is_busy(server: Stub) -> None:
    server.hangs, server.classifies_meanwhile = True, 1
    assert ensemble_problem(url(server), timeout_s=0.2) is None


def test_a_server_that_does_not_even_say_how_busy_it_is_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        problem = ensemble_problem(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
    assert problem == "no answer within 0.2 s"


def test_a_server_that_closes_the_connection_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Once for the statistics, once for the question.
        thread = threading.Thread(target=lambda: [listening.accept()[0].close() for _ in range(2)])
        thread.start()
        assert ensemble_problem(f"127.0.0.1:{listening.getsockname()[1]}") is not None
        thread.join()
