"""Free and taken TCP ports. Standard library only: `make serve` asks here before it installs.

`python3 -m text_pipeline.server.ports --http-port 8000 …` exits 1 and names the ports in use.
"""

import argparse
import os
import socket
import sys
from collections.abc import Mapping

from text_pipeline.contract import PORTS


def problem(ports: Mapping[str, int], host: str = "127.0.0.1") -> str | None:
    """One line that names every port that cannot be listened on and its option, or None.

    `host` is a numeric address, of IPv4 or IPv6.
    """
    seen: dict[int, str] = {}
    problems = []
    for name, port in ports.items():
        option = f"--{name}-port"
        if port in seen:
            problems.append(f"{option} and {seen[port]} are both {port}")
        elif (reason := _reason_not_free(host, port)) is not None:
            problems.append(f"port {port} on {host} ({option}) {reason}")
        seen[port] = option
    if not problems:
        return None
    return (
        "; ".join(problems)
        + ": choose others with make serve HTTP_PORT=… GRPC_PORT=… METRICS_PORT=…"
    )


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports nobody listens on at the moment, all different."""
    sockets = [_listen(host, 0) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def arguments(host: str, *, http: int, grpc: int, metrics: int) -> list[str]:
    """tritonserver's arguments for what it listens on; `host` as for `problem`."""
    is_ipv6 = ":" in host
    # libevhtp, behind HTTP and metrics, wants IPv6 marked as such, gRPC in brackets.
    evhtp = f"ipv6:{host}" if is_ipv6 else host
    return [
        f"--http-address={evhtp}",
        f"--http-port={http}",
        f"--grpc-address={f'[{host}]' if is_ipv6 else host}",
        f"--grpc-port={grpc}",
        f"--metrics-address={evhtp}",
        f"--metrics-port={metrics}",
    ]


def _listen(host: str, port: int) -> socket.socket:
    # SO_REUSEADDR, as Triton sets it: a port in TIME_WAIT is free.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _reason_not_free(host: str, port: int) -> str | None:
    try:
        _listen(host, port).close()
    except OSError as error:
        return f"cannot be used: {os.strerror(error.errno) if error.errno else error}"
    except OverflowError:
        return "is not a port number (0 to 65535)"
    return None


def main() -> int:
    """Checks the ports given as options; prints the problem and returns 1 if there is one."""
    parser = argparse.ArgumentParser(description="Check that the server's ports are free.")
    for name, port in PORTS.items():
        parser.add_argument(f"--{name}-port", dest=name, type=int, default=port)
    if found := problem(vars(parser.parse_args())):
        print(f"error: {found}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
