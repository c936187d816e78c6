"""Servers in containers: built from docker/Dockerfile, started and stopped with testcontainers."""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import DockerException
from docker.types import DeviceRequest
from testcontainers.core.container import DockerContainer

from text_pipeline.server import ports
from text_pipeline.server.probe import ensemble_problem

ROOT = Path(__file__).parents[1]
IMAGES = {"container": "text-pipeline:cpu", "gpu": "text-pipeline:gpu"}
TARGETS = {"container": "cpu", "gpu": "gpu"}
GPU_DRIVER = Path("/dev/nvidiactl")
STOP_GRACE_S = 20
"""As stop_grace_period in compose.yaml."""


def check(kind: str) -> None:
    """Raises UsageError when this machine cannot run servers of this kind."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise pytest.UsageError(f"--server {kind} needs a Docker engine: {error}") from None
    client.close()
    if kind == "gpu" and not GPU_DRIVER.exists():
        raise pytest.UsageError(
            f"--server gpu needs an NVIDIA GPU and its driver: {GPU_DRIVER} does not exist"
        )


def device(server: str) -> str:
    """What a `--server` runs its graphs on: "cpu" or "gpu"."""
    return "gpu" if server == "gpu" else "cpu"


def check_export(server: str, report: Mapping[str, Any]) -> None:
    """Raises UsageError if the model of this clone was exported for another device.

    `report` is its export.json. A packed graph for CPU has loops, which on a GPU are slow beyond
    measure; one for GPU has operators that ONNX Runtime has for CUDA alone.
    """
    expected, found = device(server), report.get("device", device(server))
    if found != expected:
        raise pytest.UsageError(
            f"--server {server} needs a model that was exported for {expected}, the version in use "
            f"of model_repository was exported for {found}: `text-pipeline export --model default "
            f"--device {expected} --repository model_repository`"
        )


def build(kind: str) -> None:
    """Builds the image; Docker's build cache knows what is up to date."""
    subprocess.run(
        ["docker", "buildx", "build", "--quiet", "--file", "docker/Dockerfile",
         "--target", TARGETS[kind], "--tag", IMAGES[kind], "."],
        cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


class ServerContainer(DockerContainer):
    """A server for `repository`, as restricted as in compose.yaml, on free ports of 127.0.0.1.

    `options` are those of docker-py's `containers.create`. As a context manager it is ready inside
    the block.
    """

    def __init__(self, kind: str, repository: Path, **options: Any) -> None:
        defaults = {
            "user": "1000:1000",
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "shm_size": "256m",
            "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])]
            if kind == "gpu"
            else [],
        }
        super().__init__(IMAGES[kind], **(defaults | options))
        self.http_port, self.grpc_port, self.metrics_port = ports.free_ports(3)
        chosen = (self.http_port, self.grpc_port, self.metrics_port)
        # Fixed ones, for only those outlive a restart; with_bind_ports would take every address.
        self.ports = {
            str(inside): ("127.0.0.1", port)
            for inside, port in zip((8000, 8001, 8002), chosen, strict=True)
        }
        self.with_volume_mapping(repository, "/models", "ro")
        self.with_tmpfs_mount("/tmp", "size=64m")

    @property
    def http_url(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def __enter__(self) -> "ServerContainer":
        super().__enter__()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def wait_ready(self, timeout_s: float = 120) -> None:
        """Returns when a text is classified; an early end or the timeout fails with the log."""
        deadline = time.monotonic() + timeout_s
        while problem := ensemble_problem(self.http_url):
            if (ended := self.state())["Status"] == "exited":
                pytest.fail(f"the container ended with {ended['ExitCode']}:\n{self.log()}", False)
            if time.monotonic() > deadline:
                pytest.fail(f"not ready in {timeout_s} s: {problem}\n{self.log()}", False)
            time.sleep(0.2)

    def state(self) -> dict[str, Any]:
        """Docker's `State` of the container: Status, ExitCode, Health, ..."""
        self.reload()
        return self.get_wrapped_container().attrs["State"]

    def parts(self) -> set[str]:
        """Process ids of tritonserver and its stubs, and names of their shared memory."""
        top = self.get_wrapped_container().top()
        pid = top["Titles"].index("PID")
        processes = {row[pid] for row in top["Processes"] if "triton" in row[-1].split()[0]}
        return processes | set(self.exec(["ls", "/dev/shm"]).output.decode().split())

    def log(self, lines: int = 60) -> str:
        return self.get_wrapped_container().logs(tail=lines).decode(errors="replace")

    def run_to_end(self, timeout_s: float = 30) -> tuple[int, str]:
        """The exit code and the log of a container that ends by itself."""
        self.start()
        try:
            code = self.get_wrapped_container().wait(timeout=timeout_s)["StatusCode"]
            return code, self.log()
        finally:
            self.stop()
