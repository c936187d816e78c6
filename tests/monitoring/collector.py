"""An HTTP server that keeps what is sent to it: an OTLP collector for traces; a page to read."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Collector(ThreadingHTTPServer):
    """Collects OTLP/HTTP (JSON) on POST and answers `page` on GET."""

    def __init__(self, page: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page = page.encode()
        self.received: list[bytes] = []

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.server_port}"

    def spans(self) -> list[dict]:
        """All spans so far."""
        return [
            span
            for body in self.received
            for resource in json.loads(body)["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.page)

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def collecting(page: str = "") -> Iterator[Collector]:
    """A running one."""
    with Collector(page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
