"""An export says what it does: lines everywhere, a bar with the time left on a terminal."""

from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from rich.console import Console

from text_pipeline.cli import display
from text_pipeline.export import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Iterator[int]]:
    """A hundred items of two seconds each."""
    seconds = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds)

    def items() -> Iterator[int]:
        nonlocal seconds
        for item in range(100):
            seconds += 2
            yield item

    return items


def test_long_step_is_never_silent_and_says_the_time_left(clock) -> None:
    said: list[str] = []
    assert list(progress.in_lines(said.append)(clock(), 100)) == list(range(100))
    assert len(said) == 12  # one every 16 of 200 s
    assert said[0] == "  8%, about 184 s left"


def test_short_step_says_nothing_of_its_own() -> None:
    said: list[str] = []
    assert list(progress.in_lines(said.append)("abc", 3)) == ["a", "b", "c"]
    assert said == []


def test_terminal_shows_step_share_and_time_left() -> None:
    shown = StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    with display.steps(console) as (say, track):
        say("comparing 4 texts with [bold] PyTorch")
        assert track is not None
        assert list(track("abcd", 4)) == ["a", "b", "c", "d"]
    assert "comparing 4 texts with [bold] PyTorch\n" in shown.getvalue().replace("\r", "")
    assert "100%" in shown.getvalue()


def test_pipe_gets_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with display.steps(Console(file=StringIO())) as (say, track):
        say("loading")
    assert track is None
    assert capsys.readouterr().out == "loading\n"
