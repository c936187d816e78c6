"""The server under test, and the reference every answer is compared with."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from text_pipeline.default_model import build
from text_pipeline.embedded.server import EmbeddedServer
from text_pipeline.export import source

REPOSITORY = Path(__file__).parents[1] / "model_repository"


@dataclass(frozen=True)
class Server:
    """Where the server under test listens, each as host:port."""

    http_url: str
    grpc_url: str


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        default="embedded",
        help="'embedded' starts one from the wheel; HOST:HTTP_PORT:GRPC_PORT names a running one",
    )


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    target = request.config.getoption("--server")
    if target == "embedded":
        with EmbeddedServer(REPOSITORY) as embedded:
            yield Server(embedded.http_url, embedded.grpc_url)
        return
    try:
        host, http_port, grpc_port = target.split(":")
    except ValueError:
        raise pytest.UsageError(
            f"--server {target}: expected 'embedded' or HOST:HTTP_PORT:GRPC_PORT"
        ) from None
    yield Server(f"{host}:{http_port}", f"{host}:{grpc_port}")


@pytest.fixture(scope="session")
def default_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model as the Hugging Face directory it is exported from."""
    return build.build(tmp_path_factory.mktemp("default_model"))


@pytest.fixture(scope="session")
def reference(default_model: Path) -> source.Source:
    """The default model in PyTorch."""
    return source.load(str(default_model))
