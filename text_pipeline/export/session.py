"""ONNX Runtime as the exporter runs it: many short runs beside PyTorch."""

from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from text_pipeline.errors import TextPipelineError

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_CUDA_OPTIONS = {
    # On by default, it cuts fp32's products to 10 bits: as in the served configurations.
    "use_tf32": "0",
}


def open_session(
    graph: Path, device: str = "cpu", options: onnxruntime.SessionOptions | None = None
) -> onnxruntime.InferenceSession:
    """A session on "cpu" or "gpu", whose threads sleep while they wait.

    Spinning, as they do by default, they took 1.7 times the processor time for single texts.
    `options` may bring more. Raises TextPipelineError if the GPU does not start: ONNX Runtime would
    go on without it, and only warn.
    """
    options = options or onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(graph, options, providers=providers(device))
    if device == "gpu" and CUDA not in session.get_providers():
        raise TextPipelineError(f"{CUDA} did not start: {session.get_providers()}")
    return session


def providers(device: str) -> list[Any]:
    """What a graph for "cpu" or "gpu" runs on, by name.

    All that there are would begin with TensorRT in onnxruntime-gpu, which builds engines.
    """
    return [(CUDA, _CUDA_OPTIONS), CPU] if device == "gpu" else [CPU]


def checked_on(device: str) -> str:
    """The device on which a graph for `device` can be run here: "gpu" only where CUDA starts."""
    return "gpu" if device == "gpu" and _has_cuda() else "cpu"


@cache
def _has_cuda() -> bool:
    """Whether the provider is there and starts: onnxruntime-gpu brings it without a GPU, too."""
    if CUDA not in onnxruntime.get_available_providers():
        return False
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "probe", [value], [result])
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=providers("gpu"))
    return CUDA in session.get_providers()
