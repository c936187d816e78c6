"""An ONNX model with Triton's configuration: what the Python-based backend runs.

Takes and gives numpy arrays, so that it is tested without a server.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from text_pipeline.embedded import batching
from text_pipeline.embedded.cores import usable_cores

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

RequestInputs = Mapping[str, np.ndarray]


class ConfigurationError(ValueError):
    """A model configuration that this backend or this machine cannot serve."""


class OnnxModel:
    """One instance: an ONNX Runtime session and the configuration around it."""

    def __init__(
        self, config: Mapping[str, Any], version_directory: Path, kind: str, device_id: int
    ) -> None:
        """`config` is the model configuration as JSON, `kind` "CPU" or "GPU".

        Raises ConfigurationError when graph, configuration and machine do not fit.
        """
        if config.get("batch_output"):
            raise ConfigurationError("batch_output is not supported by this backend")
        self.batched = config.get("max_batch_size", 0) > 0
        self.inputs = {tensor["name"]: tensor for tensor in config["input"]}
        self.outputs = {tensor["name"]: tensor for tensor in config["output"]}
        self.batch_inputs = config.get("batch_input", [])
        graph = version_directory / (config.get("default_model_filename") or "model.onnx")
        if not graph.is_file():
            raise ConfigurationError(f"{graph} is missing: run `text-pipeline export`")
        self.session = onnxruntime.InferenceSession(
            graph, session_options(config), providers=execution_providers(kind, device_id)
        )
        self._check_graph()

    def run(
        self, requests: Sequence[RequestInputs], requested: Sequence[Sequence[str]]
    ) -> list[dict[str, np.ndarray]]:
        """One session run for all requests; each gets the outputs it asked for.

        `requests` hold one [items, …] tensor per input (without batching exactly one request),
        STRING tensors as bytes; so do the results.
        """
        wanted = sorted(set().union(*requested))
        computed = dict(zip(wanted, self.session.run(wanted, self._feed(requests)), strict=True))
        results: list[dict[str, np.ndarray]] = [{} for _ in requests]
        for name, tensor in computed.items():
            if self.outputs[name]["data_type"] == "TYPE_STRING":
                tensor = batching.encode_strings(tensor)
            for index, part in enumerate(self._split(name, tensor, requests)):
                if name in requested[index]:
                    results[index][name] = part
        return results

    def _feed(self, requests: Sequence[RequestInputs]) -> dict[str, np.ndarray]:
        feed = {}
        for name, tensor in self.inputs.items():
            parts = [request[name] for request in requests]
            gathered = batching.gather(parts, tensor.get("allow_ragged_batch", False))
            if tensor["data_type"] == "TYPE_STRING":
                gathered = batching.decode_strings(gathered)
            feed[name] = gathered
        for batch_input in self.batch_inputs:
            source = [request[batch_input["source_input"][0]] for request in requests]
            value = batching.BATCH_INPUTS[batch_input["kind"]](source)
            dtype = batching.NUMPY_TYPES[batch_input["data_type"]]
            for name in batch_input["target_name"]:
                feed[name] = value.astype(dtype)
        return feed

    def _split(
        self, name: str, tensor: np.ndarray, requests: Sequence[RequestInputs]
    ) -> list[np.ndarray]:
        if not self.batched:
            return [tensor]
        first = next(iter(self.inputs))
        try:
            return batching.split(tensor, [request[first].shape[0] for request in requests])
        except ValueError as error:
            raise ValueError(f"output {name}: {error}") from error

    def _check_graph(self) -> None:
        """Compares names and types of the configuration with the graph's."""
        declared_inputs = {name: tensor["data_type"] for name, tensor in self.inputs.items()}
        for batch_input in self.batch_inputs:
            if batch_input["kind"] not in batching.BATCH_INPUTS:
                raise ConfigurationError(f"batch_input kind {batch_input['kind']} is unknown")
            for name in batch_input["target_name"]:
                declared_inputs[name] = batch_input["data_type"]
        graph_inputs = {tensor.name: tensor.type for tensor in self.session.get_inputs()}
        if undeclared := sorted(graph_inputs.keys() - declared_inputs.keys()):
            raise ConfigurationError(f"the graph has inputs that are not configured: {undeclared}")
        _check_types("input", declared_inputs, graph_inputs)
        declared_outputs = {name: tensor["data_type"] for name, tensor in self.outputs.items()}
        graph_outputs = {tensor.name: tensor.type for tensor in self.session.get_outputs()}
        _check_types("output", declared_outputs, graph_outputs)


def _check_types(kind: str, declared: Mapping[str, str], found: Mapping[str, str]) -> None:
    for name, data_type in declared.items():
        if name not in found:
            raise ConfigurationError(f"{kind} {name} is configured, the graph has {sorted(found)}")
        if ONNX_TYPES.get(data_type) != found[name]:
            raise ConfigurationError(f"{kind} {name} is configured {data_type}, is {found[name]}")


def session_options(config: Mapping[str, Any]) -> onnxruntime.SessionOptions:
    """Thread counts by the parameters of Triton's C++ ONNX Runtime backend.

    `intra_op_thread_count` 0 or absent is this instance's share of the usable cores, at least 1:
    ONNX Runtime's own default would give every instance a thread per core.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _integer(config, "intra_op_thread_count") or max(
        1, usable_cores() // instance_count(config)
    )
    options.inter_op_num_threads = _integer(config, "inter_op_thread_count")
    return options


def instance_count(config: Mapping[str, Any]) -> int:
    """How many instances of the model this server runs, on all devices."""
    groups = config.get("instance_group", [])
    return max(1, sum(g.get("count", 1) * max(1, len(g.get("gpus", []))) for g in groups))


def execution_providers(kind: str, device_id: int) -> list[Any]:
    """ONNX Runtime's providers for an instance on CPU or on GPU `device_id`."""
    if kind == "CPU":
        return ["CPUExecutionProvider"]
    available = onnxruntime.get_available_providers()
    if kind != "GPU" or "CUDAExecutionProvider" not in available:
        raise ConfigurationError(
            f"instance_group asks for KIND_{kind}, but this ONNX Runtime has only {available}: "
            "start the server with --model-config-name=cpu, or install onnxruntime-gpu"
        )
    return [("CUDAExecutionProvider", {"device_id": device_id}), "CPUExecutionProvider"]


def _integer(config: Mapping[str, Any], key: str) -> int:
    """A parameter's value, 0 where it is absent."""
    value = config.get("parameters", {}).get(key, {}).get("string_value", "0")
    if not value.isdecimal():
        raise ConfigurationError(f"parameter {key}: expected a whole number, got {value!r}")
    return int(value)
