"""The README's commands for containers do what it says."""

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from load.__main__ import RUNS
from tests import tiny_models
from tests.conftest import REPOSITORY
from tests.test_readme import CONTAINERS, LOAD, ROOT, SHELL, assert_as_shown, blocks, shell
from text_pipeline.contract import CLASSIFIER
from text_pipeline.export.exporter import export_model
from text_pipeline.measure import perf_analyzer
from text_pipeline.measure.perf_analyzer import Load
from text_pipeline.repository import configuration
from text_pipeline.repository.versions import Repository
from text_pipeline.server.tritonserver import EmbeddedServer

OWN = ROOT / "my-repository"


@pytest.fixture
def own_repository(tmp_path) -> Iterator[None]:
    model = tiny_models.roberta(tmp_path / "model")
    export_model(str(model), Repository(OWN))
    yield
    shutil.rmtree(OWN)


@pytest.mark.usefixtures("own_repository")
def test_every_command_works_as_shown() -> None:
    up, own_and_down = blocks(CONTAINERS, "sh")
    up_own, *down = re.split(r"^(?=docker .* down$)", own_and_down, flags=re.MULTILINE)
    first_request = SHELL[1]
    try:
        shell(up)
        assert_as_shown(json.loads(shell(first_request)))
        shell(up_own)
        own = json.loads(shell(first_request.replace(":8000", ":9000")))
        assert own["labels"][0].startswith("LABEL_")
    finally:
        shell("".join(down))
    assert shell("docker ps --all --quiet --filter label=com.docker.compose.project") == ""


@pytest.fixture
def runs_and_tuned_files() -> Iterator[None]:
    before = set(RUNS.glob("*"))
    yield
    for folder in set(RUNS.glob("*")) - before:
        shutil.rmtree(folder)
    for path in [*REPOSITORY.glob("*/configs/tuned.pbtxt"), ROOT / "tuned.png"]:
        path.unlink(missing_ok=True)


@pytest.mark.usefixtures("runs_and_tuned_files")
def test_the_load_commands_write_a_report_and_a_configuration_that_serves() -> None:
    [block] = blocks(LOAD, "sh")
    printed = shell(block)
    assert "| short, grpc | 32 in flight |" in printed
    assert "target: p99 60 ms" in printed
    assert (ROOT / "tuned.png").read_bytes().startswith(b"\x89PNG")
    tuned = configuration.read(REPOSITORY, CLASSIFIER, "tuned")
    assert tuned.parameters["intra_op_thread_count"].string_value != "0"
    with EmbeddedServer(REPOSITORY, model_config_name="tuned") as server:
        run = perf_analyzer.run(["Shares fell."], Load(4, concurrency=2), server)
    assert run.models[CLASSIFIER].requests == 4
