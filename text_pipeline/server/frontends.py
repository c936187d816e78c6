"""How many threads tritonserver's HTTP and gRPC have, and how large a request may be.

Options come with versions (pull requests of triton-inference-server/server): gRPC's threads with
8061 of March 2025, HTTP's largest request with 8174 of April 2025. Triton 2.51 has neither and ends
at an option that it does not know, so the program is asked which it has.
"""

import re
import subprocess
from collections.abc import Sequence

from text_pipeline.server.cores import usable_cores
from text_pipeline.server.installation import Installation

MAX_HTTP_REQUEST_BYTES = 256 * 2**20
"""Triton's own limit, where it has one, is 64 MiB, less than one text may have; gRPC's is 2 GiB."""
HELP_TIMEOUT_S = 10
"""It takes Triton 2.51 12 ms to say what options it has."""


def arguments(server: Installation, given: Sequence[str]) -> list[str]:
    """Options for a tritonserver, without those that the user has `given`.

    Triton's own 8 and 2 threads stay on up to 8 cores; nobody has measured more on more. gRPC's
    read and write for all callers.
    """
    cores = usable_cores()
    wanted = {
        "http-thread-count": min(max(8, cores), 32),
        "grpc-infer-thread-count": min(max(2, cores // 4), 16),
        "http-max-input-size": MAX_HTTP_REQUEST_BYTES,
    }
    theirs = {argument.removeprefix("--").partition("=")[0] for argument in given}
    known = _options(server)
    return [f"--{name}={value}" for name, value in wanted.items() if name in known - theirs]


def _options(server: Installation) -> set[str]:
    """The names of a program's options; none if it does not say."""
    try:
        shown = subprocess.run(
            [server.binary, "--help"],
            env=server.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=HELP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return set()
    return set(re.findall(r"^ *--([\w-]+)", shown.stdout.decode(errors="replace"), re.MULTILINE))
