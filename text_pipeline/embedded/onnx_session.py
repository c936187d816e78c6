"""The ONNX Runtime session that a Triton model configuration asks for.

Parameters have the names and values of Triton's C++ ONNX Runtime backend.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime

from text_pipeline.embedded.cores import usable_cores

_CUDA = "CUDAExecutionProvider"
_GPU_REMEDY = "start the server with --model-config-name=cpu, or install onnxruntime-gpu"
_EXECUTION_MODES = {
    0: onnxruntime.ExecutionMode.ORT_SEQUENTIAL,
    1: onnxruntime.ExecutionMode.ORT_PARALLEL,
}
# optimization { graph { level } }
_GRAPH_LEVELS = {
    -1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    0: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


class ConfigurationError(ValueError):
    """A model configuration that this backend or this machine cannot serve."""


def open_session(
    config: Mapping[str, Any], graph: Path, kind: str, device_id: int
) -> onnxruntime.InferenceSession:
    """Opens `graph` for an instance of `kind` "CPU" or "GPU"; raises ConfigurationError."""
    session = onnxruntime.InferenceSession(
        graph, session_options(config), providers=execution_providers(kind, device_id)
    )
    # ONNX Runtime goes on without a provider that does not start, and only warns.
    if kind == "GPU" and _CUDA not in session.get_providers():
        raise ConfigurationError(f"{_CUDA} did not start on GPU {device_id}: {_GPU_REMEDY}")
    return session


def session_options(config: Mapping[str, Any]) -> onnxruntime.SessionOptions:
    """Threads, memory, execution mode and graph optimization level of the configuration.

    `intra_op_thread_count` 0 or absent is this instance's share of the usable cores, at least 1:
    ONNX Runtime's own default would give every instance a thread per core.
    """
    optimization = config.get("optimization", {})
    if optimization.get("execution_accelerators"):
        raise ConfigurationError("execution_accelerators are not supported by this backend")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = parameter(config, "intra_op_thread_count") or max(
        1, usable_cores() // instance_count(config)
    )
    # Idle threads sleep instead of spinning, for the tokenizer and the other instance need the
    # cores, too. MiniLM on 2 cores, texts/s with and without spinning: one process of 2 threads
    # 357 and 385; two such processes together 323 and 475.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.inter_op_num_threads = parameter(config, "inter_op_thread_count")
    options.enable_cpu_mem_arena = parameter(config, "enable_mem_arena", 1) != 0
    options.enable_mem_pattern = parameter(config, "enable_mem_pattern", 1) != 0
    options.execution_mode = _choice(
        "parameter execution_mode", parameter(config, "execution_mode"), _EXECUTION_MODES
    )
    options.graph_optimization_level = _choice(
        "optimization graph level",
        int(optimization.get("graph", {}).get("level", 0)),
        _GRAPH_LEVELS,
    )
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
    if kind != "GPU" or _CUDA not in available:
        raise ConfigurationError(
            f"instance_group asks for KIND_{kind}, but this ONNX Runtime has only {available}: "
            f"{_GPU_REMEDY}"
        )
    return [(_CUDA, {"device_id": device_id}), "CPUExecutionProvider"]


def _choice(name: str, value: int, choices: Mapping[int, Any]) -> Any:
    if value not in choices:
        raise ConfigurationError(f"{name}: expected one of {sorted(choices)}, got {value}")
    return choices[value]


def parameter(config: Mapping[str, Any], key: str, default: int = 0) -> int:
    """The value of a parameter that is a whole number."""
    value = config.get("parameters", {}).get(key, {}).get("string_value", str(default))
    if not value.isdecimal():
        raise ConfigurationError(f"parameter {key}: expected a whole number, got {value!r}")
    return int(value)
