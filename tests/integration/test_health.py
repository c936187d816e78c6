"""`text-pipeline health`, the health check of the containers."""

import subprocess
import sys

from tests.conftest import Server
from tests.integration.protocols import infer
from text_pipeline.server import ports
from text_pipeline.server.probe import classified

COMMAND = "from text_pipeline.cli import main; main()"


def health(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, "health", "--url", url],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_server_that_classifies_is_healthy(server: Server) -> None:
    done = health(server.http_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_server_is_unhealthy_in_one_line() -> None:
    (port,) = ports.free_ports(1)
    done = health(f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: no server at 127.0.0.1:{port}")
    assert len(done.stderr.splitlines()) == 1


def test_the_server_counts_what_it_has_classified(server: Server) -> None:
    """What tells a busy server from a broken one."""
    before = classified(server.http_url)
    infer(server, "grpc", ["A text."])
    after = classified(server.http_url)
    assert before is not None
    assert after is not None
    assert after > before
