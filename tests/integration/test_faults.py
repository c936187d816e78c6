"""A repository that cannot be served ends the start in seconds, with the file that is wrong."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from text_pipeline.errors import TextPipelineError


def remove(path: Path) -> None:
    path.unlink()


def break_off(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()  # the original is the same file
    path.write_bytes(content[: len(content) // 2])


def replace_by_another(path: Path) -> None:
    content = path.read_text()
    path.unlink()
    path.write_text(content.replace('"[PAD]":0', '"[PAD]":40000').replace("\n", "\n ", 1))


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        ("text_tokenizer/1/tokenizer/tokenizer.json", remove, "has no tokenizer.json"),
        ("text_tokenizer/1/tokenizer/tokenizer_config.json", break_off, "cannot be read"),
        ("text_tokenizer/1/tokenizer/tokenizer.json", replace_by_another, "is not the tokenizer"),
        ("text_classifier_onnx/1/model.onnx", break_off, "model.onnx failed"),
    ],
    ids=["no tokenizer", "half a configuration", "another model's tokenizer", "half a graph"],
)
def test_a_damaged_file_is_named(
    tmp_path: Path, serve_repository, file: str, damage: Callable[[Path], None], said: str
) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(REPOSITORY, repository, copy_function=os.link)
    damage(repository / file)
    started = time.monotonic()
    # The container's start fails with its log.
    failures = (TextPipelineError, pytest.fail.Exception)
    with pytest.raises(failures, match=said) as failure, serve_repository(repository):
        pass
    assert time.monotonic() - started < 30
    assert str(Path(file).parent) in str(failure.value)
