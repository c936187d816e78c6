"""Where ONNX Runtime runs the nodes of a graph for GPU, and where it waits for one.

There is no CUDA provider here to ask, so what it registers is written down for the operators that
the graphs use: from the section CUDAExecutionProvider of ONNX Runtime's `docs/OperatorKernels.md`
(of 2026), with the inputs and outputs that its kernels want in the host's memory (`InputMemoryType`
and `OutputMemoryType` in `core/providers/cuda` and `contrib_ops/cuda`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto

FLOATS = {"float", "float16"}
NUMBERS = FLOATS | {"int32", "int64"}
ANY = NUMBERS | {"bool"}


@dataclass(frozen=True)
class Kernel:
    """From opset `first` on, up to `last` if that is known, for `types` of the input `typed`."""

    first: int
    last: int | None
    types: set[str]
    typed: int = 0
    host_inputs: set[int] = field(default_factory=set)
    host_outputs: set[int] = field(default_factory=set)

    def fits(self, since: int, kind: str) -> bool:
        """Whether it runs a node of an operator since that version: KernelRegistry's rule.

        A kernel without a last version runs only nodes of the version that it begins with.
        """
        version = self.first == since or (self.first < since <= (self.last or 0))
        return version and kind in self.types


def _table() -> dict[str, list[Kernel]]:
    kernels = {
        name: [Kernel(first, None, types)]
        for first, types, names in [
            (7, FLOATS, "Cos Sin"),
            (7, {"bool"}, "And Or"),
            (1, {"bool"}, "Not"),
            (13, ANY, "Concat Gather GatherElements"),
            (13, FLOATS, "Erf Exp Gemm Log MatMul Sigmoid Softmax Sqrt Tanh"),
            (13, NUMBERS, "Abs Greater Less Max Min Mod Neg Sign"),
            (13, ANY, "Equal"),
            (13, FLOATS, "Reciprocal Sum"),
            (14, NUMBERS, "Add Sub Mul Div"),
            (14, FLOATS, "Relu"),
            (15, NUMBERS, "Pow"),
            (16, NUMBERS, "GreaterOrEqual LessOrEqual"),
            (17, FLOATS, "LayerNormalization"),
            (18, ANY, "ScatterElements ScatterND"),
        ]
        for name in names.split()
    }
    kernels |= {
        "Cast": [Kernel(13, 18, ANY), Kernel(19, 20, ANY), Kernel(21, 22, ANY)],
        "Clip": [Kernel(13, None, FLOATS | {"int64"}, host_inputs={1, 2})],
        "Compress": [Kernel(11, None, ANY)],
        "ConstantOfShape": [Kernel(9, None, {"int64"}, host_inputs={0})],
        "CumSum": [Kernel(14, None, NUMBERS, host_inputs={1})],
        "Expand": [Kernel(13, None, ANY, host_inputs={1})],
        "GatherND": [Kernel(13, None, FLOATS | {"bool", "int64"})],
        "Gelu": [Kernel(20, None, FLOATS)],
        "IsNaN": [Kernel(13, 19, FLOATS), Kernel(20, None, FLOATS)],
        "Identity": [Kernel(14, 18, ANY), Kernel(19, None, ANY)],
        "If": [Kernel(13, 18, {"bool"}, host_inputs={0}), Kernel(19, None, {"bool"})],
        "NonZero": [Kernel(13, None, ANY)],
        "Range": [Kernel(11, None, {"float", "int32", "int64"}, host_inputs={0, 1, 2})],
        "ReduceL2": [Kernel(18, None, FLOATS | {"int32"}, host_inputs={1})],
        "ReduceMax": [Kernel(18, None, NUMBERS, host_inputs={1})],
        "ReduceMean": [Kernel(18, None, FLOATS | {"int32"}, host_inputs={1})],
        "ReduceSum": [Kernel(13, None, NUMBERS, host_inputs={1})],
        "Reshape": [Kernel(14, 18, ANY, host_inputs={1}), Kernel(21, 22, ANY, host_inputs={1})],
        "Shape": [Kernel(15, 18, ANY, host_outputs={0}), Kernel(21, 22, ANY, host_outputs={0})],
        "Size": [Kernel(13, None, ANY | {"string"}, host_outputs={0})],
        "Slice": [Kernel(13, None, ANY, host_inputs={1, 2, 3, 4})],
        "Split": [Kernel(18, None, ANY, host_inputs={1})],
        "Squeeze": [Kernel(13, 20, ANY, host_inputs={1}), Kernel(21, 22, ANY, host_inputs={1})],
        "Tile": [Kernel(13, None, NUMBERS, host_inputs={1})],
        "TopK": [Kernel(11, None, NUMBERS, host_inputs={1})],
        "Transpose": [Kernel(13, 20, ANY), Kernel(21, 22, ANY)],
        "Unsqueeze": [Kernel(13, 20, ANY, host_inputs={1}), Kernel(21, 22, ANY, host_inputs={1})],
        "Where": [Kernel(16, None, NUMBERS, typed=1)],
        "com.microsoft.BiasGelu": [Kernel(1, None, FLOATS)],
        "com.microsoft.Gelu": [Kernel(1, None, FLOATS)],
        "com.microsoft.PackedMultiHeadAttention": [Kernel(1, None, FLOATS)],
    }
    return kernels


KERNELS = _table()
OUTPUT_OF_UNKNOWN_SIZE = ("Compress", "NonZero")
"""Their kernels wait for the number of elements (cudaStreamSynchronize in nonzero_op.cc)."""
SMALL = 100
"""Elements of a constant that a node on the CPU may have, too: kSmallInitializerThreshold."""


@dataclass(frozen=True)
class Placement:
    """Of a graph's nodes without those inside of branches."""

    without_kernel: list[str]
    """Nodes that the CUDA provider cannot run, as operator and first output."""
    copies: list[str]
    """Values that the host waits for: made on the GPU, wanted on the CPU."""
    waiting: list[str]
    """Nodes whose kernels wait themselves."""


