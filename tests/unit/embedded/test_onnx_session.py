"""Threads, optimization and devices of the session, by the C++ backend's parameters."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.unit.embedded import ragged_model
from text_pipeline.embedded import onnx_session
from text_pipeline.embedded.parameters import Parameters
from text_pipeline.errors import ConfigurationError


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {key: {"string_value": value} for key, value in values.items()}}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(ragged_model.graph(), path)
    return path


@pytest.mark.parametrize(
    ("instances", "cores", "threads"), [(1, 8, 8), (2, 8, 4), (2, 5, 2), (4, 2, 1)]
)
@pytest.mark.parametrize(
    "given", [{}, parameters(intra_op_thread_count="0")], ids=["absent", "zero"]
)
def test_instances_share_the_cores(
    instances: int, cores: int, threads: int, given: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_session, "usable_cores", lambda: cores)
    config = {"instance_group": [{"count": instances, "kind": "KIND_CPU"}], **given}
    assert onnx_session.session_options(config).intra_op_num_threads == threads


def test_idle_threads_leave_the_cores_to_others() -> None:
    options = onnx_session.session_options({})
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_thread_counts_that_are_given_are_used() -> None:
    config = parameters(intra_op_thread_count="3", inter_op_thread_count="2", execution_mode="1")
    options = onnx_session.session_options(config)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 2)
    assert options.execution_mode.name == "ORT_PARALLEL"


@pytest.mark.parametrize(
    ("given", "kept"), [({}, True), ({"value": "1"}, True), ({"value": "0"}, False)]
)
def test_memory_is_kept_unless_the_configuration_says_otherwise(given: dict, kept: bool) -> None:
    names = ("enable_mem_arena", "enable_mem_pattern")
    config = parameters(**{name: value for name in names for value in given.values()})
    options = onnx_session.session_options(config)
    assert (options.enable_cpu_mem_arena, options.enable_mem_pattern) == (kept, kept)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (-1, "ORT_ENABLE_BASIC"),
        (0, "ORT_ENABLE_ALL"),
        (1, "ORT_ENABLE_EXTENDED"),
        (2, "ORT_DISABLE_ALL"),
    ],
)
def test_graph_levels_mean_what_they_mean_to_the_cpp_backend(level: int, expected: str) -> None:
    options = onnx_session.session_options({"optimization": {"graph": {"level": level}}})
    assert options.graph_optimization_level.name == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (parameters(share_session_between_instances="true"), "share_session_between_instances"),
        ({"optimization": {"graph": {"level": 7}}}, "graph level.*7"),
        ({"optimization": {"execution_accelerators": {"gpu": []}}}, "execution_accelerators"),
    ],
)
def test_a_value_that_means_nothing_here_is_refused(config: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        onnx_session.session_options(config)


def test_instances_on_several_gpus_count_for_each() -> None:
    config = {"instance_group": [{"count": 2, "gpus": [0, 1]}, {"count": 1}]}
    assert onnx_session.instance_count(config) == 5


def test_a_gpu_instance_without_the_cuda_provider_says_what_to_do(
    graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        onnx_session.onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"]
    )
    with pytest.raises(ConfigurationError, match="--model-config-name=cpu"):
        onnx_session.open_session({}, graph, "GPU", 0)


def test_a_gpu_instance_runs_on_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        onnx_session.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"]
    )
    providers = onnx_session.execution_providers("GPU", 3, Parameters({}))
    assert providers[0] == ("CUDAExecutionProvider", {"device_id": 3})


def test_parameters_for_gpus_reach_the_cuda_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        onnx_session.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"]
    )
    given = parameters(gpu_mem_limit="1000", arena_extend_strategy="1", cudnn_conv_algo_search="2")
    ((_, options), _) = onnx_session.execution_providers("GPU", 0, Parameters(given))
    assert options == {
        "device_id": 0,
        "gpu_mem_limit": "1000",
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "DEFAULT",
    }


def test_a_cuda_provider_that_does_not_start_is_an_error(
    graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ONNX Runtime itself warns and goes on with the CPU.
    monkeypatch.setattr(onnx_session, "execution_providers", lambda *_: ["CPUExecutionProvider"])
    with pytest.raises(ConfigurationError, match="did not start on GPU 0"):
        onnx_session.open_session({}, graph, "GPU", 0)
