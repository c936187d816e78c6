"""The processor time of a server's processes, by what they do."""

from collections.abc import Mapping
from pathlib import Path

import psutil

from text_pipeline.contract import CLASSIFIER, TOKENIZER
from text_pipeline.measure.perf_analyzer import Server
from text_pipeline.server.tritonserver import EmbeddedServer

_SERVER = "tritonserver"
"""Its front ends, ensemble and schedulers."""
_STUB = "triton_python_backend_stub"


def seconds(server: Server) -> Mapping[str, float]:
    """User and system time so far, of all instances; empty for a server that runs elsewhere.

    The kernel's own counters, in hundredths of a second: noise of the machine moves them less than
    it moves the clock.
    """
    if not isinstance(server, EmbeddedServer):
        return {}
    spent = dict.fromkeys((_SERVER, TOKENIZER, CLASSIFIER), 0.0)
    main = psutil.Process(server.pid)
    for process in [main, *main.children(recursive=True)]:
        try:
            times = process.cpu_times()
            spent[_name(process.cmdline())] += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return spent


def _name(command: list[str]) -> str:
    """The model of a Python stub, or _SERVER."""
    if not command or Path(command[0]).name != _STUB:
        return _SERVER
    return TOKENIZER if TOKENIZER in command[1] else CLASSIFIER
