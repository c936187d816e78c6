"""The warm-up of the configurations for GPU, run by a real Triton on instances for CPU."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.conftest import Exported
from text_pipeline.contract import CLASSIFIER
from text_pipeline.repository import configuration
from text_pipeline.repository.versions import STATIC_REPOSITORY
from text_pipeline.server.tritonserver import EmbeddedServer

SAMPLES = configuration.read(STATIC_REPOSITORY, CLASSIFIER, "gpu").model_warmup
MASK = np.fromfile(STATIC_REPOSITORY / CLASSIFIER / "warmup" / "attention_mask", np.int64)


def test_every_instance_runs_one_batch_of_each_sample(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    repository = exported("bert").repository.path
    configs = repository / CLASSIFIER / "configs"
    samples = "".join(f"model_warmup {{ {sample} }}\n" for sample in SAMPLES)
    warm = configs / "warm.pbtxt"
    warm.write_text((configs / "cpu.pbtxt").read_text() + samples)
    log = tmp_path / "log"
    try:
        with EmbeddedServer(
            repository,
            model_config_name="warm",
            log_path=log,
            extra_arguments=["--log-verbose=1"],
        ):
            pass
    finally:
        warm.unlink()
    ran = re.findall(
        rf"instance ({CLASSIFIER}_\S+) is running warmup sample '(.+?)'", log.read_text()
    )
    names = [sample.name for sample in SAMPLES]
    instances = {instance for instance, _ in ran}
    assert len(instances) == 2
    assert sorted(ran) == sorted((instance, name) for instance in instances for name in names)


def test_samples_are_of_tokens_that_every_model_has_behind_a_mask_of_its_windows_numbers() -> None:
    assert [sample.batch_size for sample in SAMPLES] == [1, 8, 64]
    for sample in SAMPLES:
        assert {*sample.inputs} == {"input_ids", "attention_mask", "token_type_ids"}
        (dims,) = {tuple(given.dims) for given in sample.inputs.values()}
        assert np.prod(dims) <= len(MASK)
        assert sample.inputs["input_ids"].zero_data
        assert sample.inputs["attention_mask"].input_data_file == "attention_mask"
    assert MASK.tolist() == [1] * 12 + [0] * 4
