"""int8 on CPU: products of token rows with large weights run in integers, the rest in fp32.

Weights are int8 with a scale for every output channel, word embeddings with one for every word.
Activations are uint8 with a scale for every token's row, found while the graph runs: one scale for
a whole batch would be faster still, but then a text's answer would depend on its neighbours.

A row's scale serves its largest value, so a few large channels cost the others their precision.
Rows are therefore moved and stretched before they are quantized, by constants that the weights
and biases take back, without loss in fp32:

* Normalised hidden states have such channels. Each is centred between the smallest and the largest
  value of a calibration, and divided by SmoothQuant's factor (Xiao et al., 2023, equation 4).
* What comes out of a GELU or ReLU has a known lower bound: moved to begin at zero, it gets all 256
  steps.

What the weights' rounding adds to a product on average is known from the calibration, too, and goes
into the bias.

The integers are the same on every processor. ONNX Runtime's kernels for uint8 x int8 are its
fastest everywhere and the only ones that use AVX-512 VNNI, AVX-VNNI and AMX, but on x86 without
VNNI they add the products of two neighbouring inputs in 16 bits, which saturate (vpmaddubsw in
MLAS's QgemmU8X8KernelAvx2.S and QgemmU8X8KernelAvx512Core.S). So weights are scaled until no two
neighbours get that far (PAIR_LIMIT). On arm64 any two products fit in 16 bits (2 x 128 x 127, for
no weight is -128) or the sums have 32 from the start. Run on AVX2 and AVX-512 VNNI; reasoned from
the sources for AMX and arm64.

uint8 weights with zero point 128 saturate nowhere and round a little better, but in 2026 ONNX
Runtime took VNNI and AMX from them (its pull request 27671): their kernel for AVX-512 does no more
products an instruction than fp32's, a quarter of VNNI's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.convenience import replace_all_uses_with
from onnx_ir.passes.common import RemoveUnusedNodesPass
from onnx_ir.tape import Tape

from text_pipeline.errors import TextPipelineError
from text_pipeline.export.calibration import Feed, Range, ranges_of

SMOOTHING = 0.85
"""How much of the difficulty goes from activations to weights, 0 to 1.

Root mean square of the logits' error with MiniLM over 80 mixed and 250 short texts: 0.097 at 0.8
and at 0.85, 0.099 at 0.9. Tried without gain: quantiles for smallest and largest values, more
calibration texts, smoothing of what comes out of GELU and attention, rounding that makes up for
earlier inputs' errors (GPTQ). Correcting the bias gave 0.091 for 0.109, at 0.8, with every token of
the same weight and over 100 mixed and 200 short texts.
"""

LEAST_ELEMENTS = 2**14
"""Smaller weights stay fp32: their product is cheap and quantizing its input is not."""

LEAST_TABLE_ELEMENTS = 2**20
"""Embeddings of words, which are half of a small model's weights; not those of positions."""

PAIR_LIMIT = 127.5
"""Largest sum of two neighbouring weights of one sign, of inputs 2i and 2i + 1 of a product.

Rounded, it is at most 128, and 255 x 128 is below 2^15. Scales grow by a third for it.
"""

# The lower bound of an activation function's values.
LOWEST = {"Gelu": -0.17, "BiasGelu": -0.17, "Relu": 0.0}


@dataclass(frozen=True)
class Quantized:
    """A tensor x [..., tokens, n] as integers: x = factor * scale * (integers - zero) + centre."""

    integers: ir.Value
    """UINT8 [..., tokens, n]."""
    scale: ir.Value
    """FP32 [..., tokens, 1]."""
    zero_point: ir.Value
    one: ir.Value
    """What MatMulIntegerToFloat gets for a scale, for it takes only one."""
    centre: np.ndarray
    factor: np.ndarray
    mean: np.ndarray
    """Of (x - centre) / factor, which is quantized; all FP32 [n]."""


