"""Front ends get what the server has options for, and nothing that it would end at."""

from pathlib import Path

import pytest

from text_pipeline.server import frontends, installation
from text_pipeline.server.installation import Installation
from text_pipeline.server.places import ServerFolder

NAMES = ("http-thread-count", "grpc-infer-thread-count", "http-max-input-size")


def server(folder: Path, *names: str) -> Installation:
    """A program that says what options it has as tritonserver does: on stderr, and then fails."""
    usage = "".join(f"  --{name} <integer>\n\tBeside --another.\n" for name in names)
    binary = folder / "tritonserver"
    binary.write_text(
        f"#!/bin/sh\ncat >&2 <<'EOF'\nUsage: tritonserver [options]\n{usage}EOF\nexit 1\n"
    )
    binary.chmod(0o755)
    return Installation(binary, folder, {"PATH": "/bin:/usr/bin"})


def given(found: Installation, *extra: str) -> dict[str, int]:
    arguments = (argument.removeprefix("--") for argument in frontends.arguments(found, extra))
    return {name: int(value) for name, value in (a.split("=") for a in arguments)}


@pytest.mark.parametrize(
    ("cores", "http", "grpc"), [(1, 8, 2), (2, 8, 2), (8, 8, 2), (16, 16, 4), (128, 32, 16)]
)
def test_threads_follow_the_cores_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, http: int, grpc: int
) -> None:
    monkeypatch.setattr(frontends, "usable_cores", lambda: cores)
    assert given(server(tmp_path, *NAMES)) == {
        "http-thread-count": http,
        "grpc-infer-thread-count": grpc,  # Triton refuses less than 2 and more than 128
        "http-max-input-size": 256 * 2**20,
    }


def test_an_option_that_the_program_does_not_have_is_not_given(tmp_path: Path) -> None:
    old = server(tmp_path, "http-thread-count", "http-max-input-size-of-others", "http-max-input")
    assert given(old).keys() == {"http-thread-count"}


def test_what_the_user_says_stands_alone(tmp_path: Path) -> None:
    found = given(
        server(tmp_path, *NAMES), "--http-max-input-size=1000", "--grpc-infer-thread-count", "4"
    )
    assert found.keys() == {"http-thread-count"}


def test_a_program_that_says_nothing_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontends, "HELP_TIMEOUT_S", 0.1)
    found = server(tmp_path, *NAMES)
    found.binary.write_text("#!/bin/sh\nexec sleep 5\n")
    assert given(found) == {}


def test_the_wheels_server_is_asked() -> None:
    folder = ServerFolder()
    try:
        # Of Triton 2.51; that it starts with it the other tests show.
        assert given(installation.create(folder)).keys() == {"http-thread-count"}
    finally:
        folder.remove()
