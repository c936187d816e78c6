"""The folder of one server, at a path that Triton can do with whatever paths the user has.

Triton's Python backend passes the paths of repository, model and stub through a shell without any
quotes, and the stub's Python knows ASCII only. So Triton gets links in a folder of our own.
"""

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from text_pipeline.errors import TextPipelineError

_PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")
FALLBACKS = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
"""Places for the folder where the user's own for temporary files has no plain path."""


class ServerFolder:
    """A new folder with a plain path, in the first of `places` that allows it."""

    def __init__(self, places: Sequence[Path] | None = None) -> None:
        wanted = places if places is not None else (Path(tempfile.gettempdir()), *FALLBACKS)
        access = os.W_OK | os.X_OK
        plain = [place for place in wanted if is_plain(place) and os.access(place, access)]
        if not plain:
            raise TextPipelineError(
                "the server needs a folder for temporary files that can be written and whose path "
                "has no other characters than A-Z a-z 0-9 / . _ + -: set TMPDIR to one "
                f"(tried {', '.join(map(str, wanted))})"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="text-pipeline-", dir=plain[0])
        self.path = Path(self._folder.name)
        # systemd-tmpfiles removes what is old in /tmp, but not from a folder that is locked.
        self._lock: int | None = os.open(self.path, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def link(self, name: str, target: Path) -> Path:
        """A link of that name in this folder."""
        made = self.path / name
        made.symlink_to(target.absolute())
        return made

    def remove(self) -> None:
        """Removes the folder and its links; what these lead to stays."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._folder.cleanup()


def is_plain(path: Path) -> bool:
    """Whether neither a shell nor an ASCII Python takes the path for anything else."""
    return _PLAIN.fullmatch(str(path)) is not None
