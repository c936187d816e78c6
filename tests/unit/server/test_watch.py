"""When a server that was ready is given up."""

import sys
from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path

import pytest

from text_pipeline.errors import TextPipelineError
from text_pipeline.server.log import STDOUT, ServerLog
from text_pipeline.server.tritonserver import MAX_PROBLEMS, EmbeddedServer

DEAD_STUB = "HTTP 400 from 127.0.0.1:8000: Stub process 'text_tokenizer_0_0' is not healthy."
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


class Scripted(EmbeddedServer):
    """A process that is no Triton, and what its probes find one after the other."""

    def __init__(
        self,
        command: list[str],
        findings: Iterable[str | None],
        log_path: Path | None = None,
    ) -> None:
        self.findings = iter(findings)
        super().__init__(Path("unused"), problem=lambda _: next(self.findings), log_path=log_path)
        self._process = self.log.run(command, start_new_session=True)


@pytest.fixture
def watched() -> Iterator[list[EmbeddedServer]]:
    started: list[EmbeddedServer] = []
    yield started
    for server in started:
        server.stop()


def give_up(watched: list, findings: list[str | None], command: list[str] = SLEEP) -> str:
    """The error that ends the watch."""
    server = Scripted(command, findings)
    watched.append(server)
    with pytest.raises(TextPipelineError) as error:
        server.watch(interval_s=0.01)
    assert list(server.findings) == [], "it was given up too early"
    return str(error.value)


def test_a_dead_stub_is_given_up_at_once(watched: list) -> None:
    assert give_up(watched, [None, None, DEAD_STUB]) == f"the server broke down: {DEAD_STUB}"


def test_what_may_pass_must_come_several_times_in_a_row(watched: list) -> None:
    hangs = "no answer within 10 s"
    almost = [hangs] * (MAX_PROBLEMS - 1)
    assert give_up(watched, [*almost, None, *almost, hangs]) == f"the server broke down: {hangs}"


def test_a_server_that_ends_is_named_with_its_code(watched: list) -> None:
    command = [sys.executable, "-c", "print('out of luck'); raise SystemExit(7)"]
    server = Scripted(command, [])
    watched.append(server)
    with pytest.raises(TextPipelineError, match=r"ended with code 7: out of luck"):
        server.watch(interval_s=30)


@pytest.mark.parametrize("log_path", [None, STDOUT])
def test_a_start_ends_when_the_log_says_that_a_model_does_not_load(
    watched: list, log_path: Path | None
) -> None:
    """Triton goes on loading the others; the user learns of it now."""
    line = "E1130 05:30:36.4 69 model_lifecycle.cc:642] \"failed to load 'x' version 1: no graph\""
    command = [sys.executable, "-c", f"import time; print({line!r}, flush=True); time.sleep(60)"]
    server = Scripted(command, repeat("no server"), log_path)
    watched.append(server)
    with pytest.raises(TextPipelineError, match=r"did not start: failed to load 'x' version 1: no"):
        server.wait_ready(timeout_s=30)


def test_a_log_on_standard_output_is_passed_on_and_searched(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    line = 'E1130 05:30:36.4 6900 server.cc:4] "the real problem"'
    log = ServerLog(STDOUT)
    code = f"print({line!r}); print('error: creating server')"
    assert log.run([sys.executable, "-c", code]).wait(30) == 0
    assert log.errors() == "the real problem"
    assert capfdbinary.readouterr().out.startswith(line.encode())
