"""The server as a child process: what it starts with, and which of its own children have died."""

import ctypes
import resource
import signal
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Triton 2.51 reads JSON with a recursion of 272 bytes a level: the usual 8 MB, which is also its
# threads', end at 30,000 levels, and the server with them. Only what is used takes memory.
_STACK_BYTES = 256 << 20
# Every connection is one, and a shell's usual 1024 are fewer than the clients of a busy service.
_OPEN_FILES = 65536


def prepare() -> Callable[[], None]:
    """A call for the child: higher limits, and SIGTERM when the parent is gone."""
    libc = ctypes.CDLL(None)
    limits = {
        resource.RLIMIT_STACK: _limit(resource.RLIMIT_STACK, _STACK_BYTES),
        resource.RLIMIT_NOFILE: _limit(resource.RLIMIT_NOFILE, _OPEN_FILES),
    }

    def run() -> None:
        for name, limit in limits.items():
            resource.setrlimit(name, limit)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return run


def dead_children(parent: int) -> set[int]:
    """Processes that have ended and that their parent has not asked about yet."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text(errors="replace")
        except OSError:  # it is gone
            continue
        # pid (name, which may hold anything) state parent …
        state, its_parent = stat.rpartition(")")[2].split()[:2]
        if state == "Z" and int(its_parent) == parent:
            found.add(int(path.parent.name))
    return found


def _limit(name: int, wanted: int) -> tuple[int, int]:
    """What a process may set without being root: `wanted` or as much as it may, and that."""
    _, most = resource.getrlimit(name)
    return (wanted if most == resource.RLIM_INFINITY else min(wanted, most)), most
