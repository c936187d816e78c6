"""The Triton side of the Python-based backend `onnxruntime`; the work is in OnnxModel.

Stands in for Triton's C++ ONNX Runtime backend, which the wheel does not carry: the same model
repository runs unchanged behind both.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import triton_python_backend_utils as pb_utils

from text_pipeline.embedded.onnx_model import OnnxModel
from text_pipeline.embedded.onnx_session import ConfigurationError


class TritonPythonModel:
    """One instance of one model."""

    def initialize(self, args: dict) -> None:
        """Loads `<version>/model.onnx` (or `default_model_filename`)."""
        try:
            self.model = OnnxModel(
                json.loads(args["model_config"]),
                Path(args["model_repository"]) / args["model_version"],
                args["model_instance_kind"],
                int(args["model_instance_device_id"]),
            )
        except ConfigurationError as error:
            raise pb_utils.TritonModelException(f"{args['model_name']}: {error}") from error

    def execute(self, requests: Sequence) -> list:
        """Answers all requests with one run, or one by one if that fails."""
        try:
            return self._run(requests)
        except Exception as error:  # noqa: BLE001 - whatever a graph does wrong, others are answered
            if len(requests) == 1:
                message = f"{type(error).__name__}: {error}"
                return [pb_utils.InferenceResponse(error=pb_utils.TritonError(message))]
            return [response for request in requests for response in self.execute([request])]

    def _run(self, requests: Sequence) -> list:
        inputs = [
            {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            for request in requests
        ]
        requested = [request.requested_output_names() for request in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in outputs.items()])
            for outputs in self.model.run(inputs, requested)
        ]