def quantize(model: ir.Model, calibration: Iterable[Feed], folder: Path | None = None) -> int:
    """Rewrites a complete fp32 graph in place and returns the number of products it changed.

    `calibration` are inputs of the graph; real texts, for the ranges of its hidden states. The
    graph lies in `folder` meanwhile, by default that for temporary files. Raises TextPipelineError
    if nothing is large enough.
    """
    products: dict[ir.Value, list[ir.Node]] = {}
    for node in model.graph:
        if _is_large_product(node):
            products.setdefault(_input(node, 0), []).append(node)
    if not products:
        raise TextPipelineError(
            f"--precision int8: no weights of at least {LEAST_ELEMENTS} elements: use fp32"
        )
    ranges = ranges_of(model, list(products), calibration, folder)
    for (x, nodes), range_ in zip(products.items(), ranges, strict=True):
        quantized = _quantize_input(model.graph, x, nodes, range_)
        for node in nodes:
            _quantize_product(model.graph, node, quantized)
    for node in list(model.graph):
        if node.op_type == "Gather":
            _quantize_table(model.graph, node)
    model.opset_imports["com.microsoft"] = 1
    RemoveUnusedNodesPass()(model)
    return sum(map(len, products.values()))


def _is_large_product(node: ir.Node) -> bool:
    """A product of tokens, [..., tokens, n], with constant weights; those of items are Gemm."""
    if node.op_type != "MatMul":
        return False
    weight = _input(node, 1).const_value
    return weight is not None and len(weight.shape) == 2 and weight.size >= LEAST_ELEMENTS


def _quantize_input(
    graph: ir.Graph, x: ir.Value, nodes: Sequence[ir.Node], range_: Range
) -> Quantized:
    """Quantizes a tensor [..., tokens, n] before the first of the products it goes into."""
    weights = [_weight(node) for node in nodes]
    channels = len(weights[0])
    tape = Tape()

    def constant(value: np.ndarray | np.generic, name: str) -> ir.Value:
        return _constant(graph, value, f"{x.name}_{name}")

    centre, factor = np.zeros(channels, np.float32), np.ones(channels, np.float32)
    lowest = LOWEST.get(_operator(x))
    one_sided = lowest is not None
    if lowest is not None:
        centre[:] = lowest
    elif _operator(x) == "LayerNormalization":
        centre = (range_.low + range_.high) / 2
        factor = _smoothing((range_.high - range_.low) / 2, weights)
    rows = x
    if centre.any():
        rows = tape.op("Sub", [rows, constant(centre, "centre")])
    if (factor != 1).any():
        rows = tape.op("Mul", [rows, constant(1 / factor, "smoothing")])
    last = constant(np.array([-1], np.int64), "last_axis")
    peak = tape.op("ReduceMax", [rows if one_sided else tape.op("Abs", [rows]), last])
    step = tape.op("Mul", [peak, constant(np.float32(1 / (255 if one_sided else 127)), "step")])
    # A row of zeros has no scale of its own.
    scale = tape.op("Max", [step, constant(np.finfo(np.float32).tiny, "least")])
    inputs = [rows, scale]
    if not one_sided:
        # A tensor, for QuantizeLinear wants a zero point for every scale; its own default is 0.
        shape = tape.op("Shape", [scale])
        middle = ir.tensor(np.array([128], np.uint8))
        inputs.append(tape.op("ConstantOfShape", [shape], {"value": middle}))
    integers = tape.op("QuantizeLinear", inputs, {"axis": -1, "block_size": channels})
    graph.insert_before(nodes[0], tape.nodes)
    return Quantized(
        integers,
        scale,
        constant(np.uint8(0 if one_sided else 128), "zero_point"),
        constant(np.float32(1), "one"),
        centre,
        factor,
        (range_.mean - centre) / factor,
    )


def _quantize_product(graph: ir.Graph, node: ir.Node, x: Quantized) -> None:
    """Makes a product one of integers, scaled by token row and by output channel."""
    output, weight = node.outputs[0], _weight(node)
    name = output.name  # a weight may be used twice, as in ALBERT
    stretched = weight * x.factor[:, None]
    integers, weight_scale = _quantized_weight(stretched, _pair_scale(stretched))
    tape = Tape()
    product = tape.op(
        "MatMulIntegerToFloat",
        [
            x.integers,
            _constant(graph, integers, f"{name}_weight"),
            x.one,
            _constant(graph, weight_scale, f"{name}_scale"),
            x.zero_point,
        ],
        domain="com.microsoft",
    )
    product = tape.op("Mul", [product, x.scale])
    moved = x.centre @ weight + x.mean @ (stretched - integers * weight_scale)
    if moved.any() and not _add_to_bias(graph, output, moved):
        product = tape.op("Add", [product, _constant(graph, moved, f"{name}_moved")])
    _replace(graph, node, tape, product)


