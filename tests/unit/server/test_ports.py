"""The check that runs before anything is installed."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from text_pipeline.server import ports

ROOT = Path(ports.__file__).parents[2]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def check(http: int, grpc: int, metrics: int) -> subprocess.CompletedProcess[str]:
    """Runs the module as `make serve` does, in a Python that sees no installed package."""
    options = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
    return subprocess.run(
        [sys.executable, "-E", "-S", "-m", ports.__name__, *options],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
    )


def test_free_ports_pass_without_any_package_installed() -> None:
    result = check(*ports.free_ports(3))
    assert (result.returncode, result.stderr) == (0, "")


def test_a_taken_port_is_one_line_that_names_port_and_option(taken: int) -> None:
    first, second = ports.free_ports(2)
    result = check(first, taken, second)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert str(taken) in result.stderr
    assert "--grpc-port" in result.stderr


def test_a_port_given_twice_is_named_with_both_options() -> None:
    port, other = ports.free_ports(2)
    found = ports.problem({"http": port, "grpc": other, "metrics": port})
    assert found is not None
    assert "--metrics-port and --http-port" in found


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_an_error(port: int) -> None:
    assert "not a port number" in str(ports.problem({"http": port}))


def test_an_address_of_another_machine_is_an_error() -> None:
    # 192.0.2.0/24 is reserved for documentation: no machine has it.
    assert "192.0.2.1" in str(ports.problem({"http": 0}, host="192.0.2.1"))


def test_free_ports_are_all_different() -> None:
    assert len(set(ports.free_ports(20))) == 20


def test_a_port_whose_old_connections_linger_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        with socket.create_connection(address):
            # The server's side closes first, so the port stays in TIME_WAIT.
            listening.accept()[0].close()
    assert ports.problem({"http": address[1]}) is None
