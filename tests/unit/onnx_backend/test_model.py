"""An ONNX model behind Triton's configuration, without a server."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf import json_format
from onnx import TensorProto, helper, numpy_helper

from tests.unit.onnx_backend import ragged_model
from text_pipeline.errors import ConfigurationError
from text_pipeline.onnx_backend.batching import NUMPY_TYPES
from text_pipeline.onnx_backend.load_checks import ONNX_TYPES
from text_pipeline.onnx_backend.model import OnnxModel

ELEMENT_TYPES = {
    "TYPE_STRING": TensorProto.STRING,
    "TYPE_FP16": TensorProto.FLOAT16,
    "TYPE_FP32": TensorProto.FLOAT,
    "TYPE_FP64": TensorProto.DOUBLE,
}


@pytest.fixture
def version(tmp_path: Path) -> Path:
    ragged_model.write(tmp_path, ragged_model.config())
    return tmp_path / ragged_model.NAME / "1"


def ragged_config() -> dict[str, Any]:
    """As Triton hands it to a Python-based backend: JSON, where int64 are strings."""
    return json_format.MessageToDict(ragged_model.config(), preserving_proto_field_name=True)


@pytest.fixture
def ragged(version: Path) -> OnnxModel:
    return OnnxModel(ragged_config(), version, "CPU", 0)


def load(graph: onnx.ModelProto, config: dict[str, Any], directory: Path) -> OnnxModel:
    onnx.save(graph, directory / "model.onnx")
    return OnnxModel(config, directory, "CPU", 0)


def make_graph(
    node: onnx.NodeProto,
    inputs: Mapping[str, tuple],
    outputs: Mapping[str, tuple],
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A graph of one node; `inputs` and `outputs` are name to (element type, shape)."""
    infos = [
        [helper.make_tensor_value_info(name, *value) for name, value in tensors.items()]
        for tensors in (inputs, outputs)
    ]
    initializers = [numpy_helper.from_array(v, name) for name, v in (constants or {}).items()]
    return helper.make_model(
        helper.make_graph([node], "graph", *infos, initializers),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )


def identity(element_type: int, shape: Sequence[int | str] = ("items", "size")) -> onnx.ModelProto:
    """y = x."""
    tensor = (element_type, shape)
    return make_graph(helper.make_node("Identity", ["x"], ["y"]), {"x": tensor}, {"y": tensor})


def identity_config(data_type: str, dims: Sequence[int] = (-1,), **fields: Any) -> dict[str, Any]:
    tensor = {"data_type": data_type, "dims": [str(dim) for dim in dims]}
    return {
        "max_batch_size": 8,
        "input": [{"name": "x", **tensor}],
        "output": [{"name": "y", **tensor}],
        **fields,
    }


def test_requests_of_several_items_and_lengths_share_one_run(ragged: OnnxModel) -> None:
    requests = [
        {"values": np.array([[1, 2], [3, 4]], np.float32)},
        {"values": np.array([[-5, -5, 4]], np.float32)},
    ]
    first, second = ragged.run(requests, [["total", "sign", "batch_items"], ["total", "sign"]])
    assert first["total"].tolist() == [[3], [7]]
    assert first["sign"].tolist() == [[b"positive"], [b"positive"]]
    assert first["batch_items"].tolist() == [[3], [3]]
    assert second["total"].tolist() == [[-6]]
    assert second["sign"].tolist() == [[b"negative"]]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("0", [[0, 1, 2, 3, 4]]), ("4", [[1, 3, 4], [0], [2]]), ("100", [[1, 3, 4, 0, 2]])],
)
def test_small_requests_run_first_and_a_run_is_bounded(
    limit: str, expected: list[list[int]], version: Path
) -> None:
    config = ragged_config() | {"parameters": {"max_run_elements": {"string_value": limit}}}
    requests = {
        number: {"values": np.zeros((1, size), np.float32)}
        for number, size in enumerate([3, 1, 9, 1, 2])
    }
    assert OnnxModel(config, version, "CPU", 0).plan(requests) == expected


def test_each_request_gets_only_what_it_asked_for(ragged: OnnxModel) -> None:
    requests = [{"values": np.ones((1, 2), np.float32)}] * 2
    results = ragged.run(requests, [["total"], ["sign"]])
    assert [list(result) for result in results] == [["total"], ["sign"]]


@pytest.mark.parametrize("data_type", sorted(NUMPY_TYPES))
def test_every_data_type_passes_unchanged(data_type: str, tmp_path: Path) -> None:
    name = data_type.removeprefix("TYPE_")
    element_type = ELEMENT_TYPES.get(data_type) or TensorProto.DataType.Value(name)
    model = load(identity(element_type), identity_config(data_type), tmp_path)
    if data_type == "TYPE_STRING":
        values = np.array([[b"a", "\N{SNOWMAN}".encode()]], np.object_)
    else:
        values = np.array([[0, 1]], NUMPY_TYPES[data_type])
    (result,) = model.run([{"x": values}], [["y"]])
    assert result["y"].dtype == values.dtype
    assert result["y"].tolist() == values.tolist()


