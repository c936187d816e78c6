"""`text-pipeline inspect` shows a repository as it is, damages included."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import tiny_models
from text_pipeline.cli import commands
from text_pipeline.client import control
from text_pipeline.contract import STEPS
from text_pipeline.export.exporter import export_model
from text_pipeline.repository.versions import Repository

LABELS = ["plain", "[bold]not markup[/bold]", "ünï: \x1b[2J"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of a tiny model, the second in use."""
    folder = tmp_path_factory.mktemp("inspected")
    labels = tiny_models.labelled(LABELS)
    model = tiny_models.bert(folder / "model", num_hidden_layers=1, **labels)
    repository = Repository(folder / "repository")
    texts = ["A text.", "Another one."]
    export_model(str(model), repository, texts=texts, progress=lambda _: None)
    for step in STEPS:
        shutil.copytree(repository.path / step / "1", repository.path / step / "2")
    control.use(repository, 2)
    return repository.path


@pytest.fixture
def repository(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "repository"))


def inspect(path: Path, *options: str) -> str:
    result = CliRunner().invoke(commands, ["inspect", "--repository", str(path), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_version_is_shown_with_what_its_export_found(repository: Path) -> None:
    head, first, second = inspect(repository).split("\n\n")
    names = "config.pbtxt, cpu, latency, tensorrt"
    assert head == f"{repository}: version 2 is in use; configurations: {names}"
    assert first.startswith("version 1, loaded\n") and second.startswith("version 2, in use\n")
    assert "packed, fp32 for cpu" in first
    assert "up to 128 tokens, also pairs" in first
    assert "3: plain, [bold]not markup[/bold], ünï: \ufffd[2J" in first
    assert "100.0% of 9 labels as in PyTorch" in first
    assert "(BertForSequenceClassification)" in first
    assert "damaged" not in first + second


def test_json_holds_everything(repository: Path) -> None:
    content = json.loads(inspect(repository, "--json"))
    assert content["version_in_use"] == 2
    first, second = content["versions"]
    assert first["labels"] == LABELS
    files = [*repository.glob("text_classifier_onnx/2/*"), *repository.glob("*/2/tokenizer/*")]
    assert second["bytes"] == sum(file.stat().st_size for file in files)
    report = repository / "text_classifier_onnx/2/export.json"
    assert second["report"] == json.loads(report.read_text())
    assert second["problems"] == content["problems"] == []


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def age(path: Path) -> None:
    path.write_text(path.read_text().replace('"format": ', '"before": '))


@pytest.mark.parametrize(
    ("file", "spoil", "shown"),
    [
        ("text_classifier_onnx/2/model.onnx", cut, "model.onnx has 100 of "),
        ("text_classifier_onnx/2/model.onnx", Path.unlink, "model.onnx is missing"),
        ("text_classifier_onnx/2/export.json", cut, "export.json cannot be read ("),
        ("text_classifier_onnx/2/export.json", Path.unlink, "export.json is missing"),
        ("text_classifier_onnx/2/export.json", age, "cannot be loaded: export it again"),
        ("text_classifier_onnx/2/labels.txt", Path.unlink, "labels.txt is missing"),
        ("text_tokenizer/2/tokenizer/tokenizer.json", cut, "tokenizer.json is not the one with"),
        ("text_tokenizer/2/tokenizer/tokenizer.json", Path.unlink, "tokenizer.json is missing"),
        ("text_tokenizer/2/model.py", Path.unlink, "model.py is missing"),
        ("text_classifier_onnx/2", shutil.rmtree, "model.onnx is missing"),
        ("text_pipeline_ensemble/config.pbtxt", cut, "text_pipeline_ensemble/config.pbtxt: "),
        ("text_pipeline_ensemble/config.pbtxt", Path.unlink, "No such file"),
    ],
)
def test_damages_are_shown_and_the_rest_with_them(
    repository: Path, file: str, spoil: Callable[[Path], object], shown: str
) -> None:
    spoil(repository / file)
    output = inspect(repository)
    assert [line for line in output.splitlines() if "damaged" in line and shown in line]
    assert "version 1" in output and "version 2" in output


def test_a_version_that_is_gone_is_missed(repository: Path) -> None:
    for path in repository.glob("*/2"):
        shutil.rmtree(path)
    assert "damaged: version 2, which the ensembles use, does not exist" in inspect(repository)


def test_no_repository_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(commands, ["inspect", "--repository", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {tmp_path}/none: no such directory, so there is no model repository\n"
    )
