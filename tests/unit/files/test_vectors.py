"""Embeddings in a NumPy file."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.unit.cli.test_classify import COMMAND as CLASSIFY
from tests.unit.stand_in import StandIn, serving
from text_pipeline.errors import TextPipelineError
from text_pipeline.files.vectors import write_npy

COMMAND = [*CLASSIFY[:-1], "embed"]


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_numpy_reads_what_was_written(tmp_path: Path, rows: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(rows, 5)).astype(np.float32)
    path = tmp_path / "vectors.npy"
    with path.open("wb") as file:
        write_npy(iter(vectors), file)
    found = np.load(path)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, vectors if rows else np.empty((0, 0)))


def test_pipe_is_refused() -> None:
    read, write = os.pipe()
    os.close(read)
    with (
        os.fdopen(write, "wb") as file,
        pytest.raises(TextPipelineError, match="expected a file, got a pipe"),
    ):
        write_npy([], file)


def test_rows_are_in_the_order_of_the_texts(tmp_path: Path) -> None:
    texts = ["x" * n for n in range(70)]
    (tmp_path / "texts").write_text("\n".join(texts))
    output = tmp_path / "vectors.npy"
    with serving(stand_in := StandIn()):
        arguments = ["--url", stand_in.url, "--input", tmp_path / "texts", "--output", output]
        subprocess.run([*COMMAND, *arguments], check=True, timeout=120)
    assert np.load(output).tolist() == [[n] * 3 for n in range(70)]


def test_failed_run_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "texts").write_bytes(b"good\n\xff\n")
    with serving(stand_in := StandIn()):
        arguments = ["--url", stand_in.url, "--input", tmp_path / "texts"]
        done = subprocess.run(
            [*COMMAND, *arguments, "--output", tmp_path / "vectors.npy"],
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert b"line 2: not UTF-8" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]
