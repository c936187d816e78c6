"""A small ragged ONNX model in a repository of its own: a server test needs no classifier."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf import text_format
from onnx import TensorProto, helper, numpy_helper
from tritonclient.grpc import model_config_pb2

NAME = "ragged_sum"


def graph() -> onnx.ModelProto:
    """Sums the flat `values` [all elements] per item, whose lengths are `item_length` [items].

    Outputs, all [items, 1]: `total`; `sign`, the string "negative" or "positive"; `batch_items`,
    how many items the run held; `checked`, 1.0, whose computation fails for a total below -1000.
    """
    nodes = [
        helper.make_node("CumSum", ["values", "zero"], ["running"]),
        helper.make_node("Concat", ["zero_float", "running"], ["running_from_zero"], axis=0),
        helper.make_node("Cast", ["item_length"], ["length"], to=TensorProto.INT64),
        helper.make_node("CumSum", ["length", "zero"], ["end"]),
        helper.make_node("Sub", ["end", "length"], ["start"]),
        helper.make_node("Gather", ["running_from_zero", "end"], ["sum_to_end"]),
        helper.make_node("Gather", ["running_from_zero", "start"], ["sum_to_start"]),
        helper.make_node("Sub", ["sum_to_end", "sum_to_start"], ["sums"]),
        helper.make_node("Unsqueeze", ["sums", "one"], ["total"]),
        helper.make_node("GreaterOrEqual", ["total", "zero_float"], ["is_positive"]),
        helper.make_node("Cast", ["is_positive"], ["sign_index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["sign_names", "sign_index"], ["sign"]),
        helper.make_node("Shape", ["length"], ["items"]),
        helper.make_node("Shape", ["total"], ["column"]),
        helper.make_node("Expand", ["items", "column"], ["batch_items"]),
        helper.make_node("Less", ["total", "limit"], ["is_too_low"]),
        # Index 1 of one element: out of bounds.
        helper.make_node("Cast", ["is_too_low"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["one_float", "index"], ["checked"]),
    ]
    constants = {
        "zero": np.array(0, np.int64),
        "one": np.array([1], np.int64),
        "zero_float": np.array([0], np.float32),
        "limit": np.array([-1000], np.float32),
        "one_float": np.array([1], np.float32),
        "sign_names": np.array(["negative", "positive"], np.object_),
    }
    column = ["items", 1]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            NAME,
            [
                helper.make_tensor_value_info("values", TensorProto.FLOAT, ["elements"]),
                helper.make_tensor_value_info("item_length", TensorProto.INT32, ["items"]),
            ],
            [
                helper.make_tensor_value_info("total", TensorProto.FLOAT, column),
                helper.make_tensor_value_info("sign", TensorProto.STRING, column),
                helper.make_tensor_value_info("batch_items", TensorProto.INT64, column),
                helper.make_tensor_value_info("checked", TensorProto.FLOAT, column),
            ],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.checker.check_model(model)
    return model


def config() -> model_config_pb2.ModelConfig:
    """The model's configuration: two CPU instances, batches of up to 8 that wait for each other."""
    batch_input = model_config_pb2.BatchInput
    return model_config_pb2.ModelConfig(
        name=NAME,
        platform="onnxruntime_onnx",
        max_batch_size=8,
        input=[_tensor(model_config_pb2.ModelInput, "values", "FP32", allow_ragged_batch=True)],
        batch_input=[
            batch_input(
                kind=batch_input.BATCH_ITEM_SHAPE_FLATTEN,
                target_name=["item_length"],
                data_type=model_config_pb2.TYPE_INT32,
                source_input=["values"],
            )
        ],
        output=[
            _tensor(model_config_pb2.ModelOutput, "total", "FP32", dims=[1]),
            _tensor(model_config_pb2.ModelOutput, "sign", "STRING", dims=[1]),
            _tensor(model_config_pb2.ModelOutput, "batch_items", "INT64", dims=[1]),
            _tensor(model_config_pb2.ModelOutput, "checked", "FP32", dims=[1]),
        ],
        dynamic_batching=model_config_pb2.ModelDynamicBatching(
            preferred_batch_size=[8], max_queue_delay_microseconds=200_000
        ),
        instance_group=[
            model_config_pb2.ModelInstanceGroup(
                count=2, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU
            )
        ],
    )


def write(repository: Path, model_config: model_config_pb2.ModelConfig) -> Path:
    """Writes `repository` with this one model in version 1 and returns it."""
    version = repository / NAME / "1"
    version.mkdir(parents=True)
    onnx.save(graph(), version / "model.onnx")
    (repository / NAME / "config.pbtxt").write_text(text_format.MessageToString(model_config))
    return repository


def _tensor(kind, name: str, data_type: str, dims: Sequence[int] = (-1,), **fields):
    return kind(
        name=name,
        data_type=model_config_pb2.DataType.Value(f"TYPE_{data_type}"),
        dims=dims,
        **fields,
    )
