"""Threads of a configuration for CPU behind Triton's own ONNX Runtime backend."""

import re
from pathlib import Path

from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import devices
from text_pipeline.server.cores import usable_cores

CPP_BACKEND = Path("backends", "onnxruntime", "libtriton_onnxruntime.so")
_COUNT = re.compile(r"\bcount: *(\d+)\s+kind: *KIND_CPU")
_THREADS = re.compile(r'"intra_op_thread_count"\s+value:? *{\s*string_value: *"(\d+)"')


def check(repository: Path, configuration: str, triton: Path) -> None:
    """Raises TextPipelineError if the C++ backend would give every instance a thread per core."""
    path = devices.classifier_path(repository, configuration)
    text = devices.without_comments(path)
    instances = sum(map(int, _COUNT.findall(text)))
    threads = _THREADS.search(text)
    if not instances or (threads and int(threads[1])) or not (triton / CPP_BACKEND).is_file():
        return
    share = max(1, usable_cores() // instances)
    raise TextPipelineError(
        f"{path}: write {share} for intra_op_thread_count, the usable cores divided by the "
        f"{instances} instances. With 0, or without it, Triton's C++ backend gives each of them a "
        "thread per core, which costs 40 % on short texts"
    )
