"""`pytest --server ...` on a machine that lacks what it needs says so at once."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import containers

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
