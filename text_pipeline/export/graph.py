"""The ONNX graph: ragged tokens in, labelled scores out.

Three parts: a front (front.py) that turns the flat tokens of a ragged batch into what the body
takes, the body, which is the model with its output heads as `torch.onnx` exports it, and the end
(outputs.py), which names the labels. The body is *packed* (packed.py) or *padded* (PaddedClassifier
in heads.py).
"""

from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir
import torch
from onnx_ir.convenience import replace_all_uses_with
from onnx_ir.passes.common import (
    InlinePass,
    NameFixPass,
    RemoveUnusedFunctionsPass,
    RemoveUnusedNodesPass,
)
from onnxscript.values import OnnxFunction
from torch import nn

from text_pipeline.contract import TENSOR_OUTPUTS, TOKEN_INPUTS
from text_pipeline.errors import TextPipelineError, cause
from text_pipeline.export.attention import OPERATORS
from text_pipeline.export.front import packed_front, padded_front
from text_pipeline.export.fusion import fuse_for_cpu, fuse_for_gpu
from text_pipeline.export.gpu_front import JoinWindows as JoinWindowsOnGpu
from text_pipeline.export.gpu_front import packed_gpu_front
from text_pipeline.export.heads import padded_body
from text_pipeline.export.outputs import finish_outputs
from text_pipeline.export.packed import BIAS, PACKED_INPUTS, PackedClassifier
from text_pipeline.export.source import Source
from text_pipeline.export.windows import JoinWindows, MeanOfWindows

OPSETS = {"cpu": 21, "gpu": 18}
"""Of the standard operators. The CUDA provider has no kernels for some of later versions.

If, Size, Equal and ReduceMax of opset 21 would run on the CPU, with a copy before and after each.
"""
IR_VERSION = 10
"""What ONNX Runtime 1.19 and later, and so every container since 24.10, can load."""

LENGTH_MULTIPLES = {"fp32": 16, "fp16": 8}
"""Of the longest window, where attention has a bias.

For others PackedMultiHeadAttention does not take its memory-efficient kernel, and allocates two
score buffers of windows x heads x longest² (is_good_for_rpb in packed_multihead_attention.cc).
"""

EMBEDDED_BYTES = 2**31 - 2**24
"""Weights of at most so many bytes lie in the file of the graph: protobuf ends at 2 GiB."""

_CAUSE_IN_THE_MODEL = (
    "the model's code decides something by the size or the content of its inputs, which a graph "
    "cannot: try the other --layout or another version of transformers"
)


def build(source: Source, layout: str, device: str = "cpu", precision: str = "fp32") -> ir.Model:
    """The complete graph with the contract of `text_classifier_onnx`.

    `layout` is one of LAYOUTS, `device` "cpu" or "gpu", `precision` "fp32" or "fp16"; int8.py makes
    int8 of fp32. The graph for "gpu" loads only where there is one; "cpu" and "fp16" are slow, but
    round as a GPU does, so that a machine without one can check what it publishes.
    """
    dtype = torch.float16 if precision == "fp16" else torch.float32
    if layout == "packed":
        model = _export_packed(source, device, dtype)
        if device == "gpu":
            multiple = LENGTH_MULTIPLES[precision] if _has_biases(model) else 1
            _prepend(model, packed_gpu_front, {"multiple": multiple})
        else:
            _prepend(model, packed_front, {})
    else:
        model = _export_padded(source, device, dtype)
        _prepend(model, padded_front, {"pad_token_id": source.tokenizer.pad_token_id or 0})
    _define(model, MeanOfWindows)
    _define(model, JoinWindowsOnGpu if layout == "packed" and device == "gpu" else JoinWindows)
    InlinePass()(model)
    if device == "cpu":
        if layout == "packed":
            for operator in OPERATORS:
                _define(model, operator)
        fuse_for_cpu(model)
    elif layout == "packed":
        # A padded graph keeps to standard operators: TensorRT knows no others.
        fuse_for_gpu(model)
    finish_outputs(model, source.labels)
    model.opset_imports["com.microsoft"] = 1
    model.graph.name = "text_classifier_onnx"
    return _finished(model)


def _finished(model: ir.Model) -> ir.Model:
    RemoveUnusedNodesPass()(model)
    RemoveUnusedFunctionsPass()(model)
    # torch.onnx names values after operators: one is already called "embedding".
    NameFixPass()(model)
    model.ir_version = IR_VERSION
    return model


def save(model: ir.Model, path: Path) -> None:
    """Writes a graph; weights too large for it go into a file beside it, `model.onnx.data`."""
    weights = (value.const_value for value in model.graph.initializers.values())
    size = sum(weight.nbytes for weight in weights if weight is not None)
    ir.save(model, path, external_data=f"{path.name}.data" if size > EMBEDDED_BYTES else None)


def _check_dimensions(body: ir.Model) -> None:
    """Raises TextPipelineError if torch.onnx has fixed a dimension: it says no word of it."""
    for value in body.graph.inputs:
        if value.shape is not None and any(isinstance(size, int) for size in value.shape):
            raise TextPipelineError(
                f"torch.onnx has fixed {value.name} to the example's shape {value.shape}; "
                f"{_CAUSE_IN_THE_MODEL}"
            )


def build_body(source: Source, precision: str) -> ir.Model:
    """The model alone, on [items, longest] tokens, for tools that take neither texts nor windows.

    Its inputs are named as in the padded graph, its outputs TENSOR_OUTPUTS and `class_order`.
    """
    tokens, shape, names = _padded_example(source)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    body = padded_body(source, dtype)
    model = _export(body, "cpu", tokens, names, [shape] * len(tokens))
    return _finished(model)


