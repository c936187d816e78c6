"""Runs NVIDIA's perf_analyzer: natively where it is installed, else in a container.

Its wheel needs glibc 2.38 (Debian 13, Ubuntu 24.04). docker/perf-analyzer.Dockerfile carries it for
older machines; the container shares this machine's network and shared memory.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from text_pipeline.client import proxies
from text_pipeline.contract import ENSEMBLE
from text_pipeline.errors import TextPipelineError
from text_pipeline.measure.measurement import Measurement
from text_pipeline.measure.statistics import ModelStatistics, ServerStatistics

VERSION = "2.60.0"
IMAGE = f"text-pipeline-perf-analyzer:{VERSION}"
DOCKERFILE = Path(__file__).parents[2] / "docker" / "perf-analyzer.Dockerfile"
# Not shared memory: perf_analyzer 2.60 refuses it for models with optional inputs (text_pair).
PROTOCOLS = {
    "grpc": ["-i", "grpc", "--async"],
    "grpc streaming": ["-i", "grpc", "--async", "--streaming"],
    "http binary": ["-i", "http", "--async"],
    "http json": [
        "-i", "http", "--async", "--input-tensor-format", "json", "--output-tensor-format", "json",
    ],
}  # fmt: skip
ATTEMPTS = 3
STALL_S = 20.0
"""Without an answer for so long, a run is given up."""
ENDPOINT_LIMIT_S = 300.0
"""For a whole run on another server than Triton, for nobody counts its answers."""
POLL_S = 1.0
_SAYS_WHY = re.compile(r"error|failed|what\(\)", re.I)


@dataclass(frozen=True)
class Load:
    """How many requests are sent and when: `concurrency` in flight, or `rate` a second."""

    requests: int
    concurrency: int | None = None
    rate: float | None = None
    """Mean of Poisson arrivals: requests come whether or not earlier ones have been answered."""

    def arguments(self) -> list[str]:
        """As perf_analyzer takes it."""
        count = ["--request-count", str(self.requests)]
        if self.rate is None:
            return ["--concurrency-range", str(self.concurrency), *count]
        return [
            "--request-rate-range",
            f"{self.rate:g}",
            "--request-distribution",
            "poisson",
            *count,
        ]


class Server(Protocol):
    """A Triton server: `host:port` of each endpoint."""

    @property
    def http_url(self) -> str: ...
    @property
    def grpc_url(self) -> str: ...


@dataclass(frozen=True)
class Run:
    """What callers saw, and what the server counted of it."""

    requests: Measurement
    models: Mapping[str, ModelStatistics]
    """By model; empty for servers other than Triton."""


def run(
    texts: Sequence[str],
    load: Load,
    server: Server,
    *,
    protocol: str = "grpc",
    texts_a_request: int = 1,
    commands: list[str] | None = None,
) -> Run:
    """Sends `texts`, one or more a request, again and again to `text_pipeline_ensemble`.

    A request of several has texts that follow each other. Raises TextPipelineError with
    perf_analyzer's own words when the server is not there, does not serve the model or rejects a
    text. `commands` gets the command line.
    """
    url = server.http_url if protocol.startswith("http") else server.grpc_url
    batch = [] if texts_a_request == 1 else ["-b", str(texts_a_request)]
    arguments = [*PROTOCOLS[protocol], "-m", ENSEMBLE, *batch, *load.arguments()]
    return _run(url, arguments, [{"text": [text]} for text in texts], commands, server)


def run_endpoint(
    payloads: Sequence[dict], load: Load, url: str, path: str, commands: list[str] | None = None
) -> Run:
    """Posts JSON `payloads` to `path` of any HTTP server at `url` (host:port)."""
    arguments = [
        "--service-kind", "openai", "-i", "http", "--async", "--endpoint", path, "-m", "any",
        *load.arguments(),
    ]  # fmt: skip
    return _run(url, arguments, [{"payload": [payload]} for payload in payloads], commands, None)


def _run(
    url: str,
    arguments: list[str],
    data: list[dict],
    commands: list[str] | None,
    server: Server | None,
) -> Run:
    arguments += ["-u", url, "--input-data", "data.json", "--profile-export-file", "requests.json"]
    if commands is not None:
        commands.append(shlex.join(["perf_analyzer", *arguments]))
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="text-pipeline-load-") as name:
            folder = Path(name)
            (folder / "data.json").write_text(json.dumps({"data": data}), encoding="utf-8")
            before = ServerStatistics.read(server.grpc_url) if server else None
            if not _finishes(url, arguments, folder, server):
                continue
            requests = Measurement.read(folder / "requests.json")
            if server is None or before is None:
                return Run(requests, {})
            return Run(requests, ServerStatistics.read(server.grpc_url).since(before))
    raise TextPipelineError(
        f"{shlex.join(arguments)}: nothing happened for {STALL_S:.0f} s, {ATTEMPTS} times"
    )


def _finishes(url: str, arguments: Sequence[str], folder: Path, server: Server | None) -> bool:
    """Runs perf_analyzer once; False when it stalls.

    perf_analyzer 2.60 does so now and then with --request-count (twice in about 100 runs): the
    server has answered everything, and it goes on waiting.
    """
    with _command(folder, url) as command, (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=proxies.environment(url),
        )
        try:
            code = _wait(process, server)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        printed = output.read()
    if code:
        raise TextPipelineError(f"perf_analyzer ended with code {code}: {_problem(printed)}")
    return code == 0


def _wait(process: subprocess.Popen[bytes], server: Server | None) -> int | None:
    """The exit code, or None when the server has answered nothing for STALL_S."""
    answered, since = None, time.monotonic()
    limit_s = STALL_S if server else ENDPOINT_LIMIT_S
    while time.monotonic() - since < limit_s:
        try:
            return process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if server and (now := ServerStatistics.read(server.grpc_url).answered) != answered:
                answered, since = now, time.monotonic()
    return None


def _problem(printed: str) -> str:
    """The lines in which perf_analyzer says what went wrong."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if _SAYS_WHY.search(line)]
    return "; ".join(dict.fromkeys(errors[-3:] or lines[-1:]))


