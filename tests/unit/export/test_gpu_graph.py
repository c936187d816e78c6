"""The graph for GPU, as far as a machine without one can tell, and on a GPU where there is one.

Here its com.microsoft.PackedMultiHeadAttention is emulated in numpy, from the documentation of ONNX
Runtime's contrib operators, and everything else runs in ONNX's reference implementation.
"""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from scipy.special import erf

from tests import tiny_models, windowed
from tests.unit.export import cuda_kernels
from text_pipeline.contract import PRECISIONS, TENSOR_OUTPUTS
from text_pipeline.default_model import corpus
from text_pipeline.export import configured, gate, graph, packed, source
from text_pipeline.onnx_backend.load_checks import OPEN, Signature, Tensor
from text_pipeline.repository.versions import STATIC_REPOSITORY

# Those with a bias, those without, and a position table that begins behind the padding.
ARCHITECTURES = ("bert", "llama", "modernbert", "mpnet", "roberta")
ON_GPU = [name for name in packed.ENCODERS if name != "deberta-v2"]
TEXTS = [*corpus.short(6, seed=3), "a", "word " * 60]
TOLERANCE = {"fp32": 1e-4, "fp16": 0.05}
# Of the longest window, for the memory-efficient kernel: 4 * sizeof(T) in ONNX Runtime's
# packed_multihead_attention.cc.
LENGTH_MULTIPLE = {"float16": 8, "float32": 16}


class PackedMultiHeadAttention(OpRun):
    """query, key, value [tokens, hidden] -> [tokens, hidden], each sequence for itself.

    Or all three in one, [tokens, heads, 3, head size].
    """

    op_domain = "com.microsoft"

    def _run(
        self,
        query,
        key,
        value,
        projection_bias,
        token_offset,
        cumulative_sequence_length,
        attention_bias=None,
        num_heads=None,
        scale=None,
        **_,
    ):
        assert projection_bias is None
        assert (key is None) == (value is None) == (query.ndim == 4)
        if query.ndim == 4:
            query, key, value = (t.reshape(len(query), -1) for t in np.moveaxis(query, 2, 0))
        assert token_offset.dtype == cumulative_sequence_length.dtype == np.int32
        sequences, longest = token_offset.shape
        lengths = np.diff(cumulative_sequence_length)
        multiple = LENGTH_MULTIPLE[query.dtype.name]
        assert 0 <= longest - lengths.max() < multiple
        assert attention_bias is None or longest % multiple == 0
        assert cumulative_sequence_length[-1] == len(query)
        # What the offsets are for: to lay packed tokens out in [sequences, longest] and back.
        real = token_offset.reshape(-1)[: len(query)]
        expected = [s * longest + i for s in range(sequences) for i in range(lengths[s])]
        assert real.tolist() == expected
        assert sorted(token_offset.reshape(-1)) == list(range(sequences * longest))

        size = query.shape[1] // num_heads
        laid_out = np.zeros((3, sequences * longest, num_heads, size), np.float32)
        for i, tensor in enumerate((query, key, value)):
            laid_out[i, real] = tensor.reshape(-1, num_heads, size)
        q, k, v = laid_out.reshape(3, sequences, longest, num_heads, size)
        scores = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
        if attention_bias is not None:
            scores = scores + attention_bias.astype(np.float32)
        is_padding = np.arange(longest) >= lengths[:, None]
        scores = np.where(is_padding[:, None, None, :], -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        attended = np.einsum("bhqk,bkhd->bqhd", weights, v)
        attended = attended.reshape(sequences * longest, num_heads * size)[real]
        return (attended.astype(query.dtype),)


class Gelu(OpRun):
    """ONNX Runtime's, which an opset before 20 needs."""

    op_domain = "com.microsoft"

    def _run(self, x, **_):
        return (x * (0.5 * (1 + erf(x / 2**0.5))).astype(x.dtype),)


class BiasGelu(OpRun):
    """Of a sum with one value a column."""

    op_domain = "com.microsoft"

    def _run(self, x, bias, **_):
        assert bias.shape == x.shape[-1:]
        return Gelu._run(self, x + bias)


class GatherElements(OpRun):
    """As the standard says; onnx.reference's own stops at 32 elements."""

    def _run(self, data, indices, axis=None):
        return (np.take_along_axis(data, indices, axis),)


EMULATED = [PackedMultiHeadAttention, Gelu, BiasGelu, GatherElements]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory):
    """The model and the file of its graph for GPU, each built once."""

    @cache
    def build(name: str, precision: str) -> tuple[source.Source, Path]:
        folder = tmp_path_factory.mktemp(name)
        loaded = source.load(str(tiny_models.architecture(folder, name)))
        ir.save(graph.build(loaded, "packed", "gpu", precision), folder / "model.onnx")
        return loaded, folder / "model.onnx"

    return build


