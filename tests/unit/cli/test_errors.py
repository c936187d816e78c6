"""Whatever goes wrong in a command is one line and an exit code; --debug adds the traceback."""

import errno

import pytest
from click.testing import CliRunner, Result

from text_pipeline import cli
from text_pipeline.errors import ServerUnreachableError, TextPipelineError
from text_pipeline.repository import inspection


def failing_with(error: Exception, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(inspection, "inspect", fail)
    return CliRunner().invoke(cli.commands, ["inspect", *options])


@pytest.mark.parametrize(
    ("error", "line", "exit_code"),
    [
        (TextPipelineError("what came\nand what to do"), "what came and what to do", 1),
        (ServerUnreachableError("no server"), "no server", 3),
        (OSError(errno.ENOSPC, "No space left", "/a/file"), "/a/file: No space left", 1),
        (OSError(errno.EIO, "I/O error"), "OSError: [Errno 5] I/O error (unexpected", 1),
        (ZeroDivisionError("by zero\nmore"), "ZeroDivisionError: by zero (unexpected: --debug", 1),
        (AssertionError(), "AssertionError (unexpected: --debug shows where", 1),
    ],
)
def test_any_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, line: str, exit_code: int
) -> None:
    done = failing_with(error, monkeypatch)
    assert done.exit_code == exit_code
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"error: {line}")
    shown = failing_with(error, monkeypatch, "--debug")
    assert shown.exit_code == exit_code
    first, *_, last = shown.stderr.splitlines()
    assert (first, last) == ("Traceback (most recent call last):", said)


@pytest.mark.parametrize("name", sorted(cli.commands.commands))
def test_every_command_has_the_option(name: str) -> None:
    assert "--debug" in CliRunner().invoke(cli.commands, [name, "--help"]).output
