"""What Triton's C++ ONNX Runtime backend checks when it loads a model, as functions of their own.

A repository must be served by that backend and by the one that stands in for it, so this refuses
all that the C++ backend refuses. Sources, of 2026: onnxruntime.cc (the constructor of
ModelInstanceState, ValidateInputs, ValidateOutputs) and onnxruntime_utils.cc
(CompareDimsSupported). BACKEND.md lists what is different.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from text_pipeline.errors import ConfigurationError

if TYPE_CHECKING:
    import onnxruntime

ONNX_TYPES = {
    "TYPE_BOOL": "tensor(bool)",
    "TYPE_FP16": "tensor(float16)",
    "TYPE_FP32": "tensor(float)",
    "TYPE_FP64": "tensor(double)",
    "TYPE_STRING": "tensor(string)",
} | {
    f"TYPE_{sign}{bits}": f"tensor({sign.lower()}{bits})"
    for sign in ("INT", "UINT")
    for bits in (8, 16, 32, 64)
}
OPEN = -1
_EXPORT_AGAIN = "export the model again, which leaves sizes open"


@dataclass(frozen=True)
class Tensor:
    """A graph's input or output as ONNX Runtime reports it after loading the graph."""

    type: str
    """Such as "tensor(float)"."""
    dims: Sequence[int]
    """OPEN for a dimension without a number; none for a scalar or an unknown rank."""


Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Signature:
    """What a graph takes and gives."""

    inputs: Tensors
    defaults: Tensors
    """Inputs with a value in the graph ("overridable initializers")."""
    outputs: Tensors

    @classmethod
    def of(cls, session: "onnxruntime.InferenceSession") -> "Signature":
        """Of a loaded graph."""
        return cls(
            *(
                {node.name: Tensor(node.type, _dims(node.shape)) for node in nodes}
                for nodes in (
                    session.get_inputs(),
                    session.get_overridable_initializers(),
                    session.get_outputs(),
                )
            )
        )


def _dims(shape: Sequence[int | str | None]) -> list[int]:
    return [size if isinstance(size, int) else OPEN for size in shape]


def check(config: Mapping[str, Any], graph: Signature) -> None:
    """Raises ConfigurationError with the tensor that does not fit.

    `config` is the model configuration as JSON, where int64 are strings.
    """
    for name, tensor in [*graph.inputs.items(), *graph.defaults.items(), *graph.outputs.items()]:
        if not tensor.type.startswith("tensor("):
            raise ConfigurationError(f"{name}: expected a tensor in the graph, got {tensor.type}")
    inputs, batch_inputs = config.get("input", []), config.get("batch_input", [])
    required = [tensor["name"] for tensor in inputs if not tensor.get("optional")]
    # The C++ backend counts; names are more help.
    targets = [name for batch_input in batch_inputs for name in batch_input["target_name"]]
    if undeclared := sorted(graph.inputs.keys() - {*required, *targets}):
        raise ConfigurationError(f"the graph has inputs that are not configured: {undeclared}")
    if len(graph.inputs) != len(required) + len(batch_inputs):
        raise ConfigurationError(
            f"{len(required)} inputs and {len(batch_inputs)} batch_input are configured, the graph "
            f"has {len(graph.inputs)} inputs: {sorted(graph.inputs)}"
        )
    batched = config.get("max_batch_size", 0) > 0
    for tensor in inputs:
        _check_input(tensor, {**graph.inputs, **graph.defaults}, batched)
    for batch_input in batch_inputs:
        for name in batch_input["target_name"]:
            _find("input", name, batch_input["data_type"], graph.inputs)
    for tensor in config.get("output", []):
        found = _find("output", tensor["name"], tensor["data_type"], graph.outputs)
        _check_dims(f"output {tensor['name']}", tensor, found, batched, exact=True)


def _check_input(tensor: Mapping[str, Any], found: Tensors, batched: bool) -> None:
    name = f"input {tensor['name']}"
    if tensor.get("optional") and batched:
        raise ConfigurationError(
            f"{name} is optional, which a model with max_batch_size cannot have"
        )
    in_graph = _find("input", tensor["name"], tensor["data_type"], found)
    if not tensor.get("allow_ragged_batch"):
        _check_dims(name, tensor, in_graph, batched, exact=False)
    elif tensor.get("optional"):
        raise ConfigurationError(f"{name}: an optional input cannot have allow_ragged_batch")
    elif list(in_graph.dims) != [OPEN]:
        raise ConfigurationError(
            f"{name} has allow_ragged_batch: expected [-1] in the graph, got {list(in_graph.dims)}"
        )


def _find(role: str, name: str, data_type: str, found: Tensors) -> Tensor:
    if name not in found:
        raise ConfigurationError(f"{role} {name} is configured, the graph has {sorted(found)}")
    if ONNX_TYPES.get(data_type) != found[name].type:
        raise ConfigurationError(
            f"{role} {name} is configured {data_type}, in the graph it is {found[name].type}"
        )
    return found[name]


def _check_dims(
    name: str, tensor: Mapping[str, Any], in_graph: Tensor, batched: bool, exact: bool
) -> None:
    """`exact`: -1 fits only an open dimension; otherwise an open dimension fits any."""
    dims, found = [int(dim) for dim in tensor["dims"]], list(in_graph.dims)
    if not found:
        if any(dim != 1 for dim in dims):
            raise ConfigurationError(
                f"{name} has no dimensions in the graph: expected dims [1] for a scalar, got {dims}"
            )
        return
    expected = [OPEN, *dims] if batched else dims
    fits = len(found) == len(expected) and all(
        size == dim or (size == OPEN and not exact)
        for dim, size in zip(expected, found, strict=True)
    )
    if fits and not (batched and found[0] != OPEN):
        return
    # As versions of this project before the first that asked the C++ backend.
    hint = f": {_EXPORT_AGAIN}" if exact and len(found) == len(expected) else ""
    raise ConfigurationError(
        f"{name} is configured {expected}{' (with the batch dimension)' if batched else ''}, "
        f"in the graph it is {found}{hint}"
    )
