"""The ONNX Runtime session that a Triton model configuration asks for.

Parameters have the names and values of Triton's C++ ONNX Runtime backend.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnxruntime

from text_pipeline.errors import ConfigurationError
from text_pipeline.onnx_backend.parameters import Parameters
from text_pipeline.server.cores import usable_cores

_CUDA = "CUDAExecutionProvider"
_GPU_REMEDY = "start the server with --model-config-name=cpu, or install onnxruntime-gpu"
_EXECUTION_MODES = {
    "0": onnxruntime.ExecutionMode.ORT_SEQUENTIAL,
    "1": onnxruntime.ExecutionMode.ORT_PARALLEL,
}
# Values of the parameters for GPUs, as the CUDA provider calls them.
_CUDA_VALUES: Mapping[str, Callable[[Any], str | None]] = {
    "gpu_mem_limit": str,
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"}.get,
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}.get,
    "do_copy_in_default_stream": str,
}
# optimization { graph { level } }
_GRAPH_LEVELS = {
    -1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    0: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def open_session(
    config: Mapping[str, Any], graph: Path, kind: str, device_id: int
) -> onnxruntime.InferenceSession:
    """Opens `graph` for an instance of `kind` "CPU" or "GPU"; raises ConfigurationError."""
    session = onnxruntime.InferenceSession(
        graph,
        session_options(config),
        providers=execution_providers(kind, device_id, config),
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
    if optimization.get("execution_accelerators", {}).get("cpu_execution_accelerator"):
        raise ConfigurationError("cpu_execution_accelerator is not supported by this backend")
    parameters = Parameters(config)
    if parameters.get("share_session_between_instances"):
        raise ConfigurationError(
            "share_session_between_instances is not supported by this backend, whose instances are "
            "processes"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = parameters.get("intra_op_thread_count") or max(
        1, usable_cores() // instance_count(config)
    )
    # Idle threads sleep instead of spinning, for the tokenizer and the other instance need the
    # cores, too. MiniLM on 2 cores, texts/s with and without spinning: one process of 2 threads
    # 357 and 385; two such processes together 323 and 475.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    allocator = "session.use_device_allocator_for_initializers"
    if value := parameters.get(allocator, None):
        options.add_session_config_entry(allocator, value)
    options.inter_op_num_threads = parameters.get("inter_op_thread_count")
    options.enable_cpu_mem_arena = parameters.get("enable_mem_arena", True)
    options.enable_mem_pattern = parameters.get("enable_mem_pattern", True)
    options.execution_mode = _EXECUTION_MODES[parameters.get("execution_mode", "0")]
    level = int(optimization.get("graph", {}).get("level", 0))
    if level not in _GRAPH_LEVELS:
        raise ConfigurationError(
            f"optimization graph level: expected one of {sorted(_GRAPH_LEVELS)}, got {level}"
        )
    options.graph_optimization_level = _GRAPH_LEVELS[level]
    return options


def run_options(parameters: Parameters) -> onnxruntime.RunOptions:
    """What every run of the session is given."""
    options = onnxruntime.RunOptions()
    shrinkage = "memory.enable_memory_arena_shrinkage"
    if value := parameters.get(shrinkage, None):
        options.add_run_config_entry(shrinkage, value)
    return options


def instance_count(config: Mapping[str, Any]) -> int:
    """How many instances of the model this server runs, on all devices."""
    groups = config.get("instance_group", [])
    return max(1, sum(g.get("count", 1) * max(1, len(g.get("gpus", []))) for g in groups))


def execution_providers(kind: str, device_id: int, config: Mapping[str, Any]) -> list[Any]:
    """ONNX Runtime's providers for an instance on CPU or on GPU `device_id`."""
    if kind == "CPU":
        return ["CPUExecutionProvider"]
    options = {**_accelerator_options(config), **_parameter_options(Parameters(config))}
    available = onnxruntime.get_available_providers()
    if kind != "GPU" or _CUDA not in available:
        raise ConfigurationError(
            f"instance_group asks for KIND_{kind}, but this ONNX Runtime has only {available}: "
            f"{_GPU_REMEDY}"
        )
    return [(_CUDA, options | {"device_id": device_id}), "CPUExecutionProvider"]


def _parameter_options(parameters: Parameters) -> dict[str, str | None]:
    """Options of the CUDA provider among the model's parameters."""
    given = {name: parameters.get(name, None) for name in _CUDA_VALUES}
    return {n: _CUDA_VALUES[n](value) for n, value in given.items() if value is not None}


def _accelerator_options(config: Mapping[str, Any]) -> dict[str, str]:
    """Options of the CUDA provider of `gpu_execution_accelerator { name: "cuda" }`.

    As the C++ backend has taken them since the middle of 2024 (its pull request 256): names and
    values are ONNX Runtime's, which refuses those that it does not know. An empty value is none.
    """
    optimization = config.get("optimization", {})
    given = optimization.get("execution_accelerators", {}).get("gpu_execution_accelerator", [])
    options: dict[str, str] = {}
    for accelerator in given:
        if accelerator["name"] != "cuda":
            raise ConfigurationError(
                f"execution accelerator {accelerator['name']} is not supported by this backend: "
                'expected "cuda"'
            )
        options |= {name: v for name, v in accelerator.get("parameters", {}).items() if v}
    # The C++ backend overwrites these by the model's parameters, or by their defaults without them.
    if lost := sorted(options.keys() & _CUDA_VALUES.keys()):
        raise ConfigurationError(
            f"{', '.join(lost)} of the accelerator cuda: Triton's C++ backend takes no notice of "
            "it there; write it into the model's parameters"
        )
    return options
