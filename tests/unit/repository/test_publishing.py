"""A version is published as a whole or not at all, whatever file systems its folders are on."""

import errno
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.places import run_in
from text_pipeline.contract import CLASSIFIER, TOKENIZER
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import Repository

# Publishes a version of so many bytes in both folders, then prints what the repository holds.
PUBLISH = """
import sys
from pathlib import Path
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import Repository

repository, version, size = Repository(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
try:
    with repository.publish(version) as staged:
        (staged.classifier / "model.onnx").write_text("a graph")
        (staged.tokenizer / "tokenizer.json").write_bytes(bytes(size))
    print("published")
except TextPipelineError as error:
    print(error)
for path in sorted(repository.path.rglob("*")):
    print(path.relative_to(repository.path))
"""


def publish_in(place: Path, options: str, repository: Path, version: int, size: int) -> list[str]:
    arguments = [str(repository), str(version), str(size)]
    done = run_in(place, options, [sys.executable, "-c", PUBLISH, *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b""
        for path in directory.rglob("*")
    }


def fill(repository: Repository, version: int, content: str = "new") -> None:
    with repository.publish(version) as staged:
        (staged.classifier / "model.onnx").write_text(content)
        (staged.tokenizer / "tokenizer.json").write_text(content)


@pytest.mark.parametrize("folder", [TOKENIZER, CLASSIFIER, f"{TOKENIZER}/2", f"{CLASSIFIER}/2"])
def test_a_folder_on_another_file_system_gets_its_part(tmp_path: Path, folder: str) -> None:
    """A version's own folder as a mount cannot be replaced: that is said, and nothing is left."""
    place = tmp_path / "repository" / folder
    place.mkdir(parents=True)
    outcome, *inside = publish_in(place, "size=1M", tmp_path / "repository", 2, 1000)
    if folder == f"{CLASSIFIER}/2":
        assert f"{place} cannot be written" in outcome
        assert "unmount it" in outcome
        assert inside == [CLASSIFIER, folder]
    else:
        assert outcome == "published"
        assert {f"{CLASSIFIER}/2/model.onnx", f"{TOKENIZER}/2/tokenizer/tokenizer.json"} < {*inside}
        assert not any(".export-" in path for path in inside)


def test_a_link_to_another_file_system_gets_its_part(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    other = Path("/dev/shm") / f"{tmp_path.name}-{os.getpid()}"
    other.mkdir()
    try:
        repository.path.mkdir()
        (repository.path / TOKENIZER).symlink_to(other)
        fill(repository, 1)
        assert (other / "1" / "tokenizer" / "tokenizer.json").is_file()
        assert repository.versions() == [1]
    finally:
        shutil.rmtree(other)


@pytest.mark.parametrize(
    ("options", "reason", "advice"),
    [
        ("size=100k", "No space left on device", "make room there"),
        ("size=1M,ro", "Read-only file system", "it is mounted read-only"),
    ],
)
def test_a_tokenizers_file_system_that_takes_nothing_is_named_and_nothing_is_left(
    tmp_path: Path, options: str, reason: str, advice: str
) -> None:
    place = tmp_path / "repository" / TOKENIZER
    place.mkdir(parents=True)
    outcome, *inside = publish_in(place, options, tmp_path / "repository", 2, 200_000)
    assert str(place) in outcome
    assert f"cannot be written ({reason}): nothing was published; {advice}" in outcome
    assert inside == [TOKENIZER]


@pytest.mark.parametrize("failing", [TOKENIZER, CLASSIFIER])
def test_what_was_in_the_way_is_there_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Of an interrupted export: a tokenizer, or a classifier without a graph."""
    repository = Repository(tmp_path)
    fill(repository, 1)
    (tmp_path / CLASSIFIER / "1" / "model.onnx").rename(tmp_path / CLASSIFIER / "1" / "half")
    before = files(tmp_path)
    rename = Path.rename

    def fail(source: Path, target: Path) -> Path:
        if source.name != "old" and failing in str(target) and ".export-" not in str(target):
            raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))
        return rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(TextPipelineError, match="make room there"):
            fill(repository, 1)
    assert files(tmp_path) == before
    fill(repository, 1)
    assert repository.versions() == [1]
    assert not [*tmp_path.rglob("half")]


def test_a_version_that_another_export_has_published_meanwhile_stays(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    with pytest.raises(TextPipelineError, match=r"version 1 exists in"):  # noqa: SIM117 - publishing raises
        with repository.publish(1) as staged:
            (staged.classifier / "model.onnx").write_text("late")
            fill(repository, 1, "first")
            before = files(tmp_path)
    left = {name for name in before if ".export-" not in name}
    assert {*files(tmp_path)} == left
    assert (tmp_path / CLASSIFIER / "1" / "model.onnx").read_text() == "first"
    assert (tmp_path / TOKENIZER / "1" / "tokenizer" / "tokenizer.json").read_text() == "first"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EDQUOT, "the quota there is used up"),
        (errno.EACCES, "let this user write there (chmod, chown)"),
        (errno.EPERM, "let this user write there"),
        (errno.ENAMETOOLONG, "choose a shorter path"),
        (errno.EIO, "the disk, or the network to it, has failed"),
    ],
)
def test_advice_depends_on_the_error(tmp_path: Path, number: int, advice: str) -> None:
    repository = Repository(tmp_path / "new")
    with pytest.raises(TextPipelineError) as error, repository.publish(1) as staged:
        raise OSError(number, os.strerror(number), str(staged.tokenizer))
    assert f"cannot be written ({os.strerror(number)}): nothing was published; {advice}" in str(
        error.value
    )
    assert not repository.path.exists()


def test_numpys_error_of_a_full_disk_has_no_number(tmp_path: Path) -> None:
    """Large weights are written by NumPy."""
    repository = Repository(tmp_path / "new")
    expected = rf"{tmp_path}/new cannot be written \(No space left on device\).*make room there"
    with pytest.raises(TextPipelineError, match=expected), repository.publish(1):
        np.ones(100_000).tofile("/dev/full")
    assert not repository.path.exists()


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    repository = Repository(tmp_path / ("long" * 100))
    with pytest.raises(TextPipelineError, match=r"\(File name too long\).*choose a shorter path"):
        fill(repository, 1)


def test_a_file_that_cannot_be_read_elsewhere_is_no_matter_of_the_repository(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError), Repository(tmp_path / "new").publish(1):
        (tmp_path / "missing").read_text()
    assert not (tmp_path / "new").exists()
