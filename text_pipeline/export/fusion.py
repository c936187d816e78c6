"""Operator fusions that make a body fast in ONNX Runtime and that its session does not make itself.

ONNX Runtime fuses a good deal when it loads a graph, but not bias and GELU as `torch.onnx` writes
them, nor the products before packed attention, and one of its fusions is a loss on CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.convenience import replace_all_uses_with
from onnx_ir.tape import Tape
from onnxscript.rewriter import pattern
from onnxscript.rewriter.ort_fusions.bias_gelu import fuse_bias_gelu


def fuse_for_cpu(model: ir.Model) -> None:
    """Rewrites a body in place; afterwards it needs ONNX Runtime (domain com.microsoft)."""
    fuse_bias_gelu(model)
    _SUM_BEFORE_NORMALIZATION.apply_to_model(model)
    _drop_reshapes_that_undo_each_other(model)


def fuse_for_gpu(model: ir.Model) -> None:
    """As fuse_for_cpu, for the CUDA provider, where a short batch costs as much as its launches."""
    _GELU.apply_to_model(model)
    fuse_bias_gelu(model)
    _drop_reshapes_that_undo_each_other(model)
    _make_one_product_before_attention(model)


def _add_and_normalize(op, x, y, scale, bias):  # type: ignore[no-untyped-def]
    return op.LayerNormalization(
        op.Add(x, y), scale, bias, _allow_other_attributes=True, _outputs=["normalized"]
    )


def _sum_and_normalize(op, x, y, scale, bias, normalized):  # type: ignore[no-untyped-def]
    attributes = normalized.producer().attributes
    return op.LayerNormalization(op.Sum(x, y), scale, bias, **attributes)


# The session would fuse Add and LayerNormalization into SkipLayerNormalization, whose CPU kernel
# takes about nine times as long as LayerNormalization's (1.9 against 0.2 ns an element). It does
# not know Sum.
_SUM_BEFORE_NORMALIZATION = pattern.RewriteRuleSet(
    [pattern.RewriteRule(_add_and_normalize, _sum_and_normalize)]
)


def _gelu_by_erf(op, x, root):  # type: ignore[no-untyped-def]
    return x * (0.5 * (op.Erf(x / root) + 1.0))


def _gelu(op, x, **_):  # type: ignore[no-untyped-def]
    return op.Gelu(x, _domain="com.microsoft")


def _is_root_of_two(_context, root, **_) -> bool:  # type: ignore[no-untyped-def]
    value = _constant(root)
    return value is not None and np.allclose(value.astype(np.float32), 2**0.5, rtol=1e-3)


# As torch.onnx writes GELU for an opset before 20; onnxscript's own rule finds it only in fp32.
_GELU = pattern.RewriteRuleSet([pattern.RewriteRule(_gelu_by_erf, _gelu, _is_root_of_two)])


def _drop_reshapes_that_undo_each_other(model: ir.Model) -> None:
    """[tokens, hidden] -> [tokens, heads, head size] and straight back, around every attention."""
    for node in model.graph:
        if node.op_type != "Reshape":
            continue
        (output,), origin = node.outputs, node
        while (source := origin.inputs[0]) and (before := source.producer()):
            if _is_certain(source.shape) and source.shape == output.shape:
                replace_all_uses_with(output, source)
                break
            if before.op_type != "Reshape":
                break
            origin = before


def _is_certain(shape: ir.Shape | None) -> bool:
    """Whether equal to another shape means of the same size: no dimension without a name."""
    return shape is not None and all(isinstance(dim, int) or dim.value is not None for dim in shape)


@dataclass(frozen=True)
class _Product:
    """`of`, [..., in], times `weight`, [in, out], plus `bias`, [out]."""

    of: ir.Value
    weight: np.ndarray
    bias: np.ndarray | None


def _make_one_product_before_attention(model: ir.Model) -> None:
    """Query, key and value of one tensor: [tokens, heads, 3, head size], as the operator takes it.

    Only where nothing but a bias lies between the products and attention, so without rotation.
    """
    for node in [node for node in model.graph if node.op_type == "PackedMultiHeadAttention"]:
        products = [_product_behind(value) for value in node.inputs[:3]]
        found = [product for product in products if product is not None]
        if len(found) < 3 or len({(p.of, p.weight.shape, p.bias is None) for p in found}) > 1:
            continue
        heads = node.attributes["num_heads"].as_int()
        weight = _interleaved([product.weight for product in found], heads)
        biases = [product.bias for product in found if product.bias is not None]
        tape = Tape()
        joined = tape.op("MatMul", [found[0].of, _initializer(model, node, "weight", weight)])
        if biases:
            bias = _initializer(model, node, "bias", _interleaved(biases, heads))
            joined = tape.op("Add", [joined, bias])
        shape = [-1, heads, 3, weight.shape[1] // (3 * heads)]
        query = tape.op("Reshape", [joined, tape.op("Constant", [], {"value_ints": shape})])
        model.graph.insert_before(node, tape.nodes)
        for index, value in enumerate((query, None, None)):
            node.replace_input_with(index, value)


def _product_behind(value: ir.Value | None) -> _Product | None:
    """The product of which `value` is another shape, if it is one with constants."""
    node = value.producer() if value else None
    while node and node.op_type in ("Reshape", "Squeeze"):
        node = _input(node, 0).producer()
    bias = None
    if node and node.op_type == "Add":
        bias, node = _constant(_input(node, 1)), _input(node, 0).producer()
        if bias is None or bias.ndim != 1:
            return None
    if not node or node.op_type != "MatMul":
        return None
    weight = _constant(_input(node, 1))
    if weight is None or weight.ndim != 2:
        return None
    return _Product(_input(node, 0), weight, bias)


def _input(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    assert value is not None, f"{node.op_type} without its input {index}"
    return value


def _constant(value: ir.Value) -> np.ndarray | None:
    return None if value.const_value is None else value.const_value.numpy()


def _interleaved(arrays: Sequence[np.ndarray], heads: int) -> np.ndarray:
    """Arrays [..., heads x size] -> [..., heads x arrays x size]."""
    split = [array.reshape(*array.shape[:-1], heads, -1) for array in arrays]
    return np.stack(split, axis=-2).reshape(*arrays[0].shape[:-1], -1)


def _initializer(model: ir.Model, node: ir.Node, what: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array)
    name = f"{node.outputs[0].name}_{what}"
    value = ir.Value(
        name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape)
    )
    model.graph.register_initializer(value)
    return value
