"""Every command of the README does what the README says."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests import tiny_models

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# These need a Docker engine: tests/container/test_readme.py runs their commands.
_SECTIONS = [README.index(f"\n## {title}\n") for title in ("Containers", "Load", "Monitoring")]
CONTAINERS, LOAD = (README[start:end] for start, end in itertools.pairwise(_SECTIONS))


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


SHELL = blocks(README.replace(CONTAINERS, "").replace(LOAD, ""), "sh")
SHOWN_ANSWER = json.loads(blocks(README, "json")[0])
# This test is part of `make test`, and .ci/run calls `make lint`.
RUN_BY_CI = "make lint\nmake test\n"
NUMBERS = ("scores", "probabilities", "logits")
MADE_FILES = (
    "my-model",
    "my-repository",
    "int8-repository",
    "texts.jsonl",
    "labels.jsonl",
    "embeddings.npy",
    "labelled.jsonl",
    "evaluation",
)


def shell(block: str) -> str:
    """The output of a block of commands, every one of which must succeed."""
    script = f"set -euo pipefail\n{block}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{block}\n{done.stderr}"
    return done.stdout


def assert_as_shown(answer: dict) -> None:
    """The answer to the first request; four digits are shown, the last may differ by machine."""
    assert {key: answer[key] for key in SHOWN_ANSWER} == {
        key: pytest.approx(value, abs=2e-4) if key in NUMBERS else value
        for key, value in SHOWN_ANSWER.items()
    }


class Running:
    """A command of the README that serves until it is interrupted."""

    def __init__(self, command: str) -> None:
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("stop:"):
                return
        raise AssertionError(f"{command} ended: {''.join(self.lines)}")

    def interrupt(self) -> str:
        """Ctrl-C, and what is printed after it; ends within 15 s."""
        # As a terminal does it: to the whole foreground group.
        os.killpg(self.process.pid, signal.SIGINT)
        try:
            rest, _ = self.process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise
        return rest


@pytest.fixture(autouse=True)
def made_files():
    remove_made_files()  # of a run that was killed
    yield
    remove_made_files()


def remove_made_files() -> None:
    for name in MADE_FILES:
        path = ROOT / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.mark.timeout(600)  # the int8 export compares a thousand texts
def test_every_command_works_as_shown() -> None:
    serve, first_request, many, evaluation, protocol, own_model, look, int8, development = SHELL
    assert development == RUN_BY_CI
    regions = set(Path("/dev/shm").iterdir())
    server = Running(serve)
    try:
        answer = json.loads(shell(first_request))
        assert_as_shown(answer)
        tried = next(line.removeprefix("try:") for line in server.lines if line.startswith("try:"))
        assert json.loads(shell(tried)) == answer

        rows = [json.loads(line) for line in shell(many).splitlines()]
        assert [row["label"] for row in rows] == [
            "sport", "business", "business", "entertainment",
        ]  # fmt: skip
        row = json.loads((ROOT / "labels.jsonl").read_text())
        assert (row["id"], row["label"]) == (7, "tech")
        assert np.load(ROOT / "embeddings.npy").shape == (1, 384)

        assert "2 texts of labelled.jsonl" in shell(evaluation)
        report = json.loads((ROOT / "evaluation" / "report.json").read_text())
        assert report["models"][0]["measures"]["accuracy"] == 1

        labels, embedding = shell(protocol).replace("}{", "}\n{").splitlines()
        assert {o["name"] for o in json.loads(labels)["outputs"]} == {"labels", "scores"}
        assert len(json.loads(embedding)["embedding"]) == 384

        tiny_models.roberta(ROOT / "my-model")
        export, serve_own = own_model.splitlines()
        shell(export)
        own = Running(serve_own)
        elsewhere = first_request.replace(":8000", ":9000")
        assert json.loads(shell(elsewhere))["labels"][0].startswith("LABEL_")
        assert "stopped" in own.interrupt()

        shown = shell(look)
        assert "version 1 is in use" in shown and "damaged" not in shown
        assert re.search(r"^ok +ports +http 9000, grpc 9001", shown, re.MULTILINE)

        assert "int8 for cpu" in shell(int8)
        own = Running(serve_own.replace("my-repository", "int8-repository"))
        answer = json.loads(shell(elsewhere))
        assert answer["labels"][0] == SHOWN_ANSWER["labels"][0]
        assert answer["probabilities"] == pytest.approx(SHOWN_ANSWER["probabilities"], abs=0.1)
        assert "stopped" in own.interrupt()
    finally:
        rest = server.interrupt()
    assert "stopped" in rest
    assert set(Path("/dev/shm").iterdir()) == regions
