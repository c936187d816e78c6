"""Whether a server is reached through the proxy that the environment names: one place for all.

gRPC, perf_analyzer and whatever else uses libcurl follow `http_proxy` and its like even to this
machine, where no proxy can help. The project's own HTTP requests use none at all.
"""

import ipaddress
import os
import socket
import urllib.request
from collections.abc import Mapping

from text_pipeline.client import addresses

VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
"""In small and in capital letters, as programs differ in which they read."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def are_bypassed(url: str) -> bool:
    """Whether `host:port` is this machine, or a host that `no_proxy` names."""
    host, _ = addresses.split(url, "server's")
    return _is_loopback(host) or bool(urllib.request.proxy_bypass(host))


def grpc_options(url: str) -> list[tuple[str, int]]:
    """Options of a gRPC channel to `url`; where a proxy may be used, gRPC reads the variables."""
    return [("grpc.enable_http_proxy", 0)] if are_bypassed(url) else []


def environment(url: str) -> dict[str, str]:
    """The environment of a program that talks to `url`, without the variables if they do harm."""
    harmful = VARIABLES if are_bypassed(url) else ()
    return {name: value for name, value in os.environ.items() if name.lower() not in harmful}


def excepted(environment: Mapping[str, str]) -> str:
    """A `no_proxy` with this machine beside what the environment has there."""
    named = environment.get("no_proxy") or environment.get("NO_PROXY")
    return ",".join([*([named] if named else []), *LOOPBACK])


def _is_loopback(host: str) -> bool:
    """Whether a name, or an address, leads to this machine without any network."""
    try:
        found = {str(address[0]) for *_, address in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    local = (ipaddress.ip_address(address) for address in found)
    return all(address.is_loopback or address.is_unspecified for address in local)
