"""Throw-away servers that load runs compare: this project's, variously configured, and others'."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import configuration
from text_pipeline.repository.configuration import Settings
from text_pipeline.server import ports
from text_pipeline.server.tritonserver import EmbeddedServer

START_TIMEOUT_S = 180
# Pinned, each in a virtual environment of its own: what people install today.
_FASTAPI = ("fastapi==0.165.0", "uvicorn==0.54.0", "transformers==5.24.0", "torch==2.13.0")
_INFINITY = ("infinity-emb[server,torch]==0.0.78", "torch==2.13.0")
_NAME = "measured"


@contextmanager
def triton(
    repository: Path, settings: Settings, environment: Mapping[str, str] | None = None
) -> Iterator[EmbeddedServer]:
    """The embedded server with a copy of `repository`, its CPU configuration changed by `settings`.

    `environment` has variables that tokenizer and classifier see.
    """
    with tempfile.TemporaryDirectory(prefix="text-pipeline-load-") as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(repository, copy)
        configuration.write(copy, _NAME, settings)
        with (
            _environment(environment or {}),
            EmbeddedServer(copy, model_config_name=_NAME) as server,
        ):
            yield server


@contextmanager
def fastapi(model: Path, venvs: Path) -> Iterator[str]:
    """FastAPI with a transformers pipeline: `host:port`, POST /classify {"text": ...}."""
    python = _venv(venvs / "fastapi", _FASTAPI)
    app = Path(__file__).with_name("fastapi_server.py")
    with _running(
        lambda port: [
            str(python), "-m", "uvicorn", "--app-dir", str(app.parent), f"{app.stem}:app",
            "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning",
        ],
        {"MODEL": str(model)},
    ) as url:  # fmt: skip
        yield url


@contextmanager
def infinity(model: Path, venvs: Path) -> Iterator[str]:
    """infinity, torch engine: `host:port`, POST /classify {"model": ..., "input": [...]}."""
    python = _venv(venvs / "infinity", _INFINITY)
    with _running(
        lambda port: [
            str(python.with_name("infinity_emb")), "v2", "--model-id", str(model),
            "--engine", "torch", "--device", "cpu", "--batch-size", "32",
            "--no-model-warmup", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error",
        ],
        {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"},
    ) as url:  # fmt: skip
        yield url


def _venv(path: Path, packages: tuple[str, ...]) -> Path:
    """The Python of a virtual environment with `packages`, made if it is missing."""
    python = path / "bin" / "python"
    if not (path / "complete").exists():
        shutil.rmtree(path, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(path)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, *packages], check=False).returncode:
            raise TextPipelineError(f"could not install {' '.join(packages)}")
        (path / "complete").touch()
    return python


@contextmanager
def _running(command: Callable[[int], list[str]], environment: Mapping[str, str]) -> Iterator[str]:
    """A server on a free port of this machine, ended with the block."""
    [port] = ports.free_ports(1, "127.0.0.1")
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command(port),
            env={**os.environ, **environment, "HF_HUB_OFFLINE": "1"},
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            _wait(process, port, output)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, output: TextIO) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    output.seek(0)
    last = " ".join(output.read().strip().splitlines()[-1:])
    raise TextPipelineError(f"a server to compare with did not start: {last}")


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
