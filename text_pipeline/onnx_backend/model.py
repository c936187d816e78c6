"""An ONNX model with Triton's configuration: what the Python-based backend runs.

Takes and gives numpy arrays, so that it is tested without a server.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from text_pipeline.errors import ConfigurationError
from text_pipeline.onnx_backend import batching, load_checks
from text_pipeline.onnx_backend.parameters import Parameters
from text_pipeline.onnx_backend.session import open_session, run_options

GRAPH = "model.onnx"

RequestInputs = Mapping[str, np.ndarray]


class OnnxModel:
    """One instance: an ONNX Runtime session and the configuration around it."""

    def __init__(
        self, config: Mapping[str, Any], version_directory: Path, kind: str, device_id: int
    ) -> None:
        """`config` is the model configuration as JSON, `kind` "CPU" or "GPU".

        Raises ConfigurationError when graph, configuration and machine do not fit.
        """
        self.batched = config.get("max_batch_size", 0) > 0
        self.inputs = {tensor["name"]: tensor for tensor in config.get("input", [])}
        self.outputs = {tensor["name"]: tensor for tensor in config.get("output", [])}
        self.batch_inputs = config.get("batch_input", [])
        parameters = Parameters(config)
        self.max_run_elements = parameters.get("max_run_elements")
        self.run_options = run_options(parameters)
        self._check_configuration(config)
        graph = version_directory / (config.get("default_model_filename") or GRAPH)
        if graph.is_dir():
            graph /= GRAPH
        if not graph.is_file():
            raise ConfigurationError(f"{graph} is missing: run `text-pipeline export`")
        self.session = open_session(config, graph, kind, device_id)
        load_checks.check(config, load_checks.Signature.of(self.session))

    def plan(self, requests: Mapping[int, RequestInputs]) -> list[list[int]]:
        """The keys of the requests of each run, in the order in which they should run.

        With the parameter `max_run_elements` the smallest requests come first, and a run ends
        before it has more elements of the first ragged input, so that short texts do not wait for
        the long ones in their batch. Otherwise there is one run. At least one is returned.
        """
        ragged = next((n for n, t in self.inputs.items() if t.get("allow_ragged_batch")), None)
        if not self.max_run_elements or ragged is None:
            return [list(requests)]
        runs: list[list[int]] = [[]]
        elements = 0
        for key in sorted(requests, key=lambda key: requests[key][ragged].size):
            size = requests[key][ragged].size
            if runs[-1] and elements + size > self.max_run_elements:
                runs.append([])
                elements = 0
            runs[-1].append(key)
            elements += size
        return runs

    def run(
        self, requests: Sequence[RequestInputs], requested: Sequence[Sequence[str]]
    ) -> list[dict[str, np.ndarray]]:
        """One session run for all requests; each gets the outputs it asked for.

        `requests` hold one [items, …] tensor per input, STRING tensors as bytes; so do the
        results. Without batching every request runs alone. ONNX Runtime computes the whole graph
        whatever is requested, as behind the C++ backend; what nobody asked for is not copied.
        """
        results: list[dict[str, np.ndarray]] = [{} for _ in requests]
        everyone = range(len(requests))
        for group in [everyone] if self.batched else [[index] for index in everyone]:
            wanted = sorted(set().union(*(requested[index] for index in group)))
            feed = self._feed([requests[index] for index in group])
            items = [_item_count(requests[index]) for index in group]
            outputs = self.session.run(wanted, feed, self.run_options)
            for name, tensor in zip(wanted, outputs, strict=True):
                for index, part in zip(group, self._split(name, tensor, items), strict=True):
                    if name in requested[index]:
                        results[index][name] = part
        return results

    def _feed(self, requests: Sequence[RequestInputs]) -> dict[str, np.ndarray]:
        """What the graph gets for requests that have the same inputs."""
        feed = {}
        for name in requests[0]:
            tensor = self.inputs[name]
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

    def _split(self, name: str, tensor: np.ndarray, items: Sequence[int]) -> list[np.ndarray]:
        if self.outputs[name]["data_type"] == "TYPE_STRING":
            tensor = batching.encode_strings(tensor)
        if not self.batched:
            return [tensor]
        try:
            return batching.split(tensor, items)
        except ValueError as error:
            raise ValueError(f"output {name}: {error}") from error

    def _check_configuration(self, config: Mapping[str, Any]) -> None:
        """Refuses what the C++ backend would do and this one does not, rather than ignoring it."""
        for field in (
            "batch_output",
            "sequence_batching",
            "model_operations",
            "cc_model_filenames",
        ):
            if config.get(field):
                raise ConfigurationError(f"{field} is not supported by this backend")
        for name, tensor in [*self.inputs.items(), *self.outputs.items()]:
            if tensor.get("reshape"):
                raise ConfigurationError(f"{name}: reshape is not supported by this backend")
            if tensor.get("allow_ragged_batch") and not self.batched:
                raise ConfigurationError(f"input {name}: allow_ragged_batch needs max_batch_size")
        for batch_input in self.batch_inputs:
            if batch_input["kind"] not in batching.BATCH_INPUTS:
                raise ConfigurationError(f"batch_input kind {batch_input['kind']} is unknown")
            source = batch_input["source_input"][0]
            if source not in self.inputs or self.inputs[source].get("optional"):
                raise ConfigurationError(
                    f"batch_input {batch_input['target_name']}: source_input {source} must be "
                    "an input that every request has"
                )


def _item_count(request: RequestInputs) -> int:
    """Triton lets only requests through whose inputs agree in their batch dimension."""
    return next(iter(request.values())).shape[0]
