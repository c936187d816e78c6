"""What a tritonserver prints: where it goes, and what in it says why the server failed."""

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STDOUT = Path("-")
"""In place of a file: what the server prints is passed on."""
_RECENT_LINES = 1000
_LAST_WORDS = 4
# E1130 05:30:36.595092 6900 server.cc:241] "message"
_LOGGED_ERROR = re.compile(r'E\d{4} [^\]]*\] "(.*)"$')
# Any line of Triton's own; what it does not begin, its Python processes and their shell print.
_LOGGED = re.compile(r"[IWEF]\d{4} ")
_FAILED_LOAD = "failed to load"
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
        self._called: Mapping[str, str] = {}

    def run(
        self, command: Sequence[str], called: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Starts `command`, whose output is this log.

        `called` has the user's names for paths that the command is given.
        """
        self._called = called or {}
        heading = "".join(f"{path} is {name}\n" for path, name in self._called.items())
        if self.path != STDOUT:
            with self.path.open("wb", buffering=0) as file:
                file.write(os.fsencode(heading))
                return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **options)
        sys.stdout.buffer.write(os.fsencode(heading))
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
        )
        self._passing_on = threading.Thread(target=self._pass_on, args=[process], daemon=True)
        self._passing_on.start()
        return process

    def errors(self) -> str:
        """What the log says went wrong, or its last line; with what to do where that is known."""
        lines = [line for line in self._all_lines() if not _HARMLESS.search(line)]
        errors = [match[1] for line in lines if (match := _LOGGED_ERROR.match(line))]
        # An ensemble's error repeats the error of the model it depends on.
        causes = [error for error in errors if _FAILED_LOAD in error] or errors or lines[-1:]
        message = self._in_the_users_words("; ".join(causes))
        return f"{message} ({_NO_GPU_REMEDY})" if _NO_GPU in message else message

    def has_failed_load(self) -> bool:
        """Whether the server, which may be running, has said that a model does not load."""
        return any(
            _FAILED_LOAD in match[1]
            for line in self._lines()
            if (match := _LOGGED_ERROR.match(line))
        )

    def last_words(self) -> str:
        """The last lines that are not Triton's own, without repetitions."""
        not_its_own = [
            line.strip()
            for line in self._lines()
            if line.strip() and not line.startswith(tuple(self._called)) and not _LOGGED.match(line)
        ]
        return self._in_the_users_words("; ".join(dict.fromkeys(not_its_own[-_LAST_WORDS:])))

    def _in_the_users_words(self, text: str) -> str:
        for path, name in self._called.items():
            text = text.replace(path, name)
        return text

    def _all_lines(self) -> list[str]:
        if self._passing_on is not None:
            # The last lines of a server that has just ended may still be on their way.
            self._passing_on.join(timeout=1)
        return self._lines()

    def _lines(self) -> list[str]:
        if self._passing_on is None:
            return self.path.read_text(errors="replace").splitlines()
        return b"".join(self._recent).decode(errors="replace").splitlines()

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._recent.append(line)
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
