"""The graph's end: outputs of the sizes that the configuration promises, and the label names."""

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.tape import Tape


def finish_outputs(model: ir.Model, labels: Sequence[str]) -> None:
    """Opens the outputs' sizes and replaces the last output, the class order, by the labels."""
    _open_sizes(model.graph)
    _append_labels(model.graph, labels)


def _open_sizes(graph: ir.Graph) -> None:
    """Lets every output [items, size] have any size, as the configuration's -1 says.

    Triton's C++ backend takes -1 only for a dimension that ONNX Runtime reports as open, and ONNX
    Runtime infers sizes again when it loads a graph, whatever is declared. So each output ends in a
    Slice whose end is too large to matter, and which no inference can know to be so: it falls with
    the number of items, which has no upper bound. That is a shape, so it lies in the CPU's memory
    with every provider, and nothing waits for a GPU.
    """
    item_length = next(value for value in graph.inputs if value.name == "item_length")
    tape = Tape()
    start, most, axis = (tape.op("Constant", [], {"value_ints": [n]}) for n in (0, 2**31, 1))
    end = tape.op("Sub", [most, tape.op("Shape", [item_length])])
    for index, sized in enumerate(graph.outputs):
        output = tape.op("Slice", [sized, start, end, axis])
        size = "hidden_size" if sized.name == "embedding" else "classes"
        output.type, output.shape = sized.type, ir.Shape(["items", size])
        output.name, sized.name = sized.name, f"sized_{sized.name}"
        graph.outputs[index] = output
    graph.extend(tape.nodes)


def _append_labels(graph: ir.Graph, labels: Sequence[str]) -> None:
    """Replaces the class order by the label names in that order."""
    order = graph.outputs.pop()
    names = ir.Value(
        name="label_names",
        const_value=ir.StringTensor(
            [label.encode() for label in labels], shape=ir.Shape([len(labels)]), name="label_names"
        ),
    )
    graph.register_initializer(names)
    gather = ir.node("Gather", [names, order])
    gather.outputs[0].name = "labels"
    gather.outputs[0].dtype = ir.DataType.STRING
    gather.outputs[0].shape = order.shape
    graph.append(gather)
    graph.outputs.insert(0, gather.outputs[0])
