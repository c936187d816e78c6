"""What Triton's C++ backends do around a batch, in numpy: gather inputs, add `batch_input`s, split.

Source of the semantics: `model_config.proto` (ModelInput.allow_ragged_batch, BatchInput.Kind) and
`backend_input_collector.cc` of Triton's backend library.
"""

from collections.abc import Callable, Sequence

import numpy as np

NUMPY_TYPES = {
    "TYPE_BOOL": np.bool_,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}

# Every function below takes one input's tensors, one [items, …] per request.
Tensors = Sequence[np.ndarray]


def gather(tensors: Tensors, ragged: bool) -> np.ndarray:
    """The batch's tensor: all items below each other, or, if ragged, all elements in one row."""
    return np.concatenate([t.reshape(-1) for t in tensors] if ragged else list(tensors))


def _counts(tensors: Tensors) -> np.ndarray:
    return np.array([tensor.size for tensor in tensors])


def _item_shapes(tensors: Tensors) -> np.ndarray:
    return np.concatenate([[tensor.shape[1:]] * tensor.shape[0] for tensor in tensors])


BATCH_INPUTS: dict[str, Callable[[Tensors], np.ndarray]] = {
    "BATCH_ELEMENT_COUNT": _counts,
    "BATCH_ACCUMULATED_ELEMENT_COUNT": lambda tensors: np.cumsum(_counts(tensors)),
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": lambda tensors: np.cumsum([0, *_counts(tensors)]),
    # Only the shape carries the value; the elements mean nothing.
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": lambda tensors: np.zeros(_counts(tensors).max()),
    "BATCH_ITEM_SHAPE": _item_shapes,
    "BATCH_ITEM_SHAPE_FLATTEN": lambda tensors: _item_shapes(tensors).reshape(-1),
}


def split(output: np.ndarray, items: Sequence[int]) -> list[np.ndarray]:
    """An output's rows for each request, which brought `items[i]` of them."""
    if output.ndim == 0 or output.shape[0] != sum(items):
        raise ValueError(f"expected {sum(items)} rows, one an item, got the shape {output.shape}")
    return np.split(output, np.cumsum(items)[:-1])


def decode_strings(tensor: np.ndarray) -> np.ndarray:
    """Triton's STRING elements (bytes) as ONNX Runtime takes them (str).

    Raises ValueError for NUL, at which the C++ backend would cut a string.
    """
    if any(b"\0" in element for element in tensor.reshape(-1)):
        raise ValueError("a string for the graph holds NUL, which ends a string there")
    flat = [element.decode() for element in tensor.reshape(-1)]
    return np.array(flat, dtype=np.object_).reshape(tensor.shape)


def encode_strings(tensor: np.ndarray) -> np.ndarray:
    """ONNX Runtime's strings (str) as Triton takes them (bytes)."""
    flat = [element.encode() for element in tensor.reshape(-1)]
    return np.array(flat, dtype=np.object_).reshape(tensor.shape)
