"""The server under test, and the reference every answer is compared with."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import containers, tiny_models
from tests.closeness import Closeness
from text_pipeline.contract import CLASSIFIER, KEY_VARIABLE
from text_pipeline.default_model import build, corpus
from text_pipeline.export import source
from text_pipeline.export.exporter import export_model
from text_pipeline.repository.versions import Repository
from text_pipeline.server.tritonserver import SHARED_MEMORY, EmbeddedServer

REPOSITORY = Path(__file__).parents[1] / "model_repository"
CONTAINER_TESTS = Path(__file__).parent / "container"


@dataclass(frozen=True)
class Server:
    """Where the server under test listens, each as host:port."""

    http_url: str
    grpc_url: str
    parts: Callable[[], set[str]] = set
    """Process ids of tritonserver and its stubs, and names of their shared memory, if known."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        default="embedded",
        help="'embedded' starts one from the wheel, 'container' the CPU image, 'gpu' the GPU "
        "image; HOST:HTTP_PORT:GRPC_PORT names a running one, with the model of this clone's "
        "model_repository, whose precision says how close answers have to be",
    )


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption("--server")
    if target in containers.IMAGES:
        containers.check(target)
    elif target != "embedded" and target.count(":") != 2:
        raise pytest.UsageError(
            f"--server {target}: expected 'embedded', 'container', 'gpu' or "
            "HOST:HTTP_PORT:GRPC_PORT"
        )
    # A HOST has a device that nobody here knows.
    if ":" not in target:
        containers.check_export(target, _report())


def _report() -> dict[str, Any]:
    """The export.json of the version in use; empty while `make model` has not been run."""
    repository = Repository(REPOSITORY)
    version = repository.version_in_use()
    return (repository.report(version) if version is not None else None) or {}


def pytest_sessionstart(session: pytest.Session) -> None:
    # Not in a fixture, where a first build would count as the time of a test.
    target = session.config.getoption("--server")
    if target in containers.IMAGES and not session.config.option.collectonly:
        containers.build(target)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is about the CPU image runs where that is the server under test."""
    if collection_path == CONTAINER_TESTS and config.getoption("--server") != "container":
        return True
    return None


@pytest.fixture(scope="session")
def serve_repository(
    request: pytest.FixtureRequest,
) -> Callable[..., AbstractContextManager[Server]]:
    """A context manager: a server of the kind under test that serves another repository.

    Its arguments are the repository, `serve --model-control`, and arguments of tritonserver.
    """
    target = request.config.getoption("--server")

    @contextmanager
    def serve(
        repository: Path, model_control: str = "none", arguments: Sequence[str] = ()
    ) -> Iterator[Server]:
        started: containers.ServerContainer | EmbeddedServer
        if target in containers.IMAGES:
            started = containers.ServerContainer(target, repository)
            started.with_command(["serve", "--model-control", model_control, "--", *arguments])
            if key := os.environ.get(KEY_VARIABLE):
                started.with_env(KEY_VARIABLE, key)
        else:
            started = EmbeddedServer(
                repository, model_control=model_control, extra_arguments=arguments
            )
        with started:
            parts = started.parts if target in containers.IMAGES else lambda: _parts(started)
            yield Server(started.http_url, started.grpc_url, parts)

    return serve


def _parts(server: EmbeddedServer) -> set[str]:
    process = psutil.Process(server.pid)
    processes = [process, *process.children(recursive=True)]
    return {str(p.pid) for p in processes} | {
        path.name for path in SHARED_MEMORY.glob(f"{server.shared_memory_prefix}*")
    }


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest,
    serve_repository: Callable[..., AbstractContextManager[Server]],
) -> Iterator[Server]:
    target = request.config.getoption("--server")
    if ":" in target:
        host, http_port, grpc_port = target.split(":")
        yield Server(f"{host}:{http_port}", f"{host}:{grpc_port}")
        return
    with serve_repository(REPOSITORY) as started:
        yield started


@pytest.fixture(scope="session")
def closeness() -> Closeness:
    """How near the answers of the server under test have to be to others, by its precision."""
    return Closeness.of(_report().get("precision", "fp32"))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """What the server under test runs its graphs on: "cpu" or "gpu"."""
    return containers.device(request.config.getoption("--server"))


@pytest.fixture(scope="session")
def default_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model as the Hugging Face directory it is exported from."""
    return build.build(tmp_path_factory.mktemp("default_model"))


@pytest.fixture(scope="session")
def reference(default_model: Path) -> source.Source:
    """The default model in PyTorch."""
    return source.load(str(default_model))


@dataclass(frozen=True)
class Exported:
    """A tiny model and what the exporter made of it."""

    source: source.Source
    repository: Repository
    version: int

    @property
    def graph(self) -> Path:
        """The file of the graph."""
        return self.repository.path / CLASSIFIER / str(self.version) / "model.onnx"


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """Exports one of tiny_models.ARCHITECTURES, once, to a repository that is the same for all."""
    repository = Repository(tmp_path_factory.mktemp("architectures") / "repository")

    @cache
    def export(name: str) -> Exported:
        model = tiny_models.architecture(tmp_path_factory.mktemp(name), name)
        version = export_model(
            str(model), repository, texts=corpus.short(8), progress=lambda _: None
        )
        return Exported(source.load(str(model)), repository, version)

    return export
