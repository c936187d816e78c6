"""A folder that declares what nobody can serve is refused in one line, with the file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests import tiny_models
from text_pipeline import cli
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import source

ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "owner/base-model"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.bert(tmp_path_factory.mktemp("model"), num_hidden_layers=1)


@pytest.fixture
def model(directory: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def reason(model: Path) -> str:
    with pytest.raises(TextPipelineError) as error:
        source.load(str(model))
    assert str(error.value).startswith(str(model))
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("architectures", "BertForSequenceClassification", "expected a list of class names"),
        ("architectures", [7], "architectures in config.json is [7], expected one that ends in"),
        ("auto_map", 3, "auto_map in config.json is 3, expected an object"),
        ("sentence_transformers", ["x"], 'sentence_transformers in config.json is ["x"]'),
        ("sbert_ce_default_activation_function", {}, "expected the name of a class"),
        ("problem_type", "rating", 'problem_type in config.json is "rating", expected one of'),
        ("problem_type", 7, "problem_type in config.json is 7, expected one of regression"),
        # What transformers checks, or does not.
        ("hidden_size", "32", "'hidden_size' expected int, got str"),
        ("hidden_size", 33, "The hidden size (33) is not a multiple"),
        ("max_position_embeddings", -1, "RuntimeError: Trying to create tensor with negative"),
        (
            "hidden_act",
            "nonsense",
            "cannot be loaded as config.json describes it (KeyError: 'nonsense')",
        ),
        (
            "dtype",
            "nonsense",
            "cannot be loaded as config.json describes it (AttributeError: module 'torch' has no",
        ),
        ("model_type", 7, "has model type `7` but Transformers does not recognize"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(
    model: Path, field: str, value: Any, expected: str
) -> None:
    edited(model / "config.json", **{field: value})
    assert expected in reason(model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", ["[1, 2]", "7", "null", '"text"'])
def test_a_file_that_holds_no_object_is_named(model: Path, name: str, content: str) -> None:
    (model / name).write_text(content)
    assert f"{model / name} holds a " in reason(model)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": ["a"]}', '{"weight_map": null}'])
def test_an_index_of_no_weights_is_named(model: Path, content: str) -> None:
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(content)
    assert "model.safetensors.index.json has no" in reason(model)


@pytest.mark.parametrize("missing", [[], ["config.json", "model.safetensors"]])
def test_an_adapter_is_to_be_merged_first(model: Path, missing: list[str]) -> None:
    for name in missing:
        (model / name).unlink()
    (model / "adapter_config.json").write_text(json.dumps(ADAPTER))
    line = reason(model)
    assert "has an adapter (adapter_config.json) for owner/base-model" in line
    assert "merge_and_unload()" in line


def test_an_adapter_whose_file_is_broken_is_an_adapter(model: Path) -> None:
    (model / "adapter_config.json").write_text("[")
    assert "for another model, such as LoRA trains" in reason(model)


def test_own_code_that_fails_is_one_line_and_its_traceback_with_debug(model: Path) -> None:
    (model / "own.py").write_text("raise LookupError('of its own\\nand more')")
    edited(
        model / "config.json",
        auto_map={"AutoModelForSequenceClassification": "own.Classifier"},
    )
    command = ["export", "--model", str(model), "--repository", str(model / "new")]
    done = CliRunner().invoke(cli.commands, [*command, "--trust-remote-code"])
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith(
        f"error: {model}: cannot be loaded as config.json describes it (LookupError: of its own)"
    )
    shown = CliRunner().invoke(cli.commands, [*command, "--trust-remote-code", "--debug"])
    assert shown.exit_code == 1
    assert "Traceback (most recent call last)" in shown.stderr
    assert shown.stderr.splitlines()[-1] == done.stderr.strip()


def test_without_docstrings_an_export_says_so(model: Path) -> None:
    command = ["export", "--model", str(model), "--repository", str(model / "new")]
    code = "from text_pipeline.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-OO", "-c", code, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: transformers needs its docstrings: run Python without -OO")
