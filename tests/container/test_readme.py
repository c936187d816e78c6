"""The README's commands for containers do what it says."""

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from tests import tiny_models
from tests.test_readme import CONTAINERS, ROOT, SHELL, assert_as_shown, blocks, shell
from text_pipeline.export.exporter import export_model
from text_pipeline.repository import Repository

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
