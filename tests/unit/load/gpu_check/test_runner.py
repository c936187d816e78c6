"""Steps run apart from each other, and end in time."""

import time
from collections.abc import Callable
from pathlib import Path

import psutil

from load.gpu_check import runner
from load.gpu_check.found import GRAPHS
from load.gpu_check.record import Record
from load.gpu_check.runner import Step
from tests.unit.load.gpu_check import working


def step(run: Callable[[Record, Path], None], limit_s: float = 60) -> Step:
    return Step(run.__name__, "shows", 0.1, limit_s, run, GRAPHS)


def test_a_step_that_fails_or_crashes_costs_only_itself(tmp_path: Path) -> None:
    folder, work = tmp_path / "results", tmp_path / "work"
    folder.mkdir(), work.mkdir()
    said: list[str] = []
    steps = [step(working.crashing), step(working.good), step(working.failing)]
    crashed, good, failed = runner.run(steps, folder, work, said.append)
    assert crashed.record.figures == {"three": 3}
    assert crashed.record.error == ("its process ended with code -6, see steps/crashing.log")
    assert good.record.error is None and good.record.figures == {"one": 1}
    assert [point.x for point in good.record.points] == [8, 1]
    assert (folder / "steps" / "good.log").read_text() == "printed\n"
    assert failed.record.figures == {"two": 2}
    assert failed.record.error == "the server did not start"
    assert said[0] == "step 1 of 3, about 0.1 min: crashing"
    assert said[-1] == "failing failed: the server did not start"
    assert not [path for path in folder.rglob("*") if path.name.endswith(".new")]


def test_a_step_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    [hung] = runner.run([step(working.hanging, 4)], tmp_path, tmp_path, lambda _: None)
    assert 4 <= time.monotonic() - began < 30
    assert hung.record.error == "not done within 4 s: ended"
    # It could tidy up, and what it had measured is there.
    assert (tmp_path / "cleaned-up").exists()
    assert ends(int(hung.record.figures["child"]))


def ends(pid: int) -> bool:
    """Whether a process has ended, or does so soon."""
    for _ in range(50):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False
