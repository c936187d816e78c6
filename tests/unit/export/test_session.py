"""The check's sessions run on what they are told to, and on nothing that is only there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.unit.onnx_backend import ragged_model
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import session

# As onnxruntime-gpu has them.
AVAILABLE = ["TensorrtExecutionProvider", session.CUDA, session.CPU]


class Opened:
    """Stands in for onnxruntime.InferenceSession, which drops a provider that does not start."""

    starts: frozenset[str] = frozenset({session.CPU})

    def __init__(self, *_: Any, providers: list[Any]) -> None:
        names = [name if isinstance(name, str) else name[0] for name in providers]
        self.providers = [name for name in names if name in self.starts]

    def get_providers(self) -> list[str]:
        """Those that started."""
        return self.providers


@pytest.fixture(autouse=True)
def asked_once() -> Iterator[None]:
    session._has_cuda.cache_clear()
    yield
    session._has_cuda.cache_clear()


@pytest.fixture
def with_gpu_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.onnxruntime, "get_available_providers", lambda: AVAILABLE)
    monkeypatch.setattr(session.onnxruntime, "InferenceSession", Opened)


def test_a_gpu_is_cuda_without_tf32_and_then_the_cpu() -> None:
    assert session.providers("gpu") == [(session.CUDA, {"use_tf32": "0"}), session.CPU]
    assert session.providers("cpu") == [session.CPU]


def test_a_graph_is_opened_on_the_cpu(tmp_path: Path) -> None:
    onnx.save(ragged_model.graph(), tmp_path / "model.onnx")
    assert session.open_session(tmp_path / "model.onnx").get_providers() == [session.CPU]


@pytest.mark.usefixtures("with_gpu_package")
@pytest.mark.parametrize(
    ("starts", "device", "expected"),
    [
        ({session.CUDA, session.CPU}, "gpu", "gpu"),
        ({session.CUDA, session.CPU}, "cpu", "cpu"),
        ({session.CPU}, "gpu", "cpu"),
    ],
    ids=["GPU", "graph for CPU", "onnxruntime-gpu without a GPU"],
)
def test_a_graph_is_checked_on_a_gpu_only_where_one_starts(
    monkeypatch: pytest.MonkeyPatch, starts: set[str], device: str, expected: str
) -> None:
    monkeypatch.setattr(Opened, "starts", frozenset(starts))
    assert session.checked_on(device) == expected


def test_without_the_gpu_package_it_is_checked_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.onnxruntime, "get_available_providers", lambda: [session.CPU])
    assert session.checked_on("gpu") == "cpu"


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_the_question_is_a_graph_that_onnx_runtime_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    # The real one, which has no CUDA here.
    monkeypatch.setattr(session.onnxruntime, "get_available_providers", lambda: AVAILABLE)
    assert session.checked_on("gpu") == "cpu"


@pytest.mark.usefixtures("with_gpu_package")
def test_a_gpu_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match="CUDAExecutionProvider did not start"):
        session.open_session(tmp_path / "model.onnx", "gpu")
