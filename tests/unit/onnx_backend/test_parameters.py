"""Parameters mean what they mean to Triton's C++ backend, or are refused."""

import pytest

from text_pipeline.errors import ConfigurationError
from text_pipeline.onnx_backend.parameters import Parameters


def parsed(name: str, value: str):
    return Parameters({"parameters": {name: {"string_value": value}}}).get(name, None)


@pytest.mark.parametrize("name", ["enable_mem_arena", "enable_mem_pattern"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", True), ("true", True), ("On", True), ("0", False), ("False", False), ("off", False)],
)
def test_booleans_have_the_cpp_backends_spellings(name: str, value: str, expected: bool) -> None:
    assert parsed(name, value) is expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("enable_mem_arena", "2", "true or false"),
        ("enable_mem_pattern", "yes", "true or false"),
        ("share_session_between_instances", "", "true or false"),
        ("execution_mode", "2", "one of 0, 1"),
        ("intra_op_thread_count", "two", "a whole number"),
        ("intra_op_thread_count", "-1", "a whole number"),
        ("intra_op_thread_count", "", "a whole number"),
        ("inter_op_thread_count", "1.5", "a whole number"),
        ("arena_extend_strategy", "kSameAsRequested", "one of 0, 1"),
        ("cudnn_conv_algo_search", "3", "one of 0, 1, 2"),
        ("gpu_mem_limit", "4 GB", "a whole number"),
        ("max_run_elements", "many", "a whole number"),
    ],
)
def test_a_value_that_cannot_be_read_is_named(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"parameter {name}: expected {expected}.*, got"):
        parsed(name, value)


def test_a_parameter_without_a_value_is_refused() -> None:
    """Protobuf leaves an empty string out."""
    with pytest.raises(ConfigurationError, match="execution_mode"):
        Parameters({"parameters": {"execution_mode": {}}})


def test_parameters_of_others_are_left_to_them() -> None:
    assert parsed("TRITON_BATCH_STRATEGY_PATH", "x.so") is None
