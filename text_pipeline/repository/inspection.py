"""What is in a model repository, damaged versions included."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from text_pipeline.contract import CLASSIFIER, ENSEMBLES, GRAPH, LABELS, REPORT, STEPS, TOKENIZER
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import configuration, devices
from text_pipeline.repository.versions import TOKENIZER_CODE, Repository, is_current, sha256

MODELS = (*STEPS, *ENSEMBLES)
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Version:
    """What the export of a version reported, and what is left of it."""

    number: int
    in_use: bool
    is_loaded: bool
    """Whether a server loads it: the one in use, and the one before it."""
    report: Mapping[str, Any]
    """The exporter's export.json; empty if it cannot be read."""
    labels: Sequence[str]
    bytes: int
    """On the disk, tokenizer included."""
    configurations: Sequence[str]
    """Those that run the graph on the device it was exported for; none if it is not known."""
    problems: Sequence[str]


@dataclass(frozen=True)
class Content:
    """A repository's models, configurations and versions."""

    path: str
    models: Sequence[str]
    configurations: Sequence[str]
    """Names for `serve --model-config-name`."""
    version_in_use: int | None
    versions: Sequence[Version]
    problems: Sequence[str]


def inspect(repository: Repository) -> Content:
    """Reads a repository; raises TextPipelineError only if there is none."""
    path = repository.path
    if not path.is_dir():
        raise TextPipelineError(f"{path}: no such directory, so there is no model repository")
    problems = [*_configuration_problems(path)]
    in_use = None if problems else repository.version_in_use()
    loaded = [] if problems else configuration.parse(
        path / CLASSIFIER / "config.pbtxt"
    ).version_policy.specific.versions  # fmt: skip
    numbers = {*_numbers(path / CLASSIFIER, "*"), *_numbers(path / TOKENIZER, "*/tokenizer")}
    if in_use is not None and in_use not in numbers:
        problems.append(f"version {in_use}, which the ensembles use, does not exist")
    return Content(
        path=str(path),
        models=[model for model in MODELS if (path / model).is_dir()],
        configurations=sorted({file.stem for file in path.glob("*/configs/*.pbtxt")}),
        version_in_use=in_use,
        versions=[_version(path, n, n == in_use, n in loaded) for n in sorted(numbers)],
        problems=problems,
    )


def _configuration_problems(path: Path) -> Iterator[str]:
    for model in MODELS:
        for file in (path / model / "config.pbtxt", *sorted(path.glob(f"{model}/configs/*.pbtxt"))):
            try:
                configuration.parse(file)
            except TextPipelineError as error:
                yield str(error)


def _numbers(model: Path, pattern: str) -> Iterator[int]:
    """Of the version folders in which there is something."""
    for found in model.glob(pattern):
        name = found.relative_to(model).parts[0]
        if name.isdecimal() and found.is_dir():
            yield int(name)


def _version(path: Path, number: int, in_use: bool, is_loaded: bool) -> Version:
    classifier = path / CLASSIFIER / str(number)
    code = path / TOKENIZER / str(number)
    problems = [
        f"{file.name} is missing"
        for file in (
            *(classifier / name for name in (GRAPH, LABELS, REPORT)),
            *(code / source.name for source in TOKENIZER_CODE),
            code / "tokenizer" / "tokenizer.json",
        )
        if not file.is_file()
    ]
    labels = _read(classifier / LABELS, str.splitlines, problems) or []
    report = _read(classifier / REPORT, lambda text: dict(json.loads(text)), problems) or {}
    problems += _differences(classifier, code / "tokenizer" / "tokenizer.json", report)
    if report and not is_current(report):
        problems.append(
            "was exported by another text-pipeline and cannot be loaded: export it again"
        )
    folders = (classifier, code / "tokenizer")
    size = sum(f.stat().st_size for folder in folders for f in folder.rglob("*") if f.is_file())
    fitting = devices.fitting(path, report.get("device", ""))
    return Version(number, in_use, is_loaded, report, labels, size, fitting, problems)


def _read(path: Path, parse: Callable[[str], Parsed], problems: list[str]) -> Parsed | None:
    """What a file holds; None if there is none, or if `problems` has got one more."""
    if not path.is_file():
        return None
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        problems.append(f"{path.name} cannot be read ({error})")
        return None


def _differences(classifier: Path, tokenizer: Path, report: Mapping[str, Any]) -> Iterator[str]:
    """What is not as the exporter left it."""
    for name, expected in report.get("bytes", {}).items():
        file = classifier / name
        size = file.stat().st_size if file.is_file() else 0
        if size != expected:
            yield f"{name} has {size} of {expected} bytes"
    expected = report.get("tokenizer_sha256")
    if expected and tokenizer.is_file() and expected != sha256(tokenizer):
        yield "tokenizer.json is not the one with which the graph was checked"
