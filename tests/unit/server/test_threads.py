"""Triton's C++ backend is never given a configuration in which instances fight for the cores."""

import shutil
from pathlib import Path

import pytest

from text_pipeline.contract import CLASSIFIER
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import STATIC_REPOSITORY
from text_pipeline.server import threads


@pytest.fixture
def triton(tmp_path: Path) -> Path:
    """An installed Triton, as far as it tells which backend it has."""
    library = tmp_path / "tritonserver" / threads.CPP_BACKEND
    library.parent.mkdir(parents=True)
    library.touch()
    return tmp_path / "tritonserver"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    model = tmp_path / "repository" / CLASSIFIER
    shutil.copytree(STATIC_REPOSITORY / CLASSIFIER / "configs", model / "configs")
    shutil.copy(STATIC_REPOSITORY / CLASSIFIER / "config.pbtxt", model)
    return tmp_path / "repository"


def test_the_share_is_named(
    repository: Path, triton: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 9)
    with pytest.raises(TextPipelineError, match=r"cpu\.pbtxt: write 4 for intra_op_thread_count"):
        threads.check(repository, "cpu", triton)


def test_without_the_parameter_it_is_the_same(repository: Path, triton: Path) -> None:
    path = repository / CLASSIFIER / "configs" / "cpu.pbtxt"
    path.write_text(path.read_text().replace('"intra_op_thread_count"', '"another"'))
    with pytest.raises(TextPipelineError, match="intra_op_thread_count"):
        threads.check(repository, "cpu", triton)


def test_a_number_is_taken(repository: Path, triton: Path) -> None:
    path = repository / CLASSIFIER / "configs" / "cpu.pbtxt"
    line = 'parameters { key: "intra_op_thread_count" value: { string_value: "0" } }'
    path.write_text(path.read_text().replace(line, line.replace('"0"', '"1"')))
    threads.check(repository, "cpu", triton)


def test_instances_on_a_gpu_have_no_share(repository: Path, triton: Path) -> None:
    threads.check(repository, "gpu", triton)


def test_the_python_based_backend_finds_its_share_itself(repository: Path, tmp_path: Path) -> None:
    threads.check(repository, "cpu", tmp_path / "the wheel's server, laid out as an installed one")
