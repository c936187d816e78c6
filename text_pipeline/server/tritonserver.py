"""Starts, watches and stops a tritonserver: the one place that does, for serve, tests and load."""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from text_pipeline.client import addresses
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import TURN, Repository
from text_pipeline.server import child, control, frontends, guard, installation, ports, probe
from text_pipeline.server.log import ServerLog
from text_pipeline.server.places import ServerFolder

EXIT_TIMEOUT_S = 8
"""How long Triton waits for requests in flight when it is told to stop."""
READY_TIMEOUT_S = 120.0
SHARED_MEMORY = Path("/dev/shm")
_CHILDREN_INTERVAL_S = 1.0
WATCH_INTERVAL_S = 5.0
MAX_PROBLEMS = 12
"""A server is given up after so many questions in a row without an answer: a minute of errors, or
three in which nobody got an answer, for a full batch of a large model takes its time."""


class EmbeddedServer:
    """A tritonserver child on this machine; as a context manager it is ready inside the block.

    It listens on the address that `host`, a name or an address, stands for. Ports that are None are
    chosen among the free ones. `log_path` gets everything the server
    prints (log.STDOUT passes it on). `problem` asks the server at `host:port` something real and
    says why it got no answer. `triton` is an installed Triton, such as a container's
    /opt/tritonserver; None takes the wheel's. The child ends with its parent, however that ends.
    `model_control` is one of MODEL_CONTROLS.
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
        problem: Callable[[str], str | None] = probe.ensemble_problem,
        triton: Path | None = None,
        model_control: str = "none",
        extra_arguments: Sequence[str] = (),
    ) -> None:
        self.repository = repository
        self.address = addresses.resolve(host)
        free = ports.free_ports(3, self.address)
        self.http_port = free[0] if http_port is None else http_port
        self.grpc_port = free[1] if grpc_port is None else grpc_port
        self.metrics_port = free[2] if metrics_port is None else metrics_port
        self.model_config_name = model_config_name
        self.problem = problem
        self.triton = triton
        self.model_control = model_control
        self.extra_arguments = extra_arguments
        self._folder = ServerFolder()
        self.log = ServerLog(log_path or self._folder.path / "tritonserver.log")
        # A prefix of its own, so that what a killed server leaves in /dev/shm can be told apart.
        self.shared_memory_prefix = f"text_pipeline_{uuid.uuid4().hex[:12]}_"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def http_url(self) -> str:
        """`host:port` of the HTTP endpoint."""
        return self._url(self.http_port)

    @property
    def grpc_url(self) -> str:
        """`host:port` of the gRPC endpoint."""
        return self._url(self.grpc_port)

    @property
    def metrics_url(self) -> str:
        """`host:port` of the Prometheus endpoint."""
        return self._url(self.metrics_port)

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
        if found := ports.problem(taken, self.address):
            raise TextPipelineError(found)
        if self.triton is not None:
            parts = installation.installed(self.triton, self._folder)
        else:
            parts = installation.create(self._folder)
        repository = self._folder.link("repository", self.repository.resolve())
        self._process = self.log.run(
            [str(parts.binary), *self._arguments(repository, parts)],
            called={str(repository): str(self.repository)},
            env=parts.environment,
            stdin=subprocess.DEVNULL,
            # Its own group: Ctrl-C on the terminal reaches only the parent, which stops it.
            start_new_session=True,
            preexec_fn=child.prepare(),  # system calls, no locks
        )
        regions = f"{SHARED_MEMORY}/{self.shared_memory_prefix}*"
        self._guard = guard.start(self._process.pid, self._folder.path, regions)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Returns when a real request is answered; raises with the log's errors otherwise.

        Not only a server that ended is given up: one with a model that does not load would still
        load the others, and one whose Python process died before it said anything would wait for
        it for ever (Triton 2.51).
        """
        deadline = time.monotonic() + timeout_s
        look, dead = time.monotonic(), set[int]()
        while problem := self.problem(self.http_url):
            if self._running().poll() is not None or self._gave_up():
                raise TextPipelineError(f"the server did not start: {self.log.errors()}")
            if probe.is_final(problem):
                raise TextPipelineError(f"the server broke down at its start: {problem}")
            if time.monotonic() > deadline:
                raise TextPipelineError(
                    f"the server answered no request within {timeout_s:.0f} s: {self.log.errors()}"
                )
            if time.monotonic() > look:
                before, dead = dead, child.dead_children(self.pid)
                if before & dead:  # Triton asks at once about those whose end it has noticed
                    raise TextPipelineError(
                        f"a Python process of the server's ended: {self.log.last_words()}"
                    )
                look = time.monotonic() + _CHILDREN_INTERVAL_S
            time.sleep(0.1)

    def watch(self, interval_s: float = WATCH_INTERVAL_S) -> NoReturn:
        """Blocks while the server answers; raises TextPipelineError when it ended or broke down."""
        problems = 0
        while True:
            try:
                code = self._running().wait(interval_s)
            except subprocess.TimeoutExpired:
                problem = self.problem(self.http_url)
            else:
                raise TextPipelineError(f"the server ended with code {code}: {self.log.errors()}")
            # One may be a moment of too much work.
            problems = problems + 1 if problem else 0
            if problem and (problems == MAX_PROBLEMS or probe.is_final(problem)):
                raise TextPipelineError(f"the server broke down: {problem}")

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
        if self._guard is not None:
            # Its group, for it waits in a child of its own.
            os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
            self._guard = None
        for region in SHARED_MEMORY.glob(f"{self.shared_memory_prefix}*"):
            region.unlink(missing_ok=True)
        self._folder.remove()

    def _url(self, port: int) -> str:
        return addresses.joined(addresses.from_this_machine(self.address), port)

    def _gave_up(self) -> bool:
        """Whether the server will end because a model does not load."""
        goes_on = any(argument.startswith("--exit-on-error") for argument in self.extra_arguments)
        return not goes_on and self.log.has_failed_load()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server has not been started")
        return self._process

    def _turns(self) -> list[str]:
        """Arguments for the rate limiter, where the models' configurations share turns."""
        turns = Repository(self.repository).turns(self.model_config_name)
        if not turns:
            return []
        return ["--rate-limit=execution_count", f"--rate-limit-resource={TURN}:{turns}"]

    def _arguments(self, repository: Path, parts: installation.Installation) -> list[str]:
        return [
            f"--model-repository={repository}",
            f"--model-config-name={self.model_config_name}",
            "--disable-auto-complete-config",
            f"--backend-directory={parts.backends}",
            f"--backend-config=python,shm-region-prefix-name={self.shared_memory_prefix}",
            *ports.arguments(
                self.address,
                http=self.http_port,
                grpc=self.grpc_port,
                metrics=self.metrics_port,
            ),
            # Percentiles. deploy/monitoring/README.md says why no histogram, not of a newer Triton.
            "--metrics-config=summary_latencies=true",
            f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
            *frontends.arguments(parts, self.extra_arguments),
            *control.arguments(self.model_control),
            *self._turns(),
            *self.extra_arguments,
        ]
