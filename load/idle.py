"""A classifier that does nothing, so that all the rest of the pipeline shows what it can carry."""

import shutil
from pathlib import Path

import onnx_ir as ir
from onnx_ir.tape import Tape

from text_pipeline.contract import CLASSIFIER, GRAPH, TENSOR_OUTPUTS, TOKEN_INPUTS
from text_pipeline.export.graph import IR_VERSION, OPSETS, save
from text_pipeline.export.outputs import finish_outputs

LABELS = ("business", "entertainment", "politics", "sport", "tech")
HIDDEN = 384
"""As the default model has them, so that answers are of the same size."""


def copy(repository: Path, to: Path) -> None:
    """Copies a model repository; in version 1 of the copy the classifier does nothing."""
    shutil.copytree(repository, to)
    save(graph(), to / CLASSIFIER / "1" / GRAPH)


def graph() -> ir.Model:
    """The contract of `text_classifier_onnx`; every output is zero, every label the first."""
    inputs = [ir.val(name, ir.DataType.INT64, ["flat_tokens"]) for name in TOKEN_INPUTS]
    item_length = ir.val("item_length", ir.DataType.INT32, ["items"])
    tape = Tape()
    items = tape.op("Shape", [item_length])
    outputs = []
    for name in [*TENSOR_OUTPUTS, "class_order"]:
        size = HIDDEN if name == "embedding" else len(LABELS)
        dtype = ir.DataType.INT64 if name == "class_order" else ir.DataType.FLOAT
        columns = tape.op("Constant", [], {"value_ints": [size]})
        shape = tape.op("Concat", [items, columns], {"axis": 0})
        zero = ir.tensor([0], dtype=dtype)
        output = tape.op("ConstantOfShape", [shape], {"value": zero})
        output.name, output.dtype, output.shape = name, dtype, ir.Shape(["items", size])
        outputs.append(output)
    made = ir.Graph(
        [*inputs, item_length],
        outputs,
        nodes=tape.nodes,
        name="idle",
        opset_imports={"": OPSETS["cpu"]},
    )
    finish_outputs(model := ir.Model(made, ir_version=IR_VERSION), LABELS)
    return model
