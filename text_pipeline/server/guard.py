"""What is left when a server or its parent is killed: stubs, shared memory, a temporary folder."""

import shlex
import subprocess
from pathlib import Path


def start(server: int, folder: Path, shared_memory: str) -> subprocess.Popen[bytes]:
    """A process that waits for the end of `server`, a process group, and clears up behind it.

    It outlives this one and the server, and is ended when they have cleared up themselves. Triton's
    stubs notice a dead server, but stay in a lock that a metric on its way holds: of a server 2.51
    that was killed under load, all of them did. `shared_memory` is a glob pattern.
    """
    commands = (
        f"tail --pid={server} -f /dev/null",
        f"kill -s KILL -- -{server}",
        f"rm -rf {shlex.quote(str(folder))} {shared_memory}",
    )
    return subprocess.Popen(
        ["sh", "-c", "; ".join(commands)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C or a signal to the parent's group is not for it
    )
