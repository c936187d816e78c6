"""A graph that a configuration runs on another device than it is made for is known beforehand."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from text_pipeline.cli import commands
from text_pipeline.contract import CLASSIFIER, REPORT, REPORT_FORMAT
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import devices
from text_pipeline.repository.versions import Repository
from text_pipeline.server import ports
from text_pipeline.server import serve as serving


def published(path: Path, made_for: str | None) -> Repository:
    """A repository with a version 1 for this device, as far as its report says."""
    repository = Repository(path)
    with repository.publish(1) as staged:
        (staged.classifier / "model.onnx").touch()
        report = {"format": REPORT_FORMAT, "device": made_for}
        (staged.classifier / REPORT).write_text(json.dumps(report))
    repository.use(1)
    return repository


@pytest.mark.parametrize(
    ("made_for", "configuration", "others"),
    [("cpu", "gpu", "cpu"), ("gpu", "cpu", "gpu or latency or tensorrt")],
)
def test_one_line_names_both_devices_and_what_to_do(
    tmp_path: Path, made_for: str, configuration: str, others: str
) -> None:
    (line,) = devices.problems(published(tmp_path, made_for), configuration)
    assert line == (
        f"version 1 was exported for {made_for}, and configuration {configuration} runs it on "
        f"{configuration}: export it with --device {configuration}, or choose "
        f"--model-config-name {others}"
    )


@pytest.mark.parametrize(
    ("made_for", "configuration"),
    [
        ("cpu", "cpu"),
        ("gpu", "gpu"),
        ("gpu", "tensorrt"),
        ("gpu", "latency"),
        ("gpu", "a name without a file"),
    ],
)
def test_the_device_it_is_made_for_is_no_problem(
    tmp_path: Path, made_for: str, configuration: str
) -> None:
    assert not [*devices.problems(published(tmp_path, made_for), configuration)]


@pytest.mark.parametrize("report", ["", "[]", '{"device": null}', '{"device": ["cpu"]}'])
def test_a_report_that_does_not_say_is_no_problem(tmp_path: Path, report: str) -> None:
    repository = published(tmp_path, None)
    (tmp_path / CLASSIFIER / "1" / REPORT).write_text(report)
    assert not [*devices.problems(repository, "gpu")]


def test_a_kind_in_a_comment_or_of_both_devices_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text("# kind: KIND_CPU\ninstance_group [ { kind: KIND_GPU } ]")
    assert devices.device(path) == "gpu"
    path.write_text("instance_group [ { kind: KIND_GPU }, { kind: KIND_CPU } ]")
    assert devices.device(path) is None
    assert devices.device(tmp_path / "none.pbtxt") is None


def test_check_says_it_and_succeeds(tmp_path: Path) -> None:
    published(tmp_path, "cpu")
    arguments = ["check", "--repository", str(tmp_path)]
    assert not CliRunner().invoke(commands, arguments).output
    found = CliRunner().invoke(commands, [*arguments, "--model-config-name", "gpu"])
    assert found.exit_code == 0
    assert found.output.startswith("warning: version 1 was exported for cpu, and configuration gpu")


def test_serve_says_it_before_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []

    def no_server(*_: object, **__: object) -> None:
        messages.append("the server starts")
        raise TextPipelineError("no server here")

    monkeypatch.setattr(serving, "EmbeddedServer", no_server)
    http, grpc, metrics = ports.free_ports(3)
    with pytest.raises(TextPipelineError, match="no server here"):
        serving.serve(
            published(tmp_path, "gpu"), host="127.0.0.1", http_port=http, grpc_port=grpc,
            metrics_port=metrics, model_config_name="cpu", log_path=tmp_path / "log",
            progress=messages.append,
        )  # fmt: skip
    warning, start = messages
    assert warning.startswith("warning: version 1 was exported for gpu")
    assert start == "the server starts"


def test_inspect_names_the_configurations_of_its_device(tmp_path: Path) -> None:
    published(tmp_path, "gpu")
    output = CliRunner().invoke(commands, ["inspect", "--repository", str(tmp_path)]).output
    assert "runs with  config.pbtxt, latency, tensorrt\n" in output


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    repository = published(tmp_path / "models", "gpu").path
    path = repository / CLASSIFIER / "configs" / "tensorrt.pbtxt"
    cache = tmp_path / "cache"
    path.write_text(path.read_text().replace('"/cache"', f'"{cache}"'))
    (line,) = devices.cache_problems(repository, "tensorrt")
    assert line.startswith(f"{cache} is no folder that user ")
    cache.mkdir()
    assert not [*devices.cache_problems(repository, "tensorrt")]
    assert not [*devices.cache_problems(repository, "gpu")]
