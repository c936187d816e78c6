"""The static configurations say what they promise, for GPU and CPU alike."""

from pathlib import Path

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from text_pipeline.contract import CLASSIFIER, ENSEMBLE
from text_pipeline.onnx_backend.parameters import Parameters
from text_pipeline.repository.versions import STATIC_REPOSITORY

CONFIGS = sorted(STATIC_REPOSITORY.glob("*/config.pbtxt"))
CLASSIFIERS = sorted((STATIC_REPOSITORY / CLASSIFIER).glob("**/*.pbtxt"))
ON_GPU = [path for path in CLASSIFIERS if path.stem != "cpu"]
# What Triton's ONNX Runtime backend reads among a model's parameters (onnxruntime.cc, ModelState
# and LoadModel, of 2026); others it ignores. max_run_elements is the embedded backend's own.
PARAMETERS = {
    "execution_mode", "intra_op_thread_count", "inter_op_thread_count", "enable_mem_arena",
    "enable_mem_pattern", "share_session_between_instances",
    "session.use_device_allocator_for_initializers", "memory.enable_memory_arena_shrinkage",
    "gpu_mem_limit", "arena_extend_strategy", "cudnn_conv_algo_search",
    "do_copy_in_default_stream", "max_run_elements",
}  # fmt: skip
ACCELERATORS = {
    # The same file hands these on to ONNX Runtime, whose provider refuses other names
    # (cuda_execution_provider_info.cc). Left out are those that the backend overwrites: device,
    # stream, and what PARAMETERS has.
    "cuda": {
        "cudnn_conv_use_max_workspace", "enable_cuda_graph", "cudnn_conv1d_pad_to_nc1d",
        "enable_skip_layer_norm_strict_mode", "prefer_nhwc", "use_ep_level_unified_stream",
        "use_tf32", "tunable_op_enable", "tunable_op_tuning_enable",
        "tunable_op_max_tuning_duration_ms",
    },
    # It names every key that it takes, and refuses every other one.
    "tensorrt": {
        "precision_mode", "max_workspace_size_bytes", "trt_max_partition_iterations",
        "trt_min_subgraph_size", "int8_calibration_table_name", "int8_use_native_calibration_table",
        "trt_dla_enable", "trt_dla_core", "trt_engine_cache_enable", "trt_engine_cache_path",
        "trt_engine_cache_prefix", "trt_dump_subgraphs", "trt_force_sequential_engine_build",
        "trt_context_memory_sharing_enable", "trt_layer_norm_fp32_fallback",
        "trt_timing_cache_enable", "trt_timing_cache_path", "trt_force_timing_cache",
        "trt_detailed_build_log",
        "trt_build_heuristics_enable", "trt_sparsity_enable", "trt_builder_optimization_level",
        "trt_auxiliary_streams", "trt_tactic_sources", "trt_extra_plugin_lib_paths",
        "trt_profile_min_shapes", "trt_profile_max_shapes", "trt_profile_opt_shapes",
        "trt_cuda_graph_enable", "trt_dump_ep_context_model", "trt_ep_context_file_path",
        "trt_ep_context_embed_mode",
    },
}  # fmt: skip


def read(path: Path) -> model_config_pb2.ModelConfig:
    return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parent.name)
def test_nothing_depends_on_the_model(path: Path) -> None:
    config = read(path)
    assert config.name == path.parent.name
    # A request brings at most 64 texts; only the classifier's batches are of several requests.
    assert config.max_batch_size == (128 if config.name == CLASSIFIER else 64)
    for tensor in [*config.input, *config.output]:
        assert list(tensor.dims) in ([-1], [1]), tensor.name


def test_gpu_configuration_of_the_classifier() -> None:
    config = read(STATIC_REPOSITORY / CLASSIFIER / "config.pbtxt")
    assert config.platform == "onnxruntime_onnx"
    assert list(config.dynamic_batching.preferred_batch_size) == [8, 16, 32, 64]
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    (group,) = config.instance_group
    assert (group.count, list(group.gpus)) == (2, [0])
    assert group.kind == model_config_pb2.ModelInstanceGroup.KIND_GPU


def test_cpu_variant_differs_only_in_batching_and_instances() -> None:
    gpu = read(STATIC_REPOSITORY / CLASSIFIER / "config.pbtxt")
    cpu = read(STATIC_REPOSITORY / CLASSIFIER / "configs" / "cpu.pbtxt")
    assert [group.kind for group in cpu.instance_group] == [
        model_config_pb2.ModelInstanceGroup.KIND_CPU
    ]
    for config in (gpu, cpu):
        for field in ("dynamic_batching", "instance_group", "parameters", "max_batch_size"):
            config.ClearField(field)
    for field in ("optimization", "model_warmup"):  # of GPUs
        assert field not in {set_field.name for set_field, _ in cpu.ListFields()}
        gpu.ClearField(field)
    assert cpu == gpu


def test_without_delay_only_the_batching_differs() -> None:
    gpu = read(STATIC_REPOSITORY / CLASSIFIER / "config.pbtxt")
    latency = read(STATIC_REPOSITORY / CLASSIFIER / "configs" / "latency.pbtxt")
    assert not latency.dynamic_batching.max_queue_delay_microseconds
    # Triton's own is max_batch_size: an idle instance takes all that waits.
    assert not latency.dynamic_batching.preferred_batch_size
    assert (
        latency.dynamic_batching.default_queue_policy == gpu.dynamic_batching.default_queue_policy
    )
    for config in (gpu, latency):
        config.ClearField("dynamic_batching")
    assert latency == gpu


@pytest.mark.parametrize("path", CLASSIFIERS, ids=lambda path: path.stem)
def test_the_backend_knows_every_parameter(path: Path) -> None:
    config = read(path)
    assert config.parameters.keys() <= PARAMETERS
    accelerators = config.optimization.execution_accelerators
    assert not accelerators.cpu_execution_accelerator
    for accelerator in accelerators.gpu_execution_accelerator:
        assert accelerator.parameters.keys() <= ACCELERATORS[accelerator.name]
    Parameters(json_format.MessageToDict(config, preserving_proto_field_name=True))


@pytest.mark.parametrize("path", ON_GPU, ids=lambda path: path.stem)
def test_every_gpu_computes_fp32_as_fp32_with_one_thread_of_the_cpu(path: Path) -> None:
    config = read(path)
    (group,) = config.instance_group
    assert group.kind == model_config_pb2.ModelInstanceGroup.KIND_GPU
    options = {
        name: value
        for accelerator in config.optimization.execution_accelerators.gpu_execution_accelerator
        if accelerator.name == "cuda"
        for name, value in accelerator.parameters.items()
    }
    assert options == {"use_tf32": "0"}
    assert config.parameters["intra_op_thread_count"].string_value == "1"
    # "1" is kSameAsRequested; among the accelerator's parameters it would be overwritten.
    assert config.parameters["arena_extend_strategy"].string_value == "1"


def test_ensemble_hands_on_what_its_steps_give() -> None:
    ensemble = read(STATIC_REPOSITORY / ENSEMBLE / "config.pbtxt")
    for step in ensemble.ensemble_scheduling.step:
        config = read(STATIC_REPOSITORY / step.model_name / "config.pbtxt")
        types = {tensor.name: tensor.data_type for tensor in config.output}
        for output in ensemble.output:
            if output.name in types:
                assert output.data_type == types[output.name]
