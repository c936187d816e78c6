"""What cannot be exported says why in one line, and leaves the repository as it was."""

import json
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import transformers
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from tests import tiny_models
from text_pipeline.cli import commands
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import graph, source
from text_pipeline.repository.versions import Repository

LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 162592\n"
# Enough to see how a text's length or its neighbours matter.
FEW_TEXTS = ["A text.", "Another one, which is longer.", "Rates will rise in May, it says."]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.bert(tmp_path / "model", num_hidden_layers=1)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(FEW_TEXTS))
    return path


def export(model: Path, repository: Path, *options: object) -> Result:
    arguments = ["export", "--model", model, "--repository", repository, *options]
    return CliRunner().invoke(commands, list(map(str, arguments)))


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b""
        for path in directory.rglob("*")
    }


def reason(result: Result, exit_code: int = 1) -> str:
    """The one line that a failed command says."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == exit_code
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def no_tokenizer(model: Path) -> None:
    for path in model.glob("tokenizer*"):
        path.unlink()


def no_fast_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    # A class that is made of that file alone.
    config = '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    (model / "tokenizer_config.json").write_text(config)


def no_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()


def half_the_weights(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def half_of_pytorchs_weights(model: Path) -> None:
    path = model / "pytorch_model.bin"
    torch.save(load_file(model / "model.safetensors"), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    no_weights(model)


def a_web_page_for_weights(model: Path) -> None:
    (model / "model.safetensors").write_text("<html>404 Not Found</html>")


def pointer_for_weights(model: Path) -> None:
    (model / "model.safetensors").write_text(LFS_POINTER)


def pointer_for_a_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").write_text(LFS_POINTER)


def half_a_tokenizer(model: Path) -> None:
    path = model / "tokenizer.json"
    path.write_text(path.read_text()[:500])


def missing_shard(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    no_weights(model)
    shards = {name: f"model-0000{index % 2 + 1}-of-00002.safetensors" for index, name in
              enumerate(weights)}  # fmt: skip
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    first = {n: w for n, w in weights.items() if shards[n].startswith("model-00001")}
    save_file(first, model / "model-00001-of-00002.safetensors", metadata={"format": "pt"})


def of_architecture(kind: type, config: transformers.PretrainedConfig) -> Callable[[Path], None]:
    def write(model: Path) -> None:
        kind(config).save_pretrained(model)

    write.__name__ = kind.__name__
    return write


T5 = transformers.T5Config(
    vocab_size=600, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0
)
BERT = transformers.BertConfig(**tiny_models.SIZES | {"num_hidden_layers": 1})
BROKEN = {
    no_tokenizer: r"has no tokenizer \(tokenizer\.json\): add that of the model",
    no_fast_tokenizer: r"has no tokenizer that can be loaded \(tokenizer\.json\)",
    no_weights: r"has no weights \(model\.safetensors or pytorch_model\.bin\)",
    half_the_weights: r"model\.safetensors has \d+ of \d+ bytes: download it again",
    half_of_pytorchs_weights: r"its weights cannot be read \(.*\): download them again",
    a_web_page_for_weights: r"model\.safetensors is not a safetensors file: download it again",
    pointer_for_weights: r"model\.safetensors is Git LFS's pointer.*git lfs pull",
    pointer_for_a_tokenizer: r"tokenizer\.json is Git LFS's pointer.*git lfs pull",
    half_a_tokenizer: r"tokenizer\.json is not JSON.*download it again",
    missing_shard: r"lacks model-00002-of-00002\.safetensors, of 2 files that .*index\.json",
    of_architecture(transformers.T5ForConditionalGeneration, T5): r"T5ForConditionalGen.*expected",
    of_architecture(transformers.BertForMaskedLM, BERT): r"BertForMaskedLM.*expected",
    of_architecture(transformers.BertForTokenClassification, BERT): r"BertForTokenClass.*expected",
    of_architecture(transformers.BertModel, BERT): r"BertModel.*expected",
}


@pytest.mark.parametrize("spoil", BROKEN, ids=lambda spoil: spoil.__name__)
def test_an_incomplete_or_other_model_is_named_in_one_line(
    model: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(model)
    line = reason(export(model, tmp_path / "repository"))
    assert line.startswith(f"error: {model}")
    assert re.search(BROKEN[spoil], line), line
    assert not (tmp_path / "repository").exists()


def test_a_wrong_folder_is_told_from_a_model(model: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    version = repository / "text_classifier_onnx" / "1"
    version.mkdir(parents=True)
    before = files(tmp_path)
    assert "is a file: give the folder" in reason(export(model / "config.json", repository))
    assert "has no config.json, so" in reason(export(version.parent.parent.parent / "", repository))
    for folder in (repository, version):
        assert f"belongs to the model repository {repository}" in reason(export(folder, repository))
    assert files(tmp_path) == before


def test_a_folder_around_the_model_names_it(model: Path, tmp_path: Path) -> None:
    line = reason(export(model.parent, tmp_path / "repository"))
    assert line.endswith(f"; {model} has one")


Forward = transformers.BertForSequenceClassification.forward


def one_item_after_the_other(self, input_ids, **inputs):
    output = Forward(self, input_ids, **inputs)
    output.logits = torch.stack(list(output.logits))
    return output


def depends_on_a_token(self, input_ids, **inputs):
    if input_ids.sum() > 100:
        inputs["token_type_ids"] = None
    return Forward(self, input_ids, **inputs)


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (one_item_after_the_other, "torch.onnx has fixed padded_input_ids to the example's shape"),
        (depends_on_a_token, "cannot export this model (GuardOnDataDependent"),
    ],
)
def test_code_that_no_graph_can_hold_is_a_reason(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forward, expected: str
) -> None:
    monkeypatch.setattr(transformers.BertForSequenceClassification, "forward", forward)
    line = reason(export(model, tmp_path / "repository", "--layout", "padded"))
    assert expected in line
    assert "another version of transformers" in line
    assert not (tmp_path / "repository").exists()


def test_what_the_exporter_fixed_is_found_by_other_texts_too(
    model: Path, tmp_path: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "_check_dimensions", lambda _: None)
    monkeypatch.setattr(
        transformers.BertForSequenceClassification, "forward", one_item_after_the_other
    )
    repository = tmp_path / "repository"
    options = ("--layout", "padded", "--texts", texts)
    line = reason(export(model, repository, *options), exit_code=5)
    assert re.search(r"cannot run 10 texts of \d+ to \d+ tokens; has its exporter fixed", line)
    assert not repository.exists()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "logits are the same for 10 texts, in PyTorch, too"),
        (float("nan"), "logits are not numbers (NaN or infinite), in PyTorch, too"),
        (float("inf"), "logits are not numbers (NaN or infinite), in PyTorch, too"),
    ],
)
def test_a_model_that_answers_nothing_is_not_published(
    model: Path, tmp_path: Path, texts: Path, value: float, expected: str
) -> None:
    weights = load_file(model / "model.safetensors")
    weights["classifier.weight"].fill_(value)
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    line = reason(export(model, tmp_path / "repository", "--texts", texts))
    assert expected in line
    assert not (tmp_path / "repository").exists()


def test_a_graph_that_answers_no_numbers_is_rejected(
    model: Path, tmp_path: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = graph.build

    def broken(_: source.Source, *arguments: str):
        with_fault = source.load(str(model))
        with_fault.model.classifier.weight.data.fill_(float("nan"))
        return build(with_fault, *arguments)

    monkeypatch.setattr(graph, "build", broken)
    assert "logits inf" in reason(export(model, tmp_path / "new", "--texts", texts), exit_code=5)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """What a full disk does, without one: writing more than `size` bytes to a file fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("name", "size"), [("new", 500), ("empty", 500), ("used", 50_000)],
    ids=["configurations", "configurations in a folder that was there", "graph"],
)  # fmt: skip
def test_a_full_disk_leaves_the_repository_as_it_was(
    model: Path, tmp_path: Path, texts: Path, name: str, size: int
) -> None:
    repository = tmp_path / name
    if name == "empty":
        repository.mkdir()
    elif name == "used":
        Repository(repository).create()
        with Repository(repository).publish(1) as staged:
            (staged.classifier / "model.onnx").write_text("a graph")
    before = files(tmp_path)
    with files_of_at_most(size):
        line = reason(export(model, repository, "--texts", texts))
    assert line.startswith(f"error: {repository}")
    assert "cannot be written (File too large): nothing was published; allow larger files" in line
    assert files(tmp_path) == before


