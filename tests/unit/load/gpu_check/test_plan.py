"""What would run on which machine, and what the command says where nothing can."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from load import __main__ as load_command
from load.gpu_check import plan
from load.gpu_check.found import CUDA, DOCKER, GRAPHS, Found, look
from text_pipeline.server.doctor import Finding

CPU = "CPUExecutionProvider"
GPU = Finding("GPU", "NVIDIA T4, driver 580.1, compute capability 7.5")
ENGINE = Finding("Docker", "engine 28.1, Compose 2.38, Buildx 0.26")
TOOLKIT = Finding("Container Toolkit", "1.18.0")
NO_GPU = Finding("GPU", "none", "only needed for `docker compose up` with the GPU image")
NO_ENGINE = Finding("Docker", "none", "not installed: only needed for containers")
NO_TOOLKIT = Finding("Container Toolkit", "none", "Docker cannot hand on the GPU: install it")
OLD_DRIVER = Finding("GPU", "NVIDIA T4, driver 535.2, compute capability 7.5", "update the driver")


@pytest.mark.parametrize(
    "findings, providers, missing, form",
    [
        ([ENGINE, GPU, TOOLKIT], [CUDA, CPU], set(), "A: the GPU image under test and load, and"),
        ([ENGINE, GPU, TOOLKIT], [CPU], {GRAPHS}, "A: the GPU image under test and load, not"),
        ([NO_ENGINE, GPU, NO_TOOLKIT], [CUDA, CPU], {DOCKER}, "B: "),
        ([ENGINE, OLD_DRIVER, TOOLKIT], [CUDA, CPU], {DOCKER}, "B: "),
        ([ENGINE, GPU, NO_TOOLKIT], [CPU], {DOCKER, GRAPHS}, "none"),
    ],
)
def test_the_form_follows_from_what_is_there(findings, providers, missing, form) -> None:
    found = look(lambda: findings, lambda: providers)
    assert set(found.missing) == missing and found.form.startswith(form)
    needs = {step.needs for step in plan.possible(plan.steps(), found)}
    assert needs == {DOCKER, GRAPHS} - missing
    assert (found.problem is None) == bool(needs)


def test_a_gpu_without_nvidia_smi_is_found_by_its_driver(tmp_path: Path) -> None:
    driver = tmp_path / "nvidiactl"
    found = look(lambda: [ENGINE, NO_GPU], lambda: [CUDA, CPU], driver)
    assert not found.gpus and "no NVIDIA GPU" in str(found.problem)
    driver.touch()
    found = look(lambda: [ENGINE, NO_GPU], lambda: [CUDA, CPU], driver)
    assert found.form.startswith("B") and found.problem is None


def test_the_plan_says_minutes_and_what_is_missing() -> None:
    lines = plan.lines(plan.steps(), look(lambda: [NO_ENGINE, GPU], lambda: [CUDA, CPU]))
    said = "\n".join(lines)
    assert "NVIDIA T4" in lines[0] and "about 2 minutes" in lines[1]
    assert "0.4 min  graph packed fp16: " in said
    assert "missing: Docker: not installed" in said
    assert "integration suite" in lines[-1] and "integration suite: pytest" not in said


def test_all_of_it_takes_about_ten_minutes() -> None:
    assert 8 <= sum(step.minutes for step in plan.steps()) <= 13
    assert all(step.limit_s > 60 * step.minutes for step in plan.steps())


def test_without_a_gpu_one_line_says_so_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Found([], {DOCKER: "no engine", GRAPHS: "no CUDA"})
    monkeypatch.setattr(load_command.found, "look", lambda: here)
    results = tmp_path / "results"
    done = CliRunner().invoke(load_command.main, ["gpu", "--results", str(results)])
    assert done.exit_code == 1
    assert done.output.startswith("error: no NVIDIA GPU") and done.output.count("\n") == 1
    assert not results.exists()


def test_a_plan_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = look(lambda: [ENGINE, GPU, TOOLKIT], lambda: [CUDA, CPU])
    monkeypatch.setattr(load_command.found, "look", lambda: here)
    results = tmp_path / "results"
    done = CliRunner().invoke(load_command.main, ["gpu", "--plan", "--results", str(results)])
    assert done.exit_code == 0 and "missing" not in done.output
    assert done.output.count(" min  ") == len(plan.steps())
    assert not results.exists()
