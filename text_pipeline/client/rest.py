"""HTTP requests to a server with nothing but the standard library. They never use a proxy."""

import http.client
from collections.abc import Mapping
from types import MappingProxyType


def request(
    http_url: str,
    timeout_s: float,
    method: str,
    path: str,
    body: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str]:
    """The status and the body of the answer from `host:port`.

    Raises OSError, or HTTPException where the server closes the connection without an answer.
    """
    connection = http.client.HTTPConnection(http_url, timeout=timeout_s)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()
