"""`pytest --server ...` on a machine that lacks what it needs says so at once."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests import containers
from tests.closeness import Closeness

ROOT = Path(__file__).parents[2]


def run(target: str, **environment: str) -> str:
    """What pytest prints when it refuses to start."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--server", target, "tests/integration/test_health.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | environment,
    )  # fmt: skip
    assert time.monotonic() - started < 30
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    return done.stderr


@pytest.mark.parametrize("target", ["container", "gpu"])
def test_no_engine_is_a_failure(target: str, tmp_path: Path) -> None:
    said = run(target, DOCKER_HOST=f"unix://{tmp_path}/no.sock")
    assert f"--server {target} needs a Docker engine" in said


@pytest.mark.skipif(containers.GPU_DRIVER.exists(), reason="needs a machine without a GPU")
def test_no_gpu_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    # The engine is there or not, the GPU is not.
    monkeypatch.setattr(containers.docker, "from_env", lambda: Engine())
    with pytest.raises(pytest.UsageError, match="needs an NVIDIA GPU"):
        containers.check("gpu")


class Engine:
    """Enough of a Docker client."""

    def ping(self) -> None:
        """It answers."""

    def close(self) -> None:
        """Nothing is open."""


def test_an_unknown_server_is_named() -> None:
    assert "--server somewhere: expected 'embedded', 'container'" in run("somewhere")


@pytest.mark.parametrize(
    ("server", "exported_for"), [("gpu", "cpu"), ("embedded", "gpu"), ("container", "gpu")]
)
def test_a_model_of_another_device_is_refused_in_one_line(server: str, exported_for: str) -> None:
    with pytest.raises(pytest.UsageError) as raised:
        containers.check_export(server, {"device": exported_for})
    expected = "gpu" if server == "gpu" else "cpu"
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"--server {server} needs a model that was exported for {expected}, ")
    assert f"exported for {exported_for}: " in line and f"--device {expected} " in line


def test_a_model_of_its_device_or_none_yet_is_taken() -> None:
    containers.check_export("gpu", {"device": "gpu"})
    containers.check_export("container", {"device": "cpu"})
    containers.check_export("gpu", {})


LABELS = ["a", "b", "c"]
PROBABILITIES = np.array([0.5, 0.3, 0.2])


@pytest.mark.parametrize(
    ("precision", "difference", "is_close"),
    [
        ("fp32", 0.9e-4, True),
        ("fp32", 1.2e-4, False),
        ("int8", 1.2e-4, False),
        ("fp16", 0.1, True),  # of logits of 4
        ("fp16", 0.13, False),
    ],
)
def test_answers_are_as_close_as_the_precision_allows(
    precision: str, difference: float, is_close: bool
) -> None:
    logits = np.array([4.0, -1.0], np.float64)
    failure = contextlib.nullcontext() if is_close else pytest.raises(AssertionError)
    with failure:
        Closeness.of(precision).check(logits + difference, logits, 1e-4)


def test_only_fp16_may_swap_classes_and_only_near_ones() -> None:
    near = np.array([0.5, 0.46, 0.04])
    Closeness.of("fp16").check_order(["b", "a", "c"], LABELS, near)
    with pytest.raises(AssertionError):
        Closeness.of("fp32").check_order(["b", "a", "c"], LABELS, near)
    for wrong in (["b", "a", "c"], ["a", "b", "b"]):
        with pytest.raises(AssertionError):
            Closeness.of("fp16").check_order(wrong, LABELS, PROBABILITIES)
    for precision in ("fp32", "fp16"):
        Closeness.of(precision).check_order(LABELS, LABELS, PROBABILITIES)
