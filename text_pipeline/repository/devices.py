"""What a graph was exported for, and what a configuration runs it on.

No protobuf here: the GPU image, where this matters, has none.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from text_pipeline.contract import CLASSIFIER
from text_pipeline.repository.versions import Repository

DEFAULT = "config.pbtxt"
_COMMENT = re.compile(r"#.*")
_KIND = re.compile(r"\bkind: *KIND_(CPU|GPU)\b")
_CACHE = re.compile(r'"trt_\w+_cache_path"\s+value: *"([^"]+)"')


def classifier_path(repository: Path, configuration: str) -> Path:
    """The file that Triton takes with --model-config-name=`configuration`."""
    model = repository / CLASSIFIER
    path = model / "configs" / f"{configuration}.pbtxt"
    return path if path.is_file() else model / DEFAULT


def without_comments(path: Path) -> str:
    """A configuration's text; empty if there is none."""
    return _COMMENT.sub("", path.read_text(encoding="utf-8")) if path.is_file() else ""


def device(path: Path) -> str | None:
    """ "cpu" or "gpu", if all instances of a configuration are of that kind."""
    kinds = set(_KIND.findall(without_comments(path)))
    return kinds.pop().lower() if len(kinds) == 1 else None


def fitting(repository: Path, exported_for: str) -> list[str]:
    """Names of the classifier's configurations that run a graph on the device it is made for."""
    model = repository / CLASSIFIER
    paths = [model / DEFAULT, *sorted(model.glob("configs/*.pbtxt"))]
    return [
        DEFAULT if path.name == DEFAULT else path.stem
        for path in paths
        if device(path) == exported_for
    ]


def problems(repository: Repository, configuration: str) -> Iterator[str]:
    """One line for each version that `configuration` runs on another device than it is made for.

    The version in use, or all that are loaded if that cannot be told. A packed graph for CPU has a
    loop over lengths, for which a GPU waits; one for GPU has operators that are for CUDA alone.
    """
    in_use = repository.version_in_use()
    versions: Sequence[int] = repository.loaded() if in_use is None else [in_use]
    runs_on = device(classifier_path(repository.path, configuration))
    for version in versions:
        made_for = (repository.report(version) or {}).get("device")
        if runs_on and made_for in ("cpu", "gpu") and made_for != runs_on:
            # Any name without a file of its own means config.pbtxt.
            names = ["gpu" if n == DEFAULT else n for n in fitting(repository.path, made_for)]
            others = f", or choose --model-config-name {' or '.join(names)}" if names else ""
            yield (
                f"version {version} was exported for {made_for}, and configuration "
                f"{configuration} runs it on {runs_on}: export it with --device {runs_on}{others}"
            )


def cache_problems(repository: Path, configuration: str) -> Iterator[str]:
    """One line for each folder that the configuration's TensorRT engines cannot be written to."""
    text = without_comments(classifier_path(repository, configuration))
    for folder in sorted(set(_CACHE.findall(text))):
        if not os.access(folder, os.W_OK | os.X_OK):
            yield (
                f"{folder} is no folder that user {os.getuid()} can write to: TensorRT's engines, "
                "which take minutes, will be built at every start (deploy/tensorrt)"
            )
