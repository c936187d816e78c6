"""What one real inference says about a server."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from text_pipeline.embedded import ports
from text_pipeline.embedded.probe import ensemble_problem, is_final

DEAD_STUB = (
    '{"error":"in ensemble \'text_pipeline_ensemble\', '
    "Stub process 'text_tokenizer_0_0' is not healthy.\"}"
)


class Answers(BaseHTTPRequestHandler):
    """Answers what the server was told to."""

    server: "Stub"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.answer.encode())

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


class Stub(HTTPServer):
    status = 200
    answer = "{}"


@pytest.fixture
def server() -> Iterator[Stub]:
    with Stub(("127.0.0.1", 0), Answers) as started:
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def url(server: HTTPServer) -> str:
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
    problem = ensemble_problem(url(server))
    assert problem == f"HTTP 503 from {url(server)}: too many requests"
    assert not is_final(problem)


def test_no_server_is_named() -> None:
    (port,) = ports.free_ports(1)
    problem = ensemble_problem(f"127.0.0.1:{port}")
    assert problem is not None
    assert f"no server at 127.0.0.1:{port}" in problem
    assert not is_final(problem)


def test_a_server_that_hangs_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        problem = ensemble_problem(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
    assert problem == "no answer within 0.2 s"


def test_a_server_that_closes_the_connection_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: listening.accept()[0].close())
        thread.start()
        assert ensemble_problem(f"127.0.0.1:{listening.getsockname()[1]}") is not None
        thread.join()