@contextmanager
def _command(folder: Path, url: str) -> Iterator[list[str]]:
    """The command that runs perf_analyzer in `folder`; a container ends with the block."""
    if native := _native():
        yield [str(native)]
        return
    image = _image()
    name = f"perf-analyzer-{uuid.uuid4().hex[:12]}"
    user = f"{os.getuid()}:{os.getgid()}"
    # Docker's own settings may give every container proxies.
    no_proxies = [f"--env={name}=" for name in proxies.VARIABLES if proxies.are_bypassed(url)]
    try:
        yield [
            "docker", "run", "--rm", "--name", name, "--network", "host", "--ipc", "host",
            *no_proxies, "--user", user, "--volume", f"{folder}:{folder}",
            "--workdir", str(folder), image,
        ]  # fmt: skip
    finally:
        # Of a run that was cut short: the client's end does not end its container.
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)


@cache
def _native() -> Path | None:
    """The program in its wheel, if it runs here; the wheel's starter drops its exit code."""
    spec = importlib.util.find_spec("perf_analyzer")
    for folder in (spec and spec.submodule_search_locations) or ():
        program = Path(folder) / "bin" / "perf_analyzer"
        if program.is_file() and _runs([str(program), "--version"]):
            return program
    return None


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@cache
def _image() -> str:
    """The image with perf_analyzer, built if it is missing."""
    remedy = (
        "perf_analyzer is not installed: pip install 'text-pipeline[perf-analyzer]' where glibc is "
        "2.38 or later, or start Docker"
    )
    if not shutil.which("docker"):
        raise TextPipelineError(remedy)
    if _runs(["docker", "image", "inspect", IMAGE]):
        return IMAGE
    if not DOCKERFILE.is_file():
        raise TextPipelineError(f"{remedy} and build {IMAGE} from docker/perf-analyzer.Dockerfile")
    build = ["docker", "build", "--quiet", "--file", str(DOCKERFILE), "--tag", IMAGE]
    done = subprocess.run(
        [*build, str(DOCKERFILE.parent)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise TextPipelineError(f"{remedy}; building {IMAGE} failed: {' '.join(last)}")
    return IMAGE
