"""The Triton side of the Python-based backend `onnxruntime`; the work is in OnnxModel.

Stands in for Triton's C++ ONNX Runtime backend, which the wheel does not carry: the same model
repository runs unchanged behind both.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from text_pipeline.errors import ConfigurationError
from text_pipeline.onnx_backend.metrics import Metrics
from text_pipeline.onnx_backend.model import OnnxModel, RequestInputs


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
        self.metrics = Metrics(args)

    def finalize(self) -> None:
        """Hands over the last counts."""
        self.metrics.close()

    def execute(self, requests: Sequence) -> list:
        """Answers all requests: in one run, or in several (see OnnxModel.plan).

        What is not in the last run is answered as soon as its own is done. A run that fails is
        repeated request by request, so that only a bad one gets the error.
        """
        responses: list = [None] * len(requests)
        inputs = {}
        for index, request in enumerate(requests):
            try:
                inputs[index] = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            except Exception as error:  # noqa: BLE001 - a tensor that cannot be read
                responses[index] = _error_response(error)
        *early, last = self.model.plan(inputs)
        for run in early:
            for index, response in self._answer(run, requests, inputs):
                requests[index].get_response_sender().send(
                    response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
        for index, response in self._answer(last, requests, inputs):
            responses[index] = response
        return responses

    def _answer(
        self, run: Sequence[int], requests: Sequence, inputs: Mapping[int, RequestInputs]
    ) -> Iterator[tuple[int, Any]]:
        """The response to every request of one run."""
        try:
            answers = self.model.run(
                [inputs[index] for index in run],
                [requests[index].requested_output_names() for index in run],
            )
        except Exception as error:  # noqa: BLE001 - whatever a graph does wrong, others are answered
            if len(run) == 1:
                yield run[0], _error_response(error)
                return
            for index in run:
                yield from self._answer([index], requests, inputs)
            return
        self.metrics.count(
            sum(len(next(iter(inputs[index].values()))) for index in run),
            [
                outputs["labels"]
                for index, outputs in zip(run, answers, strict=True)
                if "labels" in outputs and "health_check" not in requests[index].parameters()
            ],
        )
        for index, outputs in zip(run, answers, strict=True):
            tensors = [pb_utils.Tensor(*item) for item in outputs.items()]
            yield index, pb_utils.InferenceResponse(tensors)


def _error_response(error: Exception) -> Any:
    message = f"{type(error).__name__}: {error}"
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