def _quantize_table(graph: ir.Graph, node: ir.Node) -> None:
    """Makes a lookup in a large table of embeddings one of int8 rows, each with its scale."""
    table = _input(node, 0).const_value
    if table is None or table.dtype != ir.DataType.FLOAT or len(table.shape) != 2:
        return
    if table.size < LEAST_TABLE_ELEMENTS or node.attributes.get_int("axis", 0) != 0:
        return
    rows = table.numpy().T
    integers, scale = _quantized_weight(rows, np.abs(rows).max(axis=0) / 127)
    name = node.outputs[0].name
    ids = _input(node, 1)
    tape = Tape()
    found = tape.op("Gather", [_constant(graph, integers.T.copy(), f"{name}_table"), ids])
    scales = tape.op("Gather", [_constant(graph, scale[:, None], f"{name}_scale"), ids])
    looked_up = tape.op("Mul", [tape.op("Cast", [found], {"to": ir.DataType.FLOAT}), scales])
    _replace(graph, node, tape, looked_up)


def _replace(graph: ir.Graph, node: ir.Node, tape: Tape, value: ir.Value) -> None:
    """Puts the tape's nodes, of which one makes `value`, in the place of a node."""
    value.shape, value.type = node.outputs[0].shape, node.outputs[0].type
    graph.insert_before(node, tape.nodes)
    replace_all_uses_with(node.outputs[0], value)
    graph.remove(node, safe=True)


def _smoothing(peaks: np.ndarray, weights: Sequence[np.ndarray]) -> np.ndarray:
    """A factor for every input channel, with the geometric mean 1."""
    weight_peaks = np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0)
    least = 1e-5  # of channels that are always zero
    factor = np.maximum(peaks, least) ** SMOOTHING
    factor /= np.maximum(weight_peaks, least) ** (1 - SMOOTHING)
    return factor / np.exp(np.log(factor).mean())


def _pair_scale(weight: np.ndarray) -> np.ndarray:
    """The smallest scale of each column with which it is exact everywhere, [m] of [n, m]."""
    pairs = np.pad(weight, ((0, len(weight) % 2), (0, 0))).reshape(-1, 2, weight.shape[1])
    of_one_sign = [np.maximum(sign * pairs, 0).sum(axis=1).max(axis=0) for sign in (1, -1)]
    return np.maximum(np.abs(weight).max(axis=0) / 127, np.max(of_one_sign, axis=0) / PAIR_LIMIT)


def _quantized_weight(weight: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """INT8 [n, m] and the scales it has, FP32 [m]."""
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    return np.rint(weight / scale).astype(np.int8), scale.astype(np.float32)


def _add_to_bias(graph: ir.Graph, product: ir.Value, moved: np.ndarray) -> bool:
    """Adds to the constant bias that follows a product; False if there is none."""
    uses = tuple(product.uses())
    if len(uses) != 1 or uses[0].node.op_type not in ("Add", "BiasGelu"):
        return False
    node, index = uses[0].node, 1 - uses[0].idx
    bias = _input(node, index).const_value
    if bias is None or tuple(bias.shape) != moved.shape:
        return False
    node.replace_input_with(index, _constant(graph, bias.numpy() + moved, f"{product.name}_bias"))
    return True


def _constant(graph: ir.Graph, value: np.ndarray | np.generic, name: str) -> ir.Value:
    constant = ir.Value(name=name, const_value=ir.tensor(np.asarray(value), name=name))
    graph.register_initializer(constant)
    return constant


def _operator(value: ir.Value) -> str:
    """The operator that makes a value, "" for an input or a constant."""
    producer = value.producer()
    return "" if producer is None else producer.op_type


def _input(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    if value is None:
        raise ValueError(f"{node.op_type} without input {index}")
    return value


def _weight(node: ir.Node) -> np.ndarray:
    weight = _input(node, 1).const_value
    if weight is None:
        raise ValueError(f"{node.op_type} without constant weights")
    return weight.numpy()
