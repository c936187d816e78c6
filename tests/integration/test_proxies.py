"""A proxy in the environment changes nothing for a server on this machine."""

import os
import subprocess
import sys

import pytest

from tests.conftest import Server
from text_pipeline.client import proxies

# Nobody answers at the port for discarding, and 192.0.2.0/24 is nobody's.
DEAD = "http://127.0.0.1:9"
STATISTICS = (
    "import sys; from text_pipeline.measure.statistics import ServerStatistics; "
    "ServerStatistics.read(sys.argv[1])"
)
COMMAND = "from text_pipeline.cli import main; main()"


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    names = [*proxies.VARIABLES, *(name.upper() for name in proxies.VARIABLES)]
    without = {
        k: v for k, v in os.environ.items() if k.lower() not in ("no_proxy", "no_grpc_proxy")
    }
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=without | dict.fromkeys(names, DEAD),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_commands_reach_a_server_on_this_machine_behind_a_dead_proxy(
    server: Server, host: str
) -> None:
    grpc, http = (url.replace("127.0.0.1", host) for url in (server.grpc_url, server.http_url))
    for code, *arguments in (
        [COMMAND, "classify", "--url", grpc, "A text."],
        [COMMAND, "health", "--url", http],
        [STATISTICS, grpc],
    ):
        done = run(code, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
