"""An ONNX model with Triton's configuration: what the Python-based backend runs.

Takes and gives numpy arrays, so that it is tested without a server.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from text_pipeline.embedded import batching
from text_pipeline.embedded.onnx_session import ConfigurationError, open_session, parameter

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


class OnnxModel:
    """One instance: an ONNX Runtime session and the configuration around it."""

    def __init__(
        self, config: Mapping[str, Any], version_directory: Path, kind: str, device_id: int
    ) -> None:
        """`config` is the model configuration as JSON, `kind` "CPU" or "GPU".

        Raises ConfigurationError when graph, configuration and machine do not fit.
        """
        self.batched = config.get("max_batch_size", 0) > 0
        self.inputs = {tensor["name"]: tensor for tensor in config["input"]}
        self.outputs = {tensor["name"]: tensor for tensor in config["output"]}
        self.batch_inputs = config.get("batch_input", [])
        self.max_run_elements = parameter(config, "max_run_elements")
        self._check_configuration(config)
        graph = version_directory / (config.get("default_model_filename") or "model.onnx")
        if not graph.is_file():
            raise ConfigurationError(f"{graph} is missing: run `text-pipeline export`")
        self.session = open_session(config, graph, kind, device_id)
        self._check_graph()

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
        results. Requests that leave out other optional inputs run apart, and so does every
        request to a model without batching. ONNX Runtime computes the whole graph whatever is
        requested, as behind the C++ backend; what nobody asked for is not copied.
        """
        results: list[dict[str, np.ndarray]] = [{} for _ in requests]
        for group in self._groups(requests):
            wanted = sorted(set().union(*(requested[index] for index in group)))
            feed = self._feed([requests[index] for index in group])
            items = [_item_count(requests[index]) for index in group]
            for name, tensor in zip(wanted, self.session.run(wanted, feed), strict=True):
                for index, part in zip(group, self._split(name, tensor, items), strict=True):
                    if name in requested[index]:
                        results[index][name] = part
        return results

    def _groups(self, requests: Sequence[RequestInputs]) -> list[list[int]]:
        """The indices of the requests that run together."""
        if not self.batched:
            return [[index] for index in range(len(requests))]
        groups: dict[frozenset[str], list[int]] = {}
        for index, request in enumerate(requests):
            groups.setdefault(frozenset(request), []).append(index)
        return list(groups.values())

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
        if config.get("batch_output"):
            raise ConfigurationError("batch_output is not supported by this backend")
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

    def _check_graph(self) -> None:
        """Compares names, types and dims of the configuration with the graph's."""
        required = {node.name: node for node in self.session.get_inputs()}
        # Inputs with a value in the graph, which a request may leave out.
        defaults = {node.name: node for node in self.session.get_overridable_initializers()}
        targets = {
            name: {"data_type": batch_input["data_type"]}
            for batch_input in self.batch_inputs
            for name in batch_input["target_name"]
        }
        declared = self.inputs | targets
        if undeclared := sorted(required.keys() - declared.keys()):
            raise ConfigurationError(f"the graph has inputs that are not configured: {undeclared}")
        self._check_tensors("input", declared, required | defaults)
        for name, tensor in self.inputs.items():
            if tensor.get("optional") and name not in defaults:
                raise ConfigurationError(
                    f"input {name} is optional, but the graph has no value for it (an initializer "
                    "of the same name)"
                )
        outputs = {node.name: node for node in self.session.get_outputs()}
        self._check_tensors("output", self.outputs, outputs)

    def _check_tensors(
        self, role: str, declared: Mapping[str, Any], found: Mapping[str, Any]
    ) -> None:
        for name, tensor in declared.items():
            if name not in found:
                raise ConfigurationError(
                    f"{role} {name} is configured, the graph has {sorted(found)}"
                )
            if ONNX_TYPES.get(tensor["data_type"]) != found[name].type:
                raise ConfigurationError(
                    f"{role} {name} is configured {tensor['data_type']}, "
                    f"in the graph it is {found[name].type}"
                )
            if "dims" not in tensor:
                continue
            dims = [int(dim) for dim in tensor["dims"]]
            if tensor.get("allow_ragged_batch"):
                expected = [-1]
            else:
                expected = [-1, *dims] if self.batched else dims
            if not _dims_fit(expected, found[name].shape, self.batched):
                raise ConfigurationError(
                    f"{role} {name} is configured {expected} (batch dimension included), "
                    f"in the graph it is {found[name].shape}"
                )


def _item_count(request: RequestInputs) -> int:
    """Triton lets only requests through whose inputs agree in their batch dimension."""
    return next(iter(request.values())).shape[0]


def _dims_fit(configured: Sequence[int], shape: Sequence[int | str | None], batched: bool) -> bool:
    """Whether a graph's shape can hold the configured one; names and None are any size."""
    if not shape:  # ONNX Runtime's way to say that the rank is unknown
        return True
    if len(configured) != len(shape) or (batched and isinstance(shape[0], int)):
        return False
    return all(
        dim == -1 or not isinstance(size, int) or dim == size
        for dim, size in zip(configured, shape, strict=True)
    )