def place(model: onnx.ModelProto) -> Placement:
    """Where the nodes of a checked graph would run; raises if a value's type is not known."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = dict(_types(graph))
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {
        node.output[0]: node.attribute[0].t
        for node in graph.node
        if node.op_type == "Constant" and node.attribute[0].HasField("t")
    }
    small = {name for name, tensor in constants.items() if _elements(tensor) <= SMALL}
    small |= {n.output[0] for n in graph.node if n.op_type == "Constant"} - set(constants)
    inputs = {value.name for value in graph.input}
    nodes = [node for node in graph.node if node.op_type != "Constant"]

    on_host: set[str] = set()  # values
    on_cpu: set[str] = set()  # nodes, by their first output
    without_kernel, kernels = [], {}
    for node in nodes:
        name = f"{node.domain}.{node.op_type}".lstrip(".")
        kernel = _kernel(name, node, versions[""], types)
        if kernel is None:
            without_kernel.append(f"{name} {node.output[0]}")
            on_cpu.add(node.output[0])
            on_host |= set(node.output)
            continue
        kernels[node.output[0]] = kernel
        # GetCpuPreferredNodes: what depends on the host's values alone, and shall not be copied.
        given = {name for name in node.input if name}
        follows = bool(given & on_host) and all(
            name in small | inputs
            or (name in on_host and index not in kernel.host_inputs and types[name] != "float16")
            for index, name in enumerate(node.input)
            if name
        )
        if follows:
            on_cpu.add(node.output[0])
            on_host |= set(node.output)
        on_host |= {node.output[index] for index in kernel.host_outputs}

    wanted = {
        name
        for node in nodes
        for index, name in enumerate(node.input)
        if name
        and (node.output[0] in on_cpu or index in kernels[node.output[0]].host_inputs)
        and name not in on_host | set(constants) | small
    }
    return Placement(
        without_kernel,
        sorted(wanted),
        [f"{n.op_type} {n.output[0]}" for n in nodes if n.op_type in OUTPUT_OF_UNKNOWN_SIZE],
    )


def _kernel(name: str, node: onnx.NodeProto, opset: int, types: dict[str, str]) -> Kernel | None:
    is_standard = not node.domain
    since = onnx.defs.get_schema(node.op_type, opset).since_version if is_standard else 1
    for kernel in KERNELS.get(name, []):
        if kernel.fits(since, types[node.input[kernel.typed]]):
            return kernel
    return None


def _types(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    for value in [*graph.input, *graph.value_info, *graph.output]:
        yield value.name, _name(value.type.tensor_type.elem_type)
    for tensor in graph.initializer:
        yield tensor.name, _name(tensor.data_type)


def _name(data_type: int) -> str:
    return TensorProto.DataType.Name(data_type).lower()


def _elements(tensor: TensorProto) -> int:
    size = 1
    for dimension in tensor.dims:
        size *= dimension
    return size
