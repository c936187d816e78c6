"""int8 on CPU: near the fp32 answer, and the same alone and in any batch."""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from tests import tiny_models
from tests.unit.export.invariance import assert_batch_invariant
from text_pipeline import corpus
from text_pipeline.export import gate, graph, int8, source

TEXTS = corpus.mixed(24, seed=6)
INVARIANCE = {"fp32": 1e-5, "int8": 1e-4}


@pytest.fixture(scope="session")
def sessions(reference: source.Source, tmp_path_factory: pytest.TempPathFactory):
    """The default model's graph of a layout and a precision."""

    @cache
    def build(layout: str, precision: str) -> onnxruntime.InferenceSession:
        model = graph.build(reference, layout)
        if precision == "int8":
            texts = corpus.mixed(32, seed=1)
            # 6 layers with 6 products each.
            assert int8.quantize(model, gate.single_feeds(reference, texts)) == 36
        path = tmp_path_factory.mktemp("graph") / "model.onnx"
        ir.save(model, path)
        return onnxruntime.InferenceSession(path)

    return build


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("layout", graph.LAYOUTS)
def test_answer_alone_is_the_answer_in_any_batch(
    reference: source.Source, sessions, layout: str, precision: str
) -> None:
    assert_batch_invariant(
        sessions(layout, precision),
        reference,
        TEXTS,
        INVARIANCE[precision],
        examples=12,
        largest_batch=16,
    )


def test_graph_is_near_fp32(reference: source.Source, sessions) -> None:
    exact = gate.graph_outputs(sessions("packed", "fp32"), reference, TEXTS, 8)
    found = gate.graph_outputs(sessions("packed", "int8"), reference, TEXTS, 8)
    for a, b in zip(exact, found, strict=True):
        assert np.abs(a["logits"] - b["logits"]).max() < 0.1 * np.abs(a["logits"]).max()
        assert a["embedding"] @ b["embedding"] > 0.99


# ALBERT's layers share their weights, ModernBERT normalises before and gates its GELU, GPT-2's
# linear layers are of another class.
@pytest.mark.parametrize("name", ["albert", "bert", "deberta-v3", "rembert", "modernbert", "gpt2"])
def test_architectures_stay_near_fp32(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(int8, "LEAST_ELEMENTS", 1)
    loaded = source.load(str(tiny_models.architecture(tmp_path, name)))
    model = graph.build(loaded, "padded" if name == "rembert" else "packed")
    exact = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    before = list(gate.graph_outputs(exact, loaded, TEXTS, 8))
    assert int8.quantize(model, gate.single_feeds(loaded, TEXTS)) >= 2 * 4
    onnx.checker.check_model(ir.to_proto(model))
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    after = list(gate.graph_outputs(session, loaded, TEXTS, 8))
    spread = np.std([outputs["logits"] for outputs in before])
    errors = [np.abs(a["logits"] - b["logits"]).mean() for a, b in zip(before, after, strict=True)]
    assert np.mean(errors) < 0.1 * spread
