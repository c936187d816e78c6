"""int8 on CPU: near the fp32 answer, and the same alone and in any batch."""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import tiny_models
from tests.unit.export.invariance import assert_batch_invariant
from text_pipeline.contract import LAYOUTS
from text_pipeline.default_model import corpus
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
@pytest.mark.parametrize("layout", LAYOUTS)
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


@pytest.mark.parametrize("operator", ["Neg", "Relu"])  # with zero points 128 and 0
@pytest.mark.parametrize("inputs", [2, 31, 384])
def test_extreme_products_are_numpys_on_every_processor(
    monkeypatch: pytest.MonkeyPatch, operator: str, inputs: int
) -> None:
    """Sums of two products fit in 16 bits, where processors without VNNI would cut them off."""
    monkeypatch.setattr(int8, "LEAST_ELEMENTS", 1)
    random = np.random.default_rng(inputs)
    alternating = np.resize([1, -1], inputs)
    weight = np.stack(
        [
            np.full(inputs, 3),
            np.full(inputs, -1e-3),
            alternating,
            np.where(alternating > 0, 100, -0.5),
            np.eye(inputs)[0],
            random.standard_normal(inputs),
            random.choice([-1, 1], inputs),
        ],
        axis=1,
    ).astype(np.float32)
    weights, zero_point, product = quantized_product(operator, weight)
    rows = np.stack(
        [
            np.full(inputs, 255),
            np.zeros(inputs),
            *(np.where(sign * alternating > 0, 255, 0) for sign in (1, -1)),
            *random.choice([0, 255], (5, inputs)),
        ]
    ).astype(np.uint8)
    pairs = np.pad(weights.astype(int), ((0, inputs % 2), (0, 0))).reshape(-1, 2, weight.shape[1])
    assert 255 * pairs.clip(0).sum(axis=1).max() < 2**15
    assert 255 * pairs.clip(max=0).sum(axis=1).min() >= -(2**15)
    assert (abs(weights.astype(int)).max(axis=0) >= 63).all()  # no bit is given away
    exact = (rows.astype(int) - int(zero_point)) @ weights.astype(int)
    for count in range(1, len(rows) + 1):
        for session in product:
            assert (session.run(None, {"rows": rows[:count]})[0] == exact[:count]).all()


def quantized_product(
    operator: str, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[onnxruntime.InferenceSession]]:
    """A product as the exporter quantizes it: its weights, zero point and the product alone.

    Its sessions take `rows` of integers and give sums of integers, with weights packed and not.
    """
    inputs, outputs = weight.shape
    nodes = [
        helper.make_node(operator, ["x"], ["y"]),
        helper.make_node("MatMul", ["y", "w"], ["z"]),
        helper.make_node("Identity", ["z"], ["output"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["tokens", inputs])
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["tokens", outputs])
    graph_ = helper.make_graph(nodes, "g", [x], [output], [numpy_helper.from_array(weight, "w")])
    model = ir.from_proto(helper.make_model(graph_, opset_imports=[helper.make_opsetid("", 21)]))
    int8.quantize(model, [{"x": np.eye(inputs, dtype=np.float32)}])
    quantized = ir.to_proto(model)
    (node,) = (n for n in quantized.graph.node if n.op_type == "MatMulIntegerToFloat")
    constants = {t.name: numpy_helper.to_array(t) for t in quantized.graph.initializer}
    weights, one, scale, zero_point = (constants[name] for name in node.input[1:5])
    alone = helper.make_graph(
        [helper.make_node(node.op_type, ["rows", *"wosp"], ["sums"], domain=node.domain)],
        "product",
        [helper.make_tensor_value_info("rows", TensorProto.UINT8, ["tokens", inputs])],
        [helper.make_tensor_value_info("sums", TensorProto.FLOAT, ["tokens", outputs])],
        [
            numpy_helper.from_array(value, name)
            for name, value in zip(
                "wosp", (weights, one, np.ones_like(scale), zero_point), strict=True
            )
        ],
    )
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    serialized = helper.make_model(
        alone, opset_imports=domains, ir_version=graph.IR_VERSION
    ).SerializeToString()
    sessions = []
    for disable_prepacking in ("0", "1"):
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.disable_prepacking", disable_prepacking)
        sessions.append(onnxruntime.InferenceSession(serialized, options))
    return weights, zero_point, sessions
