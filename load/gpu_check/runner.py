"""Runs steps one after the other, each in a process of its own that ends in time.

A graph that hangs, or takes the process with it, costs its own step and nothing else; and the GPU's
memory is free again for the next one.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from load.gpu_check.record import Record
from text_pipeline.errors import TextPipelineError, cause

GRACE_S = 60.0
"""For a step that is told to end: its containers have 20 s to stop."""
Run = Callable[[Record, Path], None]
"""A step's work: fills a record; the folder is for files that the next steps need."""


@dataclass(frozen=True)
class Step:
    """Something to do that measures figures; `run` is picklable."""

    name: str
    shows: str
    """What it does, for --plan and the report."""
    minutes: float
    """Estimate, on a machine with a current GPU."""
    limit_s: float
    run: Run
    needs: str
    """found.DOCKER or found.GRAPHS."""
    figures: Sequence[str] = ()
    """What it measures."""

    @property
    def slug(self) -> str:
        """For file names."""
        return self.name.replace(" ", "-")


@dataclass(frozen=True)
class Outcome:
    """A step that ran."""

    step: Step
    seconds: float
    record: Record


def run(
    steps: Sequence[Step], folder: Path, work: Path, progress: Callable[[str], None]
) -> Iterator[Outcome]:
    """Runs `steps`; records and logs lie in `folder`, what is given on to other steps in `work`."""
    (folder / "steps").mkdir(exist_ok=True)
    for number, step in enumerate(steps, start=1):
        progress(f"step {number} of {len(steps)}, about {step.minutes:g} min: {step.name}")
        began = time.monotonic()
        record = _run(step, folder / "steps" / step.slug, work)
        seconds = time.monotonic() - began
        if record.error:
            progress(f"{step.name} failed: {record.error}")
        yield Outcome(step, seconds, record)


def _run(step: Step, base: Path, work: Path) -> Record:
    """Runs one step to its end or its limit."""
    path, log = base.with_suffix(".json"), base.with_suffix(".log")
    # Forked, a child could not use CUDA or ONNX Runtime if this process had.
    process = multiprocessing.get_context("spawn").Process(
        target=_child, args=(step.run, path, log, work)
    )
    process.start()
    try:
        process.join(step.limit_s)
        late = process.is_alive()
    finally:
        _end(process)
    record = Record.read(path)
    if late:
        record.error = f"not done within {step.limit_s:.0f} s: ended"
    elif process.exitcode and record.error is None:
        record.error = f"its process ended with code {process.exitcode}, see steps/{log.name}"
    return record


def _end(process: BaseProcess) -> None:
    """Ends a child that still runs, and whatever it started."""
    if process.is_alive():
        process.terminate()
        process.join(GRACE_S)
    if process.exitcode != 0 and process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            # The child made a group of its own, of its own number: what is left of it ends, too.
            os.killpg(process.pid, signal.SIGKILL)
    process.join()


def _child(run: Run, path: Path, log: Path, work: Path) -> None:
    os.setpgid(0, 0)
    # What libraries print belongs to nobody's terminal.
    with log.open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    # As an exception, so that containers stop and files go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"ended: its time was over ({path.stem})"))
    record = Record(path)
    try:
        run(record, work)
    except Exception as error:
        record.failed(str(error) if isinstance(error, TextPipelineError) else cause(error))
        raise
