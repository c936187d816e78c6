"""`text-pipeline serve`: the embedded server in the foreground."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from text_pipeline.client import addresses
from text_pipeline.contract import ENSEMBLE
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import devices
from text_pipeline.repository.versions import Repository
from text_pipeline.server import ports, threads, tracing
from text_pipeline.server.log import STDOUT
from text_pipeline.server.tritonserver import EmbeddedServer

EXAMPLE_TEXT = (
    "Shares in the chip maker fell after it warned that profits would be lower this year."
)
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Stopped(BaseException):  # not an error: somebody asked the server to stop
    """SIGINT or SIGTERM arrived."""


def serve(
    repository: Repository,
    *,
    host: str,
    http_port: int,
    grpc_port: int,
    metrics_port: int,
    model_config_name: str,
    log_path: Path | None = None,
    triton: Path | None = None,
    trace_url: str | None = None,
    trace_rate: int = 1,
    model_control: str = "none",
    extra_arguments: Sequence[str] = (),
    progress: Callable[[str], None] = print,
) -> None:
    """Runs until SIGINT or SIGTERM; raises TextPipelineError when the server cannot run or dies.

    A server that runs but does not classify any more counts as dead: whoever started this command
    (Docker, systemd) can start it again. `progress` gets what a user wants to read: a warning if
    the graph is made for another device or TensorRT's engines cannot be kept, the addresses, and
    a request to try. Without a `log_path` the log is a temporary file, which stays only when
    something went wrong. One request in `trace_rate` is traced to `trace_url`. `extra_arguments`
    are tritonserver's own.
    """
    repository.check()
    for problem in (
        *devices.problems(repository, model_config_name),
        *devices.cache_problems(repository.path, model_config_name),
    ):
        progress(f"warning: {problem}")
    if triton is not None:
        threads.check(repository.path, model_config_name, triton)
    address = addresses.resolve(host)
    taken = {"http": http_port, "grpc": grpc_port, "metrics": metrics_port}
    if found := ports.problem(taken, address):
        raise TextPipelineError(found)
    log = log_path or _temporary_log()
    server = EmbeddedServer(
        repository.path,
        host=address,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        model_config_name=model_config_name,
        log_path=log,
        triton=triton,
        model_control=model_control,
        extra_arguments=[*tracing.arguments(trace_url, trace_rate), *extra_arguments],
    )
    try:
        with _stop_signals(), server:
            progress(_welcome(server))
            server.watch()
    except TextPipelineError as error:
        if log == STDOUT:
            raise
        if log.stat().st_size > 0:
            raise TextPipelineError(f"{error}; its log: {log}") from error
        log.unlink()
        raise
    except _Stopped:
        if log_path is None:
            log.unlink(missing_ok=True)
        progress("stopped")


def _temporary_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="text-pipeline-", suffix=".log")
    os.close(handle)
    return Path(name)


@contextmanager
def _stop_signals() -> Iterator[None]:
    """SIGINT and SIGTERM raise _Stopped inside the block."""
    before = {number: signal.signal(number, _stop) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - a signal handler
    # A second Ctrl-C must not interrupt the clean-up.
    for ignored in _STOP_SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise _Stopped


def _welcome(server: EmbeddedServer) -> str:
    body = json.dumps({"text": EXAMPLE_TEXT})
    return (
        f"ready: HTTP {server.http_url}, gRPC {server.grpc_url}, "
        f"metrics {server.metrics_url}/metrics\n"
        f"try:   curl -s {server.http_url}/v2/models/{ENSEMBLE}/generate -d '{body}'\n"
        "stop:  Ctrl-C"
    )