@pytest.mark.parametrize("precision", PRECISIONS["gpu"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_graph_is_well_formed(built, name: str, precision: str) -> None:
    loaded, path = built(name, precision)
    model = onnx.load(path)
    onnx.checker.check_model(model)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    signature = Signature(
        {value.name: _tensor(value) for value in inferred.graph.input},
        {},
        {value.name: _tensor(value) for value in inferred.graph.output},
    )
    assert list(signature.outputs) == ["labels", *TENSOR_OUTPUTS]
    configured.check_signature(STATIC_REPOSITORY, signature)
    attention = [n for n in model.graph.node if n.op_type == "PackedMultiHeadAttention"]
    assert len(attention) == loaded.model.config.num_hidden_layers
    # The operators of our own are for CPU, the operator's name is ONNX Runtime's.
    assert not model.functions
    assert {n.domain for n in attention} == {"com.microsoft"}
    types = {i.data_type for i in model.graph.initializer if len(i.dims) == 2}
    expected = onnx.TensorProto.FLOAT16 if precision == "fp16" else onnx.TensorProto.FLOAT
    assert expected in types and len(types & {1, 10}) == 1


@pytest.mark.parametrize("name", [*ARCHITECTURES, "albert", "gpt2", "longformer"])
def test_only_the_labels_leave_the_gpu_and_the_host_waits_once(built, name: str) -> None:
    _, path = built(name, "fp16")
    placement = cuda_kernels.place(onnx.load(path))
    assert placement.without_kernel == ["Gather labels"]
    assert placement.copies == ["class_order", "facts"]
    assert not placement.waiting


@pytest.mark.parametrize("name", ["bert", "deberta-v2"])
def test_a_padded_batch_waits_twice(tmp_path: Path, name: str) -> None:
    loaded = source.load(str(tiny_models.architecture(tmp_path, name)))
    ir.save(graph.build(loaded, "padded", "gpu", "fp16"), tmp_path / "model.onnx")
    placement = cuda_kernels.place(onnx.load(tmp_path / "model.onnx"))
    assert placement.without_kernel == ["Gather labels"]
    assert {node.domain for node in onnx.load(tmp_path / "model.onnx").graph.node} == {""}
    # Whether there are windows, and how long the longest is.
    assert len(placement.copies) == 3 and "class_order" in placement.copies
    assert not placement.waiting


def test_query_key_and_value_are_one_product_where_nothing_rotates_them(built) -> None:
    for name, products in (("bert", 1), ("mpnet", 1), ("llama", 3)):
        _, path = built(name, "fp16")
        model = onnx.load(path)
        attention = [n for n in model.graph.node if n.op_type == "PackedMultiHeadAttention"]
        assert {sum(map(bool, n.input[:3])) for n in attention} == {products}
        # The separate weights are gone.
        assert len({i.name for i in model.graph.initializer}) == len(model.graph.initializer)
        used = {name for node in model.graph.node for name in node.input}
        assert used >= {i.name for i in model.graph.initializer}


@pytest.mark.parametrize("precision", PRECISIONS["gpu"])
def test_gelu_and_its_bias_are_one_operator(built, precision: str) -> None:
    loaded, path = built("bert", precision)
    operators = [node.op_type for node in onnx.load(path).graph.node]
    assert operators.count("BiasGelu") == loaded.model.config.num_hidden_layers
    assert "Erf" not in operators


@pytest.mark.parametrize("precision", PRECISIONS["gpu"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_graph_equals_pytorch_in_an_emulation(built, name: str, precision: str) -> None:
    loaded, path = built(name, precision)
    evaluator = ReferenceEvaluator(onnx.load(path), new_ops=EMULATED)
    feed = gate.ragged_feed(loaded.tokenizer, TEXTS, loaded.max_tokens)
    outputs = evaluator.run(list(TENSOR_OUTPUTS), feed)
    _assert_equal(loaded, outputs, precision)


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_windows_in_an_emulation(built, name: str) -> None:
    loaded, path = built(name, "fp32")
    evaluator = ReferenceEvaluator(onnx.load(path), new_ops=EMULATED)
    items = [windowed.reference(loaded, text, 16, 5) for text in TEXTS]
    outputs = evaluator.run(list(windowed.OUTPUTS), windowed.ragged_feed(items, False))
    for output, found in zip(windowed.OUTPUTS, outputs, strict=True):
        expected = np.stack([getattr(item, output) for item in items])
        np.testing.assert_allclose(found, expected, atol=TOLERANCE["fp32"], rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS["gpu"])
@pytest.mark.parametrize("name", ON_GPU)
def test_graph_equals_pytorch_on_a_gpu(built, name: str, precision: str) -> None:
    loaded, path = built(name, precision)
    session = onnxruntime.InferenceSession(path, providers=["CUDAExecutionProvider"])
    feed = gate.ragged_feed(loaded.tokenizer, TEXTS, loaded.max_tokens)
    _assert_equal(loaded, session.run(list(TENSOR_OUTPUTS), feed), precision)


@pytest.mark.parametrize("name", ["deberta-v2", "roberta"])
def test_padded_fp16_equals_pytorch_and_stays_finite(tmp_path: Path, name: str) -> None:
    """Standard operators only, so that it runs here, too; masks may become infinite in fp16."""
    loaded = source.load(str(tiny_models.architecture(tmp_path, name)))
    ir.save(graph.build(loaded, "padded", "gpu", "fp16"), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    feed = gate.ragged_feed(loaded.tokenizer, TEXTS, loaded.max_tokens)
    _assert_equal(loaded, session.run(list(TENSOR_OUTPUTS), feed), "fp16")
    feed["attention_mask"][: feed["item_length"][0]] = 0
    for output in session.run(list(TENSOR_OUTPUTS), feed):
        assert np.isfinite(output).all()


def _tensor(value: onnx.ValueInfoProto) -> Tensor:
    """As ONNX Runtime would report it, which here has no kernel for the graph's attention."""
    tensor = value.type.tensor_type
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    dims = [dim.dim_value if dim.HasField("dim_value") else OPEN for dim in tensor.shape.dim]
    return Tensor(f"tensor({name})", dims)


def _assert_equal(loaded: source.Source, outputs: list[np.ndarray], precision: str) -> None:
    # The reference of fp16 is fp32: what counts is what rounding does to the answer.
    for row, expected in enumerate(gate.pytorch_outputs(loaded, TEXTS)):
        for name, found in zip(TENSOR_OUTPUTS, outputs, strict=True):
            assert np.isfinite(found).all()
            limit = TOLERANCE[precision] * max(1, np.abs(expected[name]).max())
            assert np.abs(found[row] - expected[name]).max() <= limit
