"""Which version a repository's configurations name."""

import json
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from text_pipeline.client import control
from text_pipeline.contract import ENSEMBLES, REPORT_FORMAT, STEPS
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path)
    repository.create()
    for version in (1, 2, 3):
        folder = tmp_path / "text_classifier_onnx" / str(version)
        folder.mkdir()
        (folder / "model.onnx").touch()
        (folder / "labels.txt").write_text(f"label of {version}\n")
    return repository


def configuration(path: Path) -> model_config_pb2.ModelConfig:
    return text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())


def named(repository: Repository) -> tuple[list[int], int]:
    """The versions that every step loads and the one that every ensemble uses."""
    loaded = {
        tuple(configuration(path).version_policy.specific.versions)
        for model in STEPS
        for path in (repository.path / model).rglob("*.pbtxt")
    }
    used = {
        step.model_version
        for model in ENSEMBLES
        for step in configuration(repository.path / model / "config.pbtxt").ensemble_scheduling.step
    }
    assert (len(loaded), len(used)) == (1, 1)
    return list(loaded.pop()), used.pop()


def test_the_version_before_stays_loaded(repository: Repository) -> None:
    assert (named(repository), repository.version_in_use()) == (([1], 1), 1)
    control.use(repository, 3)
    assert (named(repository), repository.version_in_use()) == (([1, 3], 3), 3)
    control.use(repository, 2)
    assert named(repository) == ([2, 3], 2)
    control.use(repository, 2)
    assert named(repository) == ([2], 2)
    control.use(repository, 1, alone=True)
    assert named(repository) == ([1], 1)


def mark(repository: Repository, version: int, **report: object) -> None:
    report_file = repository.path / "text_classifier_onnx" / str(version) / "export.json"
    report_file.write_text(json.dumps({"model": "./mine", **report}))


def test_a_version_of_an_older_exporter_needs_a_new_export(repository: Repository) -> None:
    mark(repository, 1)
    mark(repository, 2, format=1)
    mark(repository, 3, format=REPORT_FORMAT)
    expected = r"version 1 .* exported by another .*`text-pipeline export --model \./mine "
    with pytest.raises(TextPipelineError, match=expected):
        repository.check()
    with pytest.raises(TextPipelineError, match=r"version 2 .*export it again"):
        control.use(repository, 2)
    control.use(repository, 3)
    assert named(repository) == ([3], 3), "a server would not start with version 1"
    repository.check()


def test_labels_are_those_of_the_version(repository: Repository) -> None:
    control.use(repository, 2)
    labels = repository.path / "text_classifier_onnx" / "labels.txt"
    assert labels.read_text() == "label of 2\n"


def test_nothing_else_in_a_configuration_changes(repository: Repository) -> None:
    paths = sorted(repository.path.rglob("*.pbtxt"))
    before = [path.read_text() for path in paths]
    control.use(repository, 2)
    assert [path.read_text() for path in paths] != before
    control.use(repository, 1, alone=True)
    assert [path.read_text() for path in paths] == before


def test_a_version_that_does_not_exist_is_named(repository: Repository) -> None:
    with pytest.raises(TextPipelineError, match=r"version 4 does not exist .*one of 1, 2, 3"):
        control.use(repository, 4)
    assert named(repository) == ([1], 1)


def test_a_server_that_cannot_be_reached_leaves_the_version_in_use(repository: Repository) -> None:
    with pytest.raises(TextPipelineError, match=r"no server at 127\.0\.0\.1:9"):
        control.use(repository, 2, http_url="127.0.0.1:9")
    assert named(repository) == ([1], 1)


def test_a_version_in_use_that_is_missing_is_named(repository: Repository) -> None:
    (repository.path / "text_classifier_onnx" / "1" / "model.onnx").unlink()
    with pytest.raises(TextPipelineError, match=r"no version 1, .*`text-pipeline use --version 3"):
        repository.check()
