"""What a tritonserver prints: where it goes, and what in it says why the server failed."""

import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STDOUT = Path("-")
"""In place of a file: what the server prints is passed on."""
_RECENT_LINES = 1000
# E1130 05:30:36.595092 6900 server.cc:241] "message"
_LOGGED_ERROR = re.compile(r'E\d{4} [^\]]*\] "(.*)"$')
# What every start without a GPU logs as errors, though nothing is wrong.
_HARMLESS = re.compile("CudaDriverHelper|CUDA driver version is insufficient")
# Triton refuses KIND_GPU itself where it finds no GPU, before any backend is asked.
_NO_GPU = "invalid or unsupported gpu id"
_NO_GPU_REMEDY = (
    "the model asks for a GPU: start the server with --model-config-name=cpu, for which the model "
    "needs a configs/cpu.pbtxt"
)


class ServerLog:
    """The log of one server, in the file `path` or on standard output (STDOUT)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._recent: deque[bytes] = deque(maxlen=_RECENT_LINES)
        self._passing_on: threading.Thread | None = None

    def run(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts `command`, whose output is this log."""
        if self.path != STDOUT:
            with self.path.open("wb") as file:
                return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **options)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
        )
        self._passing_on = threading.Thread(target=self._pass_on, args=[process], daemon=True)
        self._passing_on.start()
        return process

    def errors(self) -> str:
        """What the log says went wrong, or its last line; with what to do where that is known."""
        lines = [line for line in self._lines() if not _HARMLESS.search(line)]
        errors = [match[1] for line in lines if (match := _LOGGED_ERROR.match(line))]
        # An ensemble's error repeats the error of the model it depends on.
        causes = [error for error in errors if "failed to load" in error] or errors or lines[-1:]
        message = "; ".join(causes)
        return f"{message} ({_NO_GPU_REMEDY})" if _NO_GPU in message else message

    def _lines(self) -> list[str]:
        if self._passing_on is None:
            return self.path.read_text(errors="replace").splitlines()
        # The last lines of a server that has just ended may still be on their way.
        self._passing_on.join(timeout=1)
        return b"".join(self._recent).decode(errors="replace").splitlines()

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._recent.append(line)
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
