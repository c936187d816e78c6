"""The server where there is no space: in the temporary folder, in shared memory."""

import sys
from pathlib import Path

from tests.places import run_in
from tests.unit.onnx_backend import ragged_model
from text_pipeline.repository.versions import STATIC_REPOSITORY

# A server whose log is elsewhere; `ask` prints what became of a request of so many numbers.
SERVE = """
import os, sys
from pathlib import Path
import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException
from tests.unit.server.test_tritonserver import infer, make_server

repository, log, place = map(Path, sys.argv[1:])

def ask(numbers):
    try:
        infer(client, np.ones((1, numbers)))
        print("answered", flush=True)
    except InferenceServerException as error:
        print(error.message(), flush=True)

def fill():
    with (place / "fill").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return place / "fill"

with make_server(repository, log_path=log) as server:
    with triton.InferenceServerClient(server.grpc_url) as client:
        ask(1)
        filled = fill()
        ask(1)
        ask(2_000_000)
        ask(1)
        filled.unlink()
        ask(2_000_000)
"""


def outcomes(place: Path, size: str, folder: Path, temporary: Path) -> list[str]:
    repository = ragged_model.write(folder / "models", ragged_model.config())
    arguments = [str(repository), str(folder / "log"), str(place)]
    command = ["env", f"TMPDIR={temporary}", sys.executable, "-c", SERVE, *arguments]
    done = run_in(place, f"size={size}", command)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_no_space_for_the_temporary_folder_ends_the_start_with_the_file(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("text-pipeline")
    done = run_in(
        tmp_path,
        "size=1M",
        [
            "env",
            f"TMPDIR={tmp_path}",
            str(command),
            "serve",
            "--repository",
            str(STATIC_REPOSITORY),
        ],
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path}/text-pipeline-")
    assert line.endswith(": No space left on device")


def test_a_full_temporary_folder_keeps_nobody_from_being_answered(tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    assert outcomes(place, "8M", tmp_path, temporary=place) == ["answered"] * 5


def test_a_request_too_large_for_shared_memory_fails_alone(tmp_path: Path) -> None:
    before, small, large, after, afterwards = outcomes(
        Path("/dev/shm"), "16M", tmp_path, temporary=tmp_path
    )
    assert before == small == after == afterwards == "answered"
    assert "Failed to increase the shared memory pool" in large
    assert "No space left on device" in large
