"""A user's model, from its directory to answers of a server that serves it."""

from pathlib import Path

import numpy as np
import pytest

from tests import tiny_models
from tests.integration.protocols import infer, label
from text_pipeline.default_model import corpus
from text_pipeline.export import graph
from text_pipeline.export.exporter import export_model
from text_pipeline.export.gate import pytorch_outputs
from text_pipeline.export.source import load
from text_pipeline.repository.versions import Repository

LABELS = [f"class {n}" for n in range(11)]


@pytest.mark.parametrize(
    ("make", "embedded_bytes", "files"),
    [(tiny_models.bert, graph.EMBEDDED_BYTES, 1), (tiny_models.roberta, 10_000, 2)],
    ids=["BERT", "RoBERTa, its weights beside the graph as those of a large model"],
)
def test_exported_model_answers_as_in_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve_repository, device: str, make,
    embedded_bytes: int, files: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(graph, "EMBEDDED_BYTES", embedded_bytes)
    model = make(tmp_path / "model", **tiny_models.labelled(LABELS))
    repository = Repository(tmp_path / "repository")
    # In fp32 on a GPU, too: rounding is the business of test_answers.py.
    export_model(str(model), repository, device=device, precision="fp32")
    assert len(list(repository.path.glob("text_classifier_onnx/1/model.onnx*"))) == files
    reference = load(str(model))
    texts = ["", "<pad> [PAD] typed", "word " * 300, *corpus.mixed(20, seed=5)]
    with serve_repository(repository.path) as server:
        answer = infer(server, "grpc", texts)
    assert answer["token_count"].max() == reference.max_tokens
    for row, expected in enumerate(pytorch_outputs(reference, texts)):
        np.testing.assert_allclose(answer["logits"][row], expected["logits"], atol=1e-4)
        order = np.argsort(-expected["probabilities"], kind="stable")
        assert [label(name) for name in answer["labels"][row]] == [LABELS[i] for i in order]
