"""Whether a repository can be served is known before a server starts."""

import os
import re
from pathlib import Path

import pytest

from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import Repository


def with_model(path: Path) -> Repository:
    model = path / "text_classifier_onnx" / "1" / "model.onnx"
    model.parent.mkdir(parents=True)
    model.touch()
    return Repository(path)


def test_a_repository_with_a_model_is_fit(tmp_path: Path) -> None:
    with_model(tmp_path).check()


@pytest.mark.parametrize("exists", [True, False])
def test_one_without_names_the_commands_that_make_one(tmp_path: Path, exists: bool) -> None:
    path = tmp_path if exists else tmp_path / "missing"
    expected = rf"{re.escape(str(path))} has no model: run `make model`.*--repository {path}`"
    with pytest.raises(TextPipelineError, match=expected):
        Repository(path).check()


def test_its_name_outside_a_container_is_used(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match=r"^\./mine has no model: .*--repository \./mine`"):
        Repository(tmp_path).check("./mine")


def test_what_this_user_may_not_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = with_model(tmp_path)
    model = tmp_path / "text_classifier_onnx" / "1" / "model.onnx"
    model.chmod(0)
    # Root may read everything; the container's tests have a real other user.
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != model and real(path, mode))
    with pytest.raises(TextPipelineError, match=r"model\.onnx is not readable for user \d+: chmod"):
        repository.check()
