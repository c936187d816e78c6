"""Configurations that are written by the tuner and the load runs."""

from pathlib import Path

import pytest

from text_pipeline.contract import CLASSIFIER, ENSEMBLES, TOKENIZER
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import configuration
from text_pipeline.repository.configuration import Settings
from text_pipeline.repository.versions import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    Repository(tmp_path).create()
    return tmp_path


def test_without_settings_it_is_the_base(repository: Path) -> None:
    configuration.write(repository, "copy", Settings())
    for model in (CLASSIFIER, TOKENIZER):
        copied, base = (configuration.read(repository, model, name) for name in ("copy", "cpu"))
        assert copied == base


def test_every_setting_arrives(repository: Path) -> None:
    settings = Settings(
        instances=3, threads=4, max_batch_items=24, max_run_tokens=256, queue_delay_us=700,
        tokenizer_instances=2, version=5,
    )  # fmt: skip
    configuration.write(repository, "tuned", settings, comment="first\nsecond")
    classifier = configuration.read(repository, CLASSIFIER, "tuned")
    tokenizer = configuration.read(repository, TOKENIZER, "tuned")
    assert [group.count for group in classifier.instance_group] == [3]
    assert classifier.parameters["intra_op_thread_count"].string_value == "4"
    assert classifier.parameters["max_run_elements"].string_value == "256"
    assert list(classifier.dynamic_batching.preferred_batch_size) == [24]
    assert classifier.dynamic_batching.max_queue_delay_microseconds == 700
    assert [group.count for group in tokenizer.instance_group] == [2]
    for config in (classifier, tokenizer):
        assert list(config.version_policy.specific.versions) == [5]
        assert config.max_batch_size == 64, "a request may bring as many texts as before"
    for model in ENSEMBLES:
        steps = configuration.read(repository, model, "tuned").ensemble_scheduling.step
        assert [step.model_version for step in steps] == [5, 5]
    text = (repository / CLASSIFIER / "configs" / "tuned.pbtxt").read_text()
    assert text.startswith("# first\n# second\n")


def test_batching_can_be_switched_off(repository: Path) -> None:
    configuration.write(repository, "single", Settings(batching=False))
    config = configuration.read(repository, CLASSIFIER, "single")
    assert not config.HasField("dynamic_batching")


def test_another_version_can_be_put_into_use_in_what_was_written(repository: Path) -> None:
    for version in (1, 2):
        model = repository / CLASSIFIER / str(version) / "model.onnx"
        model.parent.mkdir(exist_ok=True)
        model.touch()
    configuration.write(repository, "tuned", Settings(instances=3, version=1))
    Repository(repository).load(2, alone=True)
    Repository(repository).use(2)
    for model in (CLASSIFIER, TOKENIZER):
        config = configuration.read(repository, model, "tuned")
        assert list(config.version_policy.specific.versions) == [2]
    for model in ENSEMBLES:
        steps = configuration.read(repository, model, "tuned").ensemble_scheduling.step
        assert [step.model_version for step in steps] == [2, 2]
    assert Repository(repository).turns("tuned") == 3


def test_the_gpu_configuration_can_be_the_base(repository: Path) -> None:
    configuration.write(repository, "tuned", Settings(instances=1), base="gpu")
    [group] = configuration.read(repository, CLASSIFIER, "tuned").instance_group
    assert (group.count, list(group.gpus)) == (1, [0])


def test_a_file_that_cannot_be_read_is_named(repository: Path) -> None:
    (repository / CLASSIFIER / "config.pbtxt").write_text("name: {")
    with pytest.raises(TextPipelineError, match=r"config\.pbtxt"):
        configuration.write(repository, "tuned", Settings(), base="gpu")
