"""Threads, optimization and devices of the session, by the C++ backend's parameters."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.unit.onnx_backend import ragged_model
from text_pipeline.errors import ConfigurationError
from text_pipeline.onnx_backend import session


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {key: {"string_value": value} for key, value in values.items()}}


def accelerators(name: str, device: str = "gpu", **values: str) -> dict[str, Any]:
    given = {f"{device}_execution_accelerator": [{"name": name, "parameters": values}]}
    return {"optimization": {"execution_accelerators": given}}


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
    monkeypatch.setattr(session, "usable_cores", lambda: cores)
    config = {"instance_group": [{"count": instances, "kind": "KIND_CPU"}], **given}
    assert session.session_options(config).intra_op_num_threads == threads


def test_idle_threads_leave_the_cores_to_others() -> None:
    options = session.session_options({})
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_thread_counts_that_are_given_are_used() -> None:
    config = parameters(intra_op_thread_count="3", inter_op_thread_count="2", execution_mode="1")
    options = session.session_options(config)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 2)
    assert options.execution_mode.name == "ORT_PARALLEL"


@pytest.mark.parametrize(
    ("given", "kept"), [({}, True), ({"value": "1"}, True), ({"value": "0"}, False)]
)
def test_memory_is_kept_unless_the_configuration_says_otherwise(given: dict, kept: bool) -> None:
    names = ("enable_mem_arena", "enable_mem_pattern")
    config = parameters(**{name: value for name in names for value in given.values()})
    options = session.session_options(config)
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
    options = session.session_options({"optimization": {"graph": {"level": level}}})
    assert options.graph_optimization_level.name == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (parameters(share_session_between_instances="true"), "share_session_between_instances"),
        ({"optimization": {"graph": {"level": 7}}}, "graph level.*7"),
        (accelerators("openvino", device="cpu"), "cpu_execution_accelerator"),
    ],
)
def test_a_value_that_means_nothing_here_is_refused(config: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        session.session_options(config)


def test_instances_on_several_gpus_count_for_each() -> None:
    config = {"instance_group": [{"count": 2, "gpus": [0, 1]}, {"count": 1}]}
    assert session.instance_count(config) == 5


def test_a_gpu_instance_without_the_cuda_provider_says_what_to_do(
    graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        session.onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"]
    )
    with pytest.raises(ConfigurationError, match="--model-config-name=cpu"):
        session.open_session({}, graph, "GPU", 0)


@pytest.fixture
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        session.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"]
    )


@pytest.mark.usefixtures("with_cuda")
def test_a_gpu_instance_runs_on_its_own_device() -> None:
    providers = session.execution_providers("GPU", 3, {})
    assert providers[0] == ("CUDAExecutionProvider", {"device_id": 3})


@pytest.mark.usefixtures("with_cuda")
def test_parameters_for_gpus_reach_the_cuda_provider() -> None:
    given = parameters(gpu_mem_limit="1000", arena_extend_strategy="1", cudnn_conv_algo_search="2")
    ((_, options), _) = session.execution_providers("GPU", 0, given)
    assert options == {
        "device_id": 0,
        "gpu_mem_limit": "1000",
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "DEFAULT",
    }


@pytest.mark.usefixtures("with_cuda")
def test_options_of_the_accelerator_reach_the_cuda_provider_as_they_are() -> None:
    given = accelerators("cuda", use_tf32="0", prefer_nhwc="", sdpa_kernel="4")
    given |= parameters(arena_extend_strategy="1")
    ((_, options), _) = session.execution_providers("GPU", 1, given)
    assert options == {
        "device_id": 1,
        "use_tf32": "0",
        "sdpa_kernel": "4",
        "arena_extend_strategy": "kSameAsRequested",
    }


@pytest.mark.usefixtures("with_cuda")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (accelerators("tensorrt"), 'tensorrt is not supported by this backend: expected "cuda"'),
        (accelerators("CUDA"), "CUDA is not supported"),
        (accelerators("cuda", arena_extend_strategy="kSameAsRequested"), "no notice of it there"),
        (accelerators("cuda", gpu_mem_limit="1"), "gpu_mem_limit of the accelerator cuda"),
    ],
)
def test_an_accelerator_that_would_do_nothing_is_refused(given: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        session.execution_providers("GPU", 0, given)


def test_accelerators_of_gpus_are_nothing_to_an_instance_on_cpu() -> None:
    """As in the C++ backend, which reads them for KIND_GPU alone."""
    given = accelerators("tensorrt")
    assert session.execution_providers("CPU", 0, given) == ["CPUExecutionProvider"]
    session.session_options(given)


def test_a_cuda_provider_that_does_not_start_is_an_error(
    graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ONNX Runtime itself warns and goes on with the CPU.
    monkeypatch.setattr(session, "execution_providers", lambda *_: ["CPUExecutionProvider"])
    with pytest.raises(ConfigurationError, match="did not start on GPU 0"):
        session.open_session({}, graph, "GPU", 0)
