"""The static configurations say what they promise, for GPU and CPU alike."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from text_pipeline.repository import CLASSIFIER, ENSEMBLE, STATIC_REPOSITORY

CONFIGS = sorted(STATIC_REPOSITORY.glob("*/config.pbtxt"))


def read(path: Path) -> model_config_pb2.ModelConfig:
    return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parent.name)
def test_nothing_depends_on_the_model(path: Path) -> None:
    config = read(path)
    assert config.name == path.parent.name
    assert config.max_batch_size == 64
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
        for field in ("dynamic_batching", "instance_group", "parameters"):
            config.ClearField(field)
    assert cpu == gpu


def test_ensemble_hands_on_what_its_steps_give() -> None:
    ensemble = read(STATIC_REPOSITORY / ENSEMBLE / "config.pbtxt")
    for step in ensemble.ensemble_scheduling.step:
        config = read(STATIC_REPOSITORY / step.model_name / "config.pbtxt")
        types = {tensor.name: tensor.data_type for tensor in config.output}
        for output in ensemble.output:
            if output.name in types:
                assert output.data_type == types[output.name]
