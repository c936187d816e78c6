"""ONNX Runtime as the exporter runs it: many short runs beside PyTorch."""

from collections.abc import Sequence
from pathlib import Path

import onnxruntime


def open_session(
    graph: Path, providers: Sequence[str] = ("CPUExecutionProvider",)
) -> onnxruntime.InferenceSession:
    """A session whose threads sleep while they wait.

    Spinning, as they do by default, they took 1.7 times the processor time for single texts.
    """
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(graph, options, providers=list(providers))
