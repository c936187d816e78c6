"""Starts, watches and stops a tritonserver: the one place that does, for serve, tests and load."""

import contextlib
import ctypes
import http.client
import os
import re
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from text_pipeline.embedded import layout, ports
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import ENSEMBLE

EXIT_TIMEOUT_S = 8
"""How long Triton waits for requests in flight when it is told to stop."""
READY_TIMEOUT_S = 120.0
SHARED_MEMORY = Path("/dev/shm")
_PR_SET_PDEATHSIG = 1
# E1130 05:30:36.595092 6900 server.cc:241] "message"
_LOGGED_ERROR = re.compile(r'E\d{4} [^\]]*\] "(.*)"$')
# What every start without a GPU logs as errors, though nothing is wrong.
_HARMLESS = re.compile("CudaDriverHelper|CUDA driver version is insufficient")
# Triton refuses KIND_GPU itself where it finds no GPU, before any backend is asked.
_NO_GPU = "invalid or unsupported gpu id"
_NO_GPU_REMEDY = (
    "the model asks for a GPU: start the server with --model-config-name=cpu, for which the model "
    "needs a configs/cpu.pbtxt"
)


def ensemble_answers(http_url: str) -> bool:
    """Whether `text_pipeline_ensemble` classifies a text: what readiness means in this project."""
    import numpy as np
    import tritonclient.http
    from tritonclient.utils import InferenceServerException

    text = tritonclient.http.InferInput("text", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([[b"Is anybody there?"]], dtype=object))
    with contextlib.closing(tritonclient.http.InferenceServerClient(http_url)) as client:
        try:
            client.infer(ENSEMBLE, [text])
        # HTTPException: the server closed the connection, it is on its way up or down.
        except (InferenceServerException, OSError, http.client.HTTPException):
            return False
    return True


class EmbeddedServer:
    """A tritonserver child on this machine; as a context manager it is ready inside the block.

    Ports that are None are chosen among the free ones. `log_path` gets everything the server
    prints. The child ends with its parent, however the parent ends.
    """

    def __init__(
        self,
        repository: Path,
        *,
        host: str = "127.0.0.1",
        http_port: int | None = None,
        grpc_port: int | None = None,
        metrics_port: int | None = None,
        model_config_name: str = "cpu",
        log_path: Path | None = None,
        is_ready: Callable[[str], bool] = ensemble_answers,
        extra_arguments: Sequence[str] = (),
    ) -> None:
        self.repository = repository
        self.host = host
        free = ports.free_ports(3, host)
        self.http_port = free[0] if http_port is None else http_port
        self.grpc_port = free[1] if grpc_port is None else grpc_port
        self.metrics_port = free[2] if metrics_port is None else metrics_port
        self.model_config_name = model_config_name
        self.is_ready = is_ready
        self.extra_arguments = extra_arguments
        self._folder = tempfile.TemporaryDirectory(prefix="text-pipeline-")
        self.log_path = log_path or Path(self._folder.name) / "tritonserver.log"
        # A prefix of its own, so that what a killed server leaves in /dev/shm can be told apart.
        self._shared_memory_prefix = f"text_pipeline_{uuid.uuid4().hex[:12]}_"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def http_url(self) -> str:
        """`host:port` of the HTTP endpoint."""
        return f"{self.host}:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        """`host:port` of the gRPC endpoint."""
        return f"{self.host}:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """`host:port` of the Prometheus endpoint."""
        return f"{self.host}:{self.metrics_port}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running().pid

    def __enter__(self) -> "EmbeddedServer":
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the server and returns at once; raises TextPipelineError for a taken port.

        Call it in a thread that outlives the server: for Linux the thread that starts a child is
        its parent.
        """
        taken = {"http": self.http_port, "grpc": self.grpc_port, "metrics": self.metrics_port}
        if found := ports.problem(taken, self.host):
            raise TextPipelineError(found)
        parts = layout.create(Path(self._folder.name) / "backends")
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [str(parts.binary), *self._arguments(parts.backends)],
                env=parts.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own group: Ctrl-C on the terminal reaches only the parent, which stops it.
                start_new_session=True,
                preexec_fn=_end_with_parent(),  # a prctl call, no locks
            )

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Returns when a real request is answered; raises with the log's errors otherwise."""
        deadline = time.monotonic() + timeout_s
        while not self.is_ready(self.http_url):
            if self._running().poll() is not None:
                raise TextPipelineError(f"the server did not start: {self.log_errors()}")
            if time.monotonic() > deadline:
                raise TextPipelineError(
                    f"the server answered no request within {timeout_s:.0f} s: {self.log_errors()}"
                )
            time.sleep(0.1)

    def wait_exit(self) -> int:
        """Blocks until the server has ended and returns its exit code."""
        return self._running().wait()

    def stop(self, grace_s: float = EXIT_TIMEOUT_S + 4) -> None:
        """Ends the server; requests in flight are answered. Killed after `grace_s` seconds."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
            # The stubs are in the same group; a server that was killed leaves them behind.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        for region in SHARED_MEMORY.glob(f"{self._shared_memory_prefix}*"):
            region.unlink(missing_ok=True)
        self._folder.cleanup()

    def log_errors(self) -> str:
        """What the log says went wrong, or its last line; with what to do where that is known."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        lines = [line for line in lines if not _HARMLESS.search(line)]
        errors = [match[1] for line in lines if (match := _LOGGED_ERROR.match(line))]
        # An ensemble's error repeats the error of the model it depends on.
        causes = [error for error in errors if "failed to load" in error] or errors or lines[-1:]
        message = "; ".join(causes)
        return f"{message} ({_NO_GPU_REMEDY})" if _NO_GPU in message else message

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server has not been started")
        return self._process

    def _arguments(self, backends: Path) -> list[str]:
        return [
            f"--model-repository={self.repository.resolve()}",
            f"--model-config-name={self.model_config_name}",
            "--disable-auto-complete-config",
            f"--backend-directory={backends}",
            f"--backend-config=python,shm-region-prefix-name={self._shared_memory_prefix}",
            f"--http-address={self.host}",
            f"--http-port={self.http_port}",
            f"--grpc-address={self.host}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-address={self.host}",
            f"--metrics-port={self.metrics_port}",
            f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
            *self.extra_arguments,
        ]


def _end_with_parent() -> Callable[[], None]:
    """A call for the child: Linux sends it SIGTERM when the parent is gone, however it ended."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