def _export_padded(source: Source, device: str, dtype: torch.dtype) -> ir.Model:
    """The body on the tensors of `padded_front`, here of three windows of two items."""
    tokens, shape, names = _padded_example(source)
    windows = (torch.tensor(True), torch.tensor([0, 1, 1]), torch.ones(2, dtype=torch.int32))
    return _export(
        padded_body(source, dtype),
        device,
        (*tokens, *windows),
        [*names, "has_windows", "window_item", "item_length"],
        [shape, shape, shape, ({}, {0: shape[0]}, {0: torch.export.Dim("items")})],
    )


def _padded_example(source: Source) -> tuple[tuple[torch.Tensor, ...], dict[int, Any], list[str]]:
    """Three windows: their tensors, the dimensions that vary in each, and its name."""
    # More than one of everything: torch.export would fix a dimension of size 1.
    input_ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]])
    tokens = (input_ids, torch.ones_like(input_ids), torch.zeros_like(input_ids))
    longest = torch.export.Dim("longest", max=source.max_tokens)
    shape = {0: torch.export.Dim("windows"), 1: longest}
    return tokens, shape, [f"padded_{name}" for name in TOKEN_INPUTS]


def _export_packed(source: Source, device: str, dtype: torch.dtype) -> ir.Model:
    """The body on the tensors of `packed_front`, here of windows of 3, 2 and 3 tokens."""
    token, window, item, group, longest, bound = (
        torch.export.Dim(name)
        for name in ("tokens", "windows", "items", "groups", "longest", "bounds")
    )
    tensors = {
        "packed_input_ids": ([5, 6, 7, 8, 9, 10, 11, 12], token),
        "packed_token_type_ids": ([0] * 8, token),
        "token_position": ([0, 1, 0, 1, 2, 0, 1, 2], token),
        "token_row": ([0, 0, 1, 1, 1, 2, 2, 2], token),
        "window_first": ([2, 0, 5], window),
        "window_row": ([1, 0, 2], window),
        "window_tokens": ([3, 2, 3], window),
        "has_windows": (True,),
        "window_item": ([0, 1, 1], window),
        "item_length": ([3, 5], item),
        "group_length": ([2, 3], group),
        "group_items": ([1, 2], group),
        "position": ([0, 1, 2], longest),
        "token_offset": ([[0, 1, 3], [4, 5, 6], [7, 8, 2]], window, longest),
        "cumulative_sequence_length": ([0, 2, 5, 8], bound),
    }
    arguments, shapes = [], []
    for name in PACKED_INPUTS:
        values, *dimensions = tensors[name]
        is_short = name in ("item_length", "token_offset", "cumulative_sequence_length")
        arguments.append(torch.tensor(values, dtype=torch.int32 if is_short else None))
        shapes.append(dict(enumerate(dimensions)))
    body = PackedClassifier(source, device, dtype)
    return _export(body, device, arguments, PACKED_INPUTS, [tuple(shapes)])


def _has_biases(model: ir.Model) -> bool:
    attention = [node for node in model.graph if node.op_type == "PackedMultiHeadAttention"]
    return any(len(node.inputs) > BIAS and node.inputs[BIAS] for node in attention)


def _export(
    body: nn.Module,
    device: str,
    arguments: Sequence[torch.Tensor],
    input_names: Sequence[str],
    dynamic_shapes: Sequence[Any],
) -> ir.Model:
    try:
        with redirect_stderr(StringIO()):  # torch prints there the code that it could not export
            program = torch.onnx.export(
                body.eval(),
                tuple(arguments),
                dynamo=True,
                opset_version=OPSETS[device],
                input_names=input_names,
                output_names=[*TENSOR_OUTPUTS, "class_order"],
                dynamic_shapes=tuple(dynamic_shapes),
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise TextPipelineError(
            f"torch.onnx cannot export this model ({cause(error)}); {_CAUSE_IN_THE_MODEL}"
        ) from error
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    _check_dimensions(program.model)
    return program.model


def _prepend(model: ir.Model, front: OnnxFunction, constants: Mapping[str, int]) -> None:
    """Puts a front before the body: its outputs, in order, take the place of the body's inputs.

    Inputs of the front that are named in `constants` become those INT64 scalars. What a front
    written for another opset uses means the same in the body's: the checker and the tests tell.
    """
    front_model = cast(ir.Model, ir.from_proto(front.to_model_proto()))
    InlinePass()(front_model)
    graph = front_model.graph
    inputs, outputs, nodes = list(graph.inputs), list(graph.outputs), list(graph)
    graph.inputs.clear()
    graph.outputs.clear()
    graph.remove(nodes)
    model.graph.insert_before(model.graph[0], nodes)
    for body_input, value in zip(model.graph.inputs, outputs, strict=True):
        value.type, value.shape = body_input.type, body_input.shape
        replace_all_uses_with(body_input, value)
    model.graph.inputs.clear()
    for value in inputs:
        if (constant := constants.get(value.name or "")) is not None:
            value.const_value = ir.tensor(constant, dtype=ir.DataType.INT64)
            model.graph.register_initializer(value)
        else:
            model.graph.inputs.append(value)


def _define(model: ir.Model, operator: OnnxFunction) -> None:
    """Adds an operator of our own to the model, as a model-local function."""
    function = ir.from_proto(operator.to_function_proto())
    # The function's subgraphs use it, too, but only its own level is looked at.
    function.opset_imports["com.microsoft"] = 1
    function.opset_imports[""] = model.opset_imports[""]
    model.opset_imports[function.domain] = 1
    model.functions[function.identifier()] = function
