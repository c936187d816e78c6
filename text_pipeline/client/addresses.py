"""Addresses of servers: how they are written, and what a host name stands for."""

import ipaddress
import re
import socket

from text_pipeline.errors import TextPipelineError

_URL = re.compile(r"(?:\[(?P<address>[^\s/\[\]]+)\]|(?P<host>[^\s/:\[\]]+)):(?P<port>\d{1,5})")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def resolve(host: str) -> str:
    """The numeric address that a name, or an address with or without brackets, stands for.

    IPv4 where a name has both, as `localhost` often does: it is what clients try without asking.
    Raises TextPipelineError for an unknown name, and for addresses that Triton cannot listen on.
    """
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = socket.getaddrinfo(name or None, 0, type=socket.SOCK_STREAM) if name else []
    except (OSError, UnicodeError):
        found = []
    addresses = [str(address[0]) for family, *_, address in sorted(found, key=_is_ipv6)]
    if not addresses:
        raise TextPipelineError(
            f"no host of the name {host!r}: expected a name that this machine knows, or an address "
            "such as 127.0.0.1, ::1 or 0.0.0.0"
        )
    if ":" in addresses[0] and ipaddress.ip_address(addresses[0]).is_link_local:
        raise TextPipelineError(
            f"{host} is an address of one link only, which Triton cannot listen on: "
            "choose another address of this machine, or ::"
        )
    return addresses[0]


def joined(address: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def from_this_machine(address: str) -> str:
    """Where a server that listens on `address` answers on this machine, without any network."""
    return _EVERYWHERE.get(address, address)


def split(url: str, endpoint: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[IPv6 address]:port`; raises TextPipelineError.

    `endpoint` names what listens there: gRPC, HTTP.
    """
    found = _URL.fullmatch(url)
    if found is None or not 0 < int(found["port"]) < 65536 or not _is_address(found["address"]):
        raise TextPipelineError(
            f"url: expected HOST:PORT of the {endpoint} endpoint, with an IPv6 address in "
            f"brackets, got {url!r}"
        )
    return found["address"] or found["host"], int(found["port"])


def _is_ipv6(found: tuple) -> bool:
    return bool(found[0] == socket.AF_INET6)


def _is_address(text: str | None) -> bool:
    """Whether what stood in brackets, if anything did, is an IPv6 address."""
    try:
        return text is None or bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False