def test_the_types_of_numpy_and_onnx_cover_the_same_protocol_types() -> None:
    assert set(NUMPY_TYPES) == set(ONNX_TYPES)


def test_without_batching_every_request_runs_alone(tmp_path: Path) -> None:
    config = identity_config("TYPE_FP32", max_batch_size=0)
    model = load(identity(TensorProto.FLOAT, ["size"]), config, tmp_path)
    requests = [{"x": np.ones(size, np.float32)} for size in (2, 3)]
    assert [r["y"].shape for r in model.run(requests, [["y"]] * 2)] == [(2,), (3,)]


def test_a_request_may_leave_out_an_optional_input(tmp_path: Path) -> None:
    graph = make_graph(
        helper.make_node("Add", ["x", "bias"], ["y"]),
        {"x": (TensorProto.FLOAT, ["size"]), "bias": (TensorProto.FLOAT, [1])},
        {"y": (TensorProto.FLOAT, ["size"])},
        {"bias": np.array([10], np.float32)},
    )
    config = identity_config("TYPE_FP32", max_batch_size=0)
    config["input"].append({**config["input"][0], "name": "bias", "dims": ["1"], "optional": True})
    model = load(graph, config, tmp_path)
    one = np.array([1], np.float32)
    results = model.run([{"x": one}, {"x": one, "bias": one}, {"x": 2 * one}], [["y"]] * 3)
    assert [result["y"].item() for result in results] == [11, 2, 12]


def test_default_model_filename_names_the_graph(version: Path) -> None:
    (version / "model.onnx").rename(version / "other.onnx")
    with pytest.raises(ConfigurationError, match=r"model\.onnx is missing"):
        OnnxModel(ragged_config(), version, "CPU", 0)
    OnnxModel(ragged_config() | {"default_model_filename": "other.onnx"}, version, "CPU", 0)


def test_a_folder_of_that_name_holds_the_graph(version: Path) -> None:
    """As behind the C++ backend."""
    (version / "model.onnx").rename(version / "graph")
    (version / "model.onnx").mkdir()
    (version / "graph").rename(version / "model.onnx" / "model.onnx")
    OnnxModel(ragged_config(), version, "CPU", 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": [{"name": "x", "reshape": {"shape": ["3"]}}]}, "x: reshape"),
        ({"max_batch_size": 0, "input": [{"name": "x", "allow_ragged_batch": True}]}, "input x"),
        ({"batch_output": [{"kind": "BATCH_SCATTER_WITH_INPUT_SHAPE"}]}, "batch_output"),
        ({"sequence_batching": {"max_sequence_idle_microseconds": "1"}}, "sequence_batching"),
        ({"model_operations": {"op_library_filename": ["x.so"]}}, "model_operations"),
        ({"cc_model_filenames": {"7.5": "model.onnx"}}, "cc_model_filenames"),
    ],
)
def test_what_only_the_cpp_backend_does_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(identity(TensorProto.FLOAT), identity_config("TYPE_FP32") | change, tmp_path)


def test_a_graph_that_does_not_fit_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    """ONNX Runtime finds the 3 for y, which is declared open; test_load_checks has the rules."""
    graph = identity(TensorProto.FLOAT, ["items", 3])
    graph.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "open"
    config = identity_config("TYPE_FP32")
    config["input"][0] = config["input"][0] | {"dims": ["3"]}
    with pytest.raises(
        ConfigurationError, match=r"output y .*\[-1, -1\].*\[-1, 3\]: export .*again"
    ):
        load(graph, config, tmp_path)


def test_a_string_that_the_cpp_backend_would_cut_is_refused(tmp_path: Path) -> None:
    model = load(identity(TensorProto.STRING), identity_config("TYPE_STRING"), tmp_path)
    with pytest.raises(ValueError, match="NUL"):
        model.run([{"x": np.array([[b"a\0b"]], np.object_)}], [["y"]])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "BATCH_NEW", "BATCH_NEW"),
        ("source_input", ["nothing"], "source_input nothing"),
        ("target_name", ["z"], "not configured.*item_length"),
        ("data_type", "TYPE_FP32", "item_length"),
    ],
)
def test_a_batch_input_that_does_not_fit_is_refused(
    field: str, value: Any, message: str, version: Path
) -> None:
    config = ragged_config()
    config["batch_input"][0][field] = value
    with pytest.raises(ConfigurationError, match=message):
        OnnxModel(config, version, "CPU", 0)
