"""The integration suite against the GPU image, in a copy of this project with an exported model.

The suite serves the model repository beside it, which on this machine may hold another model, or
one for CPU; so it gets a copy of the project, and nothing here is touched.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from load.gpu_check.compose import ROOT
from load.gpu_check.record import Record
from load.gpu_check.served_steps import repository_of
from text_pipeline.errors import TextPipelineError

SERVERS = {"gpu": "gpu", "cpu": "container"}
"""By device: what `pytest --server` calls it."""
COPIED = ("text_pipeline", "tests", "docker", "pyproject.toml", "requirements.lock", "README.md",
          ".dockerignore", "compose.yaml", "deploy", "load", "scripts", "Makefile")  # fmt: skip
LEFT = shutil.ignore_patterns("__pycache__", "runs", ".venvs")
STOP_S = 40
"""For pytest to stop its containers, who have 20."""
SHOWN = 20
"""Failed tests in the report; the rest is in the log."""


def run(device: str, precision: str, record: Record, work: Path) -> None:
    """Runs tests/integration; how many passed and failed, and which."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        copy, results = Path(folder) / "project", Path(folder) / "suite.xml"
        copy.mkdir(mode=0o755)
        Path(folder).chmod(0o755)  # the container's user is another one
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=LEFT)
            elif source.exists():
                shutil.copy(source, copy / name)
        shutil.copytree(repository_of(work, "packed", precision), copy / "model_repository")
        command = [
            sys.executable, "-m", "pytest", "--server", SERVERS[device], "tests/integration",
            "--junitxml", str(results), "-p", "no:cacheprovider", "-q",
        ]  # fmt: skip
        # Else the copy's tests would import the package that is installed.
        environment = os.environ | {"PYTHONPATH": str(copy)}
        with subprocess.Popen(command, cwd=copy, env=environment) as process:
            try:
                code = process.wait()
            finally:
                _end(process)
        if not results.is_file():
            raise TextPipelineError(
                f"pytest ran no test and ended with code {code}; the log says why"
            )
        note(results, record)


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C would, if it still runs: pytest then stops its containers."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()


def note(results: Path, record: Record) -> None:
    """Notes what a JUnit file of pytest says."""
    cases = list(ET.parse(results).getroot().iter("testcase"))
    failed = [
        (f"{case.get('classname')}::{case.get('name')}", problem.get("message") or "")
        for case in cases
        for problem in case
        if problem.tag in ("failure", "error")
    ]
    names = {name for name, _ in failed}
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    record.figure("suite failed", len(names))
    record.figure("suite passed", len(cases) - len(names) - skipped)
    if failed:
        rows = [[name, " ".join(message.split())[:200]] for name, message in failed[:SHOWN]]
        record.table("Integration tests that failed", ["test", "message"], rows, words=2)
