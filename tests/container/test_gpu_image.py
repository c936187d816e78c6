"""The GPU image as far as it goes without a GPU: on a stand-in for Triton's own image.

Its steps, its entry point, its user and its stop are the real ones; the server, its backends and
the device are not.
"""

import subprocess
from collections.abc import Iterator

import pytest

from tests import containers
from tests.conftest import REPOSITORY, Server
from tests.containers import ROOT, STOP_GRACE_S, ServerContainer
from tests.integration.protocols import infer

STAND_IN = "text-pipeline-test:triton-stand-in"
IMAGE = "text-pipeline-test:gpu"


def build(dockerfile: str, tag: str, *options: str) -> None:
    subprocess.run(
        ["docker", "buildx", "build", "--quiet", "--file", dockerfile, "--tag", tag, *options, "."],
        cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    build("tests/container/triton-stand-in.Dockerfile", STAND_IN)
    # No target: the GPU image is the default.
    build("docker/Dockerfile", IMAGE, "--build-arg", f"TRITON_IMAGE={STAND_IN}")
    yield IMAGE
    subprocess.run(["docker", "image", "rm", IMAGE, STAND_IN], check=True, capture_output=True)


def start(image: str, monkeypatch: pytest.MonkeyPatch, **options) -> ServerContainer:
    monkeypatch.setitem(containers.IMAGES, "container", image)
    return ServerContainer("container", REPOSITORY, **options)


@pytest.mark.timeout(600)  # it builds two images
def test_it_serves_and_stops_as_the_cpu_image_does(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"TEXT_PIPELINE_SERVE_MODEL_CONFIG_NAME": "cpu"}
    with start(image, monkeypatch, env=environment) as container:
        server = Server(container.http_url, container.grpc_url)
        assert len(infer(server, "grpc", ["A text.", "Another."])["labels"]) == 2
        assert container.exec(["text-pipeline", "health"]).exit_code == 0
        container.get_wrapped_container().stop(timeout=STOP_GRACE_S)
        assert container.state()["ExitCode"] == 0


def test_without_a_gpu_it_says_so(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, log = start(image, monkeypatch).run_to_end()
    assert code == 1
    assert "invalid or unsupported gpu id 0" in log.splitlines()[-1]


def test_it_has_no_pytorch_and_the_numpy_of_its_base(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"TEXT_PIPELINE_SERVE_MODEL_CONFIG_NAME": "cpu"}
    with start(image, monkeypatch, env=environment) as container:
        found = container.exec(["python3", "-c", "import numpy; print(numpy.__file__)"])
        assert found.output.startswith(b"/usr/local/lib/python3")
        assert container.exec(["python3", "-c", "import torch"]).exit_code == 1
