"""Steps that go well, fail, crash or hang, for a process that has to import them."""

import os
import subprocess
import sys
import time
from pathlib import Path

from load.gpu_check.record import Point, Record
from text_pipeline.errors import TextPipelineError


def good(record: Record, work: Path) -> None:
    """Measures something and leaves a file for the next step."""
    print("printed")
    record.figure("one", 1)
    record.point(Point("served", "short", 8, 100.0, 5.0))
    record.point(Point("served", "short", 1, 20.0, 2.0))
    record.table("A table", ["what", "n"], [["a | b", "1"]])
    (work / "handed-on").touch()


def failing(record: Record, work: Path) -> None:
    """Fails after it has measured something, and after a step before it."""
    assert (work / "handed-on").exists()
    record.figure("two", 2)
    raise TextPipelineError("the server\ndid not start")


def crashing(record: Record, _: Path) -> None:
    """Takes its process with it."""
    record.figure("three", 3)
    os.abort()


def hanging(record: Record, work: Path) -> None:
    """Starts a process and waits for ever; its last act is seen."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    record.figure("child", child.pid)
    try:
        time.sleep(600)
    finally:
        (work / "cleaned-up").touch()
