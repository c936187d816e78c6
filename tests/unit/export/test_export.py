"""What the exporter publishes, and what it refuses to."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.torch import load_file, save_file

from tests import tiny_models
from text_pipeline.errors import ExportRejectedError, TextPipelineError
from text_pipeline.export import gate, graph, source
from text_pipeline.export.exporter import export_model
from text_pipeline.repository.versions import Repository

ELEVEN_LABELS = [f"label {n}" for n in range(9)] + ['semi;colon: "quoted" ünï', "two\nlines"]

# Large enough for int8, and with random weights so far from any trained model that rounding shows.
LARGE = {"hidden_size": 128, "intermediate_size": 128}
# Random weights, and a vocabulary that the tokenizer's training makes a little differently every
# time: logits of int8 differ by 1.2 to 2.6 from PyTorch's.
ROUGH = {"tolerance": 5, "min_agreement": 0.8}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def export(model: Path, repository: Repository, **options) -> int:
    return export_model(str(model), repository, progress=lambda _: None, **options)


def files(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def test_new_repository_is_complete(tmp_path: Path, repository: Repository) -> None:
    assert export(tiny_models.bert(tmp_path / "model"), repository) == 1
    assert files(repository.path) == {
        "text_classifier_onnx/1/export.json",
        "text_classifier_onnx/1/labels.txt",
        "text_classifier_onnx/1/model.onnx",
        "text_classifier_onnx/config.pbtxt",
        "text_classifier_onnx/configs/cpu.pbtxt",
        "text_classifier_onnx/configs/latency.pbtxt",
        "text_classifier_onnx/configs/tensorrt.pbtxt",
        "text_classifier_onnx/labels.txt",
        "text_classifier_onnx/warmup/attention_mask",
        "text_embedding_ensemble/1/.gitkeep",
        "text_embedding_ensemble/config.pbtxt",
        "text_pipeline_ensemble/1/.gitkeep",
        "text_pipeline_ensemble/config.pbtxt",
        "text_tokenizer/1/model.py",
        "text_tokenizer/1/text_metrics.py",
        "text_tokenizer/1/text_request.py",
        "text_tokenizer/1/tokenizer/tokenizer.json",
        "text_tokenizer/1/tokenizer/tokenizer_config.json",
        "text_tokenizer/config.pbtxt",
        "text_tokenizer/configs/cpu.pbtxt",
    }
    assert repository.versions() == [1]


def test_next_version_is_the_next_number_and_keeps_edited_configurations(
    tmp_path: Path, repository: Repository
) -> None:
    model = tiny_models.bert(tmp_path / "model")
    export(model, repository)
    config = repository.path / "text_classifier_onnx" / "config.pbtxt"
    mine = "# mine\n" + config.read_text()
    config.write_text(mine)
    assert export(model, repository) == 2
    assert config.read_text() == mine.replace("versions: [1]", "versions: [1, 2]")
    assert (repository.path / "text_tokenizer/2/model.py").is_file()
    with pytest.raises(TextPipelineError, match="version 2 exists"):
        export(model, repository, version=2)


def test_a_configuration_that_does_not_fit_is_named_before_anything_is_published(
    tmp_path: Path, repository: Repository
) -> None:
    model = tiny_models.bert(tmp_path / "model")
    repository.create()
    config = repository.path / "text_classifier_onnx" / "configs" / "cpu.pbtxt"
    config.write_text('platform: "onnxruntime_onnx"\nmax_batch_size: 8\n')
    with pytest.raises(TextPipelineError, match=r"cpu\.pbtxt does not fit the graph: .*input_ids"):
        export(model, repository)
    assert repository.versions() == []


def test_graph_is_loadable_by_older_runtimes(tmp_path: Path, repository: Repository) -> None:
    export(tiny_models.bert(tmp_path / "model"), repository)
    model = onnx.load(repository.path / "text_classifier_onnx/1/model.onnx")
    onnx.checker.check_model(model)
    assert model.ir_version <= 10
    assert {o.domain: o.version for o in model.opset_import}[""] <= 21


@pytest.mark.parametrize(
    ("settings", "scores"),
    [
        ({}, lambda logits: np.exp(logits) / np.exp(logits).sum()),
        ({"problem_type": "multi_label_classification"}, lambda logits: 1 / (1 + np.exp(-logits))),
        ({"problem_type": "regression"}, lambda logits: logits),
    ],
    ids=["single label", "multi-label", "regression"],
)
def test_scores_follow_the_problem_type(tmp_path: Path, settings: dict, scores) -> None:
    loaded = source.load(
        str(tiny_models.bert(tmp_path, **settings, **tiny_models.labelled(ELEVEN_LABELS)))
    )
    path = tmp_path / "model.onnx"
    onnx.save(graph.ir.to_proto(graph.build(loaded, "padded")), path)
    (answer,) = gate.graph_outputs(onnxruntime.InferenceSession(path), loaded, ["a text"], 1)
    expected = scores(answer["logits"])
    np.testing.assert_allclose(answer["probabilities"], expected, rtol=1e-5)
    np.testing.assert_allclose(answer["scores"], sorted(expected, reverse=True), rtol=1e-5)
    assert list(answer["labels"]) == [ELEVEN_LABELS[i] for i in np.argsort(-expected)]


def test_single_output_is_a_regression(tmp_path: Path, repository: Repository) -> None:
    model = tiny_models.bert(tmp_path / "model", **tiny_models.labelled(["score"]))
    export(model, repository)
    session = onnxruntime.InferenceSession(repository.path / "text_classifier_onnx/1/model.onnx")
    (answer,) = gate.graph_outputs(session, source.load(str(model)), ["a text"], 1)
    assert answer["labels"] == ["score"]
    assert answer["scores"] == answer["logits"] == answer["probabilities"]


def test_roberta_positions_start_behind_the_padding(tmp_path: Path, repository: Repository) -> None:
    export(tiny_models.roberta(tmp_path / "model"), repository)
    report = json.loads((repository.path / "text_classifier_onnx/1/export.json").read_text())
    assert report["max_tokens"] == 126
    assert report["gate"]["label_agreement"] == 1
    config = repository.path / "text_tokenizer/1/tokenizer/tokenizer_config.json"
    assert json.loads(config.read_text())["model_max_length"] == 126


def test_rejected_graph_leaves_the_repository_as_it_was(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_models.bert(tmp_path / "model")
    export(model, repository)
    before = files(repository.path)
    # One weight of the graph differs from the model's.
    build = graph.build

    def broken(_: source.Source, *arguments: str):
        with_fault = source.load(str(model))
        with_fault.model.classifier.weight.data[0] += 1
        return build(with_fault, *arguments)

    monkeypatch.setattr(graph, "build", broken)
    with pytest.raises(ExportRejectedError, match="worst for the text"):
        export(model, repository)
    assert files(repository.path) == before
    assert not list(repository.path.rglob(".export-*"))


@pytest.mark.parametrize(
    ("options", "device", "precision"),
    [
        ({"precision": "int8"}, "cpu", "int8"),
        ({"device": "gpu"}, "gpu", "fp16"),
        ({"device": "gpu", "precision": "fp32", "layout": "padded"}, "gpu", "fp32"),
    ],
)
def test_device_and_precision_pass_the_gate_and_are_reported(
    tmp_path: Path, repository: Repository, options: dict, device: str, precision: str
) -> None:
    export(tiny_models.bert(tmp_path / "model", **LARGE), repository, **options, **ROUGH)
    folder = repository.path / "text_classifier_onnx/1"
    report = json.loads((folder / "export.json").read_text())
    assert (report["device"], report["precision"]) == (device, precision)
    assert report["gate"]["label_agreement"] >= report["gate"]["min_agreement"] == 0.8
    assert report["gate"]["max_difference"]["probabilities"] <= report["gate"]["tolerance"]
    assert files(folder) == {"export.json", "labels.txt", "model.onnx"}


def test_precision_that_the_device_does_not_have_is_an_error(
    tmp_path: Path, repository: Repository
) -> None:
    with pytest.raises(TextPipelineError, match="int8 on gpu: expected fp16 or fp32"):
        export(tmp_path, repository, device="gpu", precision="int8")
    with pytest.raises(TextPipelineError, match="no weights of at least 16384 elements"):
        export(tiny_models.bert(tmp_path / "model"), repository, precision="int8")


def test_gate_takes_own_texts_and_limits(tmp_path: Path, repository: Repository) -> None:
    model = tiny_models.bert(tmp_path / "model", **LARGE)
    options = {"precision": "int8", "texts": ["one text", "and another one"]}
    with pytest.raises(ExportRejectedError, match=r"before it is quantized.*difference 1e-11"):
        export(model, repository, **options, **ROUGH | {"tolerance": 1e-9})
    with pytest.raises(ExportRejectedError, match=r"limits: agreement 110.0%"):
        export(model, repository, **options, **ROUGH | {"min_agreement": 1.1})
    assert not repository.path.exists() or not repository.versions()
    export(model, repository, **options, **ROUGH)
    report = json.loads((repository.path / "text_classifier_onnx/1/export.json").read_text())
    assert report["gate"]["texts"] == 2 + len(gate.ODD_TEXTS)
    with pytest.raises(TextPipelineError, match="no text"):
        export(model, repository, texts=[])


def edited_config(directory: Path, **changes) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return directory


def test_labels_that_do_not_fit_the_head_are_an_error_with_both_sizes(tmp_path: Path) -> None:
    model = tiny_models.bert(tmp_path, **tiny_models.labelled(["a", "b", "c"]))
    edited_config(model, id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    with pytest.raises(TextPipelineError, match=r"shape \[3.*\[2"):
        source.load(str(model))


def test_model_that_is_no_classifier_is_refused(tmp_path: Path) -> None:
    model = edited_config(tiny_models.bert(tmp_path), architectures=["BertModel"])
    with pytest.raises(TextPipelineError, match=r"\['BertModel'\], expected one that ends in"):
        source.load(str(model))


def test_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    model = tiny_models.bert(tmp_path, vocab_size=100)
    with pytest.raises(TextPipelineError, match=r"token ids up to \d+.* 100 rows: .*another model"):
        source.load(str(model))


def test_untrained_head_is_refused(tmp_path: Path) -> None:
    weights = tiny_models.bert(tmp_path) / "model.safetensors"
    kept = {n: w.clone() for n, w in load_file(weights).items() if "classifier" not in n}
    save_file(kept, weights, metadata={"format": "pt"})
    with pytest.raises(TextPipelineError, match=r"no trained weights for classifier\.bias"):
        source.load(str(tmp_path))


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_file_is_one_line(tmp_path: Path, missing: str) -> None:
    (tiny_models.bert(tmp_path) / missing).unlink()
    with pytest.raises(TextPipelineError) as caught:
        source.load(str(tmp_path))
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_missing_directory_is_told_from_a_hub_id(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match="no such directory"):
        source.load(str(tmp_path / "nothing"))
    with pytest.raises(TextPipelineError, match="no such directory"):
        source.load("nothing")


def test_limit_without_any_statement_must_be_given(tmp_path: Path) -> None:
    loaded = source.load(str(tiny_models.bert(tmp_path)))
    assert loaded.max_tokens == 128
    assert source.load(str(tmp_path), max_tokens=64).max_tokens == 64
    with pytest.raises(TextPipelineError, match=r"--max-tokens 129 exceeds .*128"):
        source.load(str(tmp_path), max_tokens=129)


def test_interrupted_export_can_be_repeated(tmp_path: Path, repository: Repository) -> None:
    model = tiny_models.bert(tmp_path / "model")
    export(model, repository)
    # A tokenizer without a model: what is left when the machine stops between the two renames.
    shutil.rmtree(repository.path / "text_classifier_onnx/1")
    assert repository.versions() == []
    assert export(model, repository) == 1
