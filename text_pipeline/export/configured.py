"""Whether a graph fits a repository's configurations, known before it is published."""

from pathlib import Path

import onnxruntime
from google.protobuf import json_format

from text_pipeline.contract import CLASSIFIER
from text_pipeline.errors import ConfigurationError, TextPipelineError
from text_pipeline.export.session import open_session
from text_pipeline.onnx_backend import load_checks
from text_pipeline.repository import configuration
from text_pipeline.repository.versions import Repository


def check(repository: Path, graph: Path, device: str = "cpu") -> None:
    """Raises TextPipelineError with the configuration that Triton would refuse for this graph.

    `device` is the one to load it on: a graph for GPU may have operators that a CPU lacks.
    """
    options = onnxruntime.SessionOptions()
    # Types and shapes are inferred at every level; only these are asked for.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = open_session(graph, device, options)
    check_signature(repository, load_checks.Signature.of(session))


def check_signature(repository: Path, signature: load_checks.Signature) -> None:
    """As `check`, for what is known of a graph."""
    for path in Repository(repository).configurations([CLASSIFIER]):
        config = json_format.MessageToDict(
            configuration.parse(path), preserving_proto_field_name=True
        )
        try:
            load_checks.check(config, signature)
        except ConfigurationError as error:
            raise TextPipelineError(f"{path} does not fit the graph: {error}") from None