def test_a_disk_that_fills_up_with_the_tokenizer_is_the_same(model: Path, tmp_path: Path) -> None:
    """Rust writes it, with errors of its own."""
    repository = Repository(tmp_path / "repository")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    with (
        pytest.raises(TextPipelineError, match=r"cannot be written \(File too large\)"),
        repository.publish(1) as staged,
        files_of_at_most(1000),
    ):
        tokenizer.save_pretrained(staged.tokenizer)
    assert not repository.path.exists()


def test_large_weights_lie_beside_the_graph(
    tmp_path: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """int8, which runs a graph of all fp32 weights first; fp32 in tests/integration."""
    monkeypatch.setattr(graph, "EMBEDDED_BYTES", 10_000)
    model = tiny_models.bert(tmp_path / "model", hidden_size=128, num_hidden_layers=1)
    options = ("--precision", "int8", "--texts", texts)
    rough = ("--tolerance", 5, "--min-agreement", 0)  # random weights round badly
    assert export(model, tmp_path / "repository", *options, *rough).exit_code == 0
    version = tmp_path / "repository" / "text_classifier_onnx" / "1"
    assert {path.name for path in version.iterdir()} == {
        "export.json", "labels.txt", "model.onnx", "model.onnx.data",
    }  # fmt: skip
    assert (version / "model.onnx.data").stat().st_size > (version / "model.onnx").stat().st_size
