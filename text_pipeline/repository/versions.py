"""The model repository: its static files, its versions, and how a version gets in and into use.

Triton loads one model after the other, so "the latest version" of tokenizer and classifier is not
the same one for a while. Therefore the ensembles name the version they use, and tokenizer and
classifier name those to load: the one in use and the one before it, which goes on answering until
Triton has changed the ensembles, and to which a rollback returns.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from text_pipeline.contract import (
    CLASSIFIER,
    ENSEMBLES,
    GRAPH,
    LABELS,
    REPORT,
    REPORT_FORMAT,
    STEPS,
    TOKENIZER,
)
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import publishing

TURN = "turn"
"""The resource of Triton's rate limiter that tokenizer and classifier share."""

_PACKAGE = Path(__file__).parents[1]
# In a wheel the static files lie in the package; in a clone they are the repository itself.
STATIC_REPOSITORY = next(
    path
    for path in (_PACKAGE / "model_repository", _PACKAGE.parent / "model_repository")
    if path.is_dir()
)
_STEP_VERSION = re.compile(r"(?<=\bmodel_version: )-?\d+")
# The instances of a group whose rate_limiter names the resource.
_TURNS = re.compile(
    rf'\bcount: (\d+)\s+kind: KIND_CPU\s+rate_limiter {{\s*resources [\[{{\s]+name: "{TURN}"'
)
_LOADED_VERSIONS = re.compile(r"^version_policy\b.*\n?", re.MULTILINE)
TOKENIZER_CODE = tuple((STATIC_REPOSITORY / TOKENIZER / "1").glob("*.py"))


@dataclass(frozen=True)
class StagedVersion:
    """Folders to fill; both become visible to Triton only when everything is written."""

    classifier: Path
    """Becomes `text_classifier_onnx/<version>`: `model.onnx`, `labels.txt` and the report."""
    tokenizer: Path
    """Becomes `text_tokenizer/<version>/tokenizer`."""
    scratch: Path
    """Becomes nothing."""


class Repository:
    """A model repository of this project at `path`, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def versions(self) -> list[int]:
        """The published versions, ascending."""
        return sorted(
            int(model.parent.name)
            for model in (self.path / CLASSIFIER).glob(f"*/{GRAPH}")
            if model.parent.name.isdecimal()
        )

    def version_in_use(self) -> int | None:
        """The version the ensembles name; None if they take the latest or disagree."""
        texts = [path.read_text(encoding="utf-8") for path in self.configurations(ENSEMBLES)]
        named = {int(found) for text in texts for found in _STEP_VERSION.findall(text)}
        return named.pop() if len(named) == 1 and min(named) > 0 else None

    def load(self, version: int, alone: bool = False) -> None:
        """Has tokenizer and classifier load a published version, beside the one in use.

        `alone` has no other version loaded: the one in use could not be, or is to leave memory.
        """
        if version not in self.versions():
            raise TextPipelineError(
                f"version {version} does not exist in {self.path}: "
                f"choose one of {', '.join(map(str, self.versions()))}"
            )
        self._check_format(version, str(self.path))
        in_use = version if alone else self.version_in_use() or version
        loaded = sorted(
            number
            for number in {version, in_use}.intersection(self.versions())
            if self.has_current_format(number)
        )
        labels = self.path / CLASSIFIER / str(version) / LABELS
        if labels.is_file():
            _write(self.path / CLASSIFIER / LABELS, labels.read_text(encoding="utf-8"))
        for path in self.configurations(STEPS):
            rest = _LOADED_VERSIONS.sub("", path.read_text(encoding="utf-8")).rstrip("\n")
            _write(path, f"{rest}\n{version_policy(loaded)}")

    def has_current_format(self, version: int) -> bool:
        """Whether a version's graph can be loaded, as far as its report tells."""
        report = self.report(version)
        return report is None or is_current(report)

    def report(self, version: int) -> dict[str, Any] | None:
        """A version's export.json; None if there is none that can be read."""
        try:
            text = (self.path / CLASSIFIER / str(version) / REPORT).read_text(encoding="utf-8")
            return dict(json.loads(text))
        except (OSError, ValueError, TypeError):
            return None

    def _check_format(self, version: int, name: str) -> None:
        report = self.report(version)
        if report is not None and not is_current(report):
            raise TextPipelineError(
                f"version {version} of {name} was exported by another text-pipeline and its graph "
                "cannot be loaded: export it again, as the next version: "
                f"`text-pipeline export --model {report.get('model', 'DIRECTORY')} "
                f"--repository {name}`"
            )

    def use(self, version: int) -> None:
        """Has the ensembles use a version that `load` named."""
        for path in self.configurations(ENSEMBLES):
            text = path.read_text(encoding="utf-8")
            _write(path, _STEP_VERSION.sub(str(version), text))

    def turns(self, configuration: str) -> int:
        """How many instances of the classifier take turns, as its configuration says; 0: none."""
        path = self.path / CLASSIFIER / "configs" / f"{configuration}.pbtxt"
        found = _TURNS.search(path.read_text(encoding="utf-8")) if path.is_file() else None
        return int(found[1]) if found else 0

    def configurations(self, models: Sequence[str]) -> list[Path]:
        """The models' config.pbtxt and those for other devices."""
        return [
            path
            for model in models
            for pattern in ("config.pbtxt", "configs/*.pbtxt")
            for path in sorted((self.path / model).glob(pattern))
        ]

    def check(self, called: str | None = None) -> None:
        """Raises TextPipelineError if there is nothing to serve, or nothing this user may read.

        `called` is the user's name for the repository, where that differs: outside a container.
        """
        name = called or str(self.path)
        for path in (self.path, *self.path.rglob("*")):
            needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
            if path.exists() and not os.access(path, needed):
                raise TextPipelineError(
                    f"{path} is not readable for user {os.getuid()}: chmod -R a+rX {name}"
                )
        if not self.versions():
            raise TextPipelineError(
                f"{name} has no model: run `make model` for the default model, or "
                f"`text-pipeline export --model DIRECTORY --repository {name}`"
            )
        used = self.version_in_use()
        if used is not None and used not in self.versions():
            raise TextPipelineError(
                f"{name} has no version {used}, which its ensembles use: "
                f"`text-pipeline use --version {self.versions()[-1]} --repository {name}`"
            )
        for version in self.loaded():
            self._check_format(version, name)

    def loaded(self) -> list[int]:
        """The published versions that a server loads."""
        configuration = self.path / CLASSIFIER / "config.pbtxt"
        text = configuration.read_text(encoding="utf-8") if configuration.is_file() else ""
        policy = _LOADED_VERSIONS.search(text)
        numbers = map(int, re.findall(r"\d+", policy[0])) if policy else self.versions()[-1:]
        return sorted(set(numbers).intersection(self.versions()))

    def new_version(self, requested: int | None) -> int:
        """The version an export will write; an existing one is never overwritten."""
        versions = self.versions()
        if requested is None:
            return max(versions, default=0) + 1
        if requested in versions:
            raise TextPipelineError(
                f"version {requested} exists in {self.path}: "
                f"choose another (the next free one is {max(versions) + 1}) or delete it"
            )
        return requested

    def create(self) -> None:
        """Adds the static files that are missing; files that are there stay as they are."""
        with publishing.undone_on_failure() as undo:
            self._create(undo)

    def _create(self, undo: ExitStack) -> None:
        for source in _static_files():
            target = self.path / source.relative_to(STATIC_REPOSITORY)
            if not target.exists():
                publishing.make_folder(target.parent, undo)
                publishing.copy(source, target, undo)

    @contextmanager
    def publish(self, version: int) -> Iterator[StagedVersion]:
        """Yields folders to fill and moves them into place; on an error nothing is left.

        Each is on the file system of its place, so that the last step is a renaming. Raises
        TextPipelineError if they cannot be written, because the disk is full, for example.
        """
        code = self.path / TOKENIZER / str(version)
        classifier = self.path / CLASSIFIER / str(version)
        places = (self.path, code, classifier)
        with publishing.reporting(places), publishing.undone_on_failure() as undo:
            before = self.versions()
            self._create(undo)
            publishing.make_folder(code, undo)
            # What another export has published here meanwhile needs these files.
            undo.callback(lambda: undo.pop_all() if self.versions() != before else None)
            with (
                publishing.staging(classifier.parent) as beside_classifier,
                publishing.staging(code) as beside_tokenizer,
                publishing.undone_on_failure() as undo_moves,
            ):
                staged = StagedVersion(
                    beside_classifier / "model",
                    beside_tokenizer / "tokenizer",
                    beside_classifier / "scratch",
                )
                for folder in (staged.classifier, staged.tokenizer, staged.scratch):
                    folder.mkdir()
                yield staged
                self.new_version(version)  # another export may have published it meanwhile
                for source in TOKENIZER_CODE:
                    if not (target := code / source.name).exists():
                        publishing.copy(source, target, undo_moves)
                # The classifier comes last: a version exists from the moment its model.onnx does.
                old_tokenizer, old_classifier = (
                    folder / "old" for folder in (beside_tokenizer, beside_classifier)
                )
                publishing.move(staged.tokenizer, code / "tokenizer", old_tokenizer, undo_moves)
                publishing.move(staged.classifier, classifier, old_classifier, undo_moves)


def sha256(path: Path) -> str:
    """Of a file's content, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_current(report: Mapping[str, Any]) -> bool:
    """Whether the graph beside a REPORT is one that can be loaded."""
    return report.get("format") == REPORT_FORMAT


def version_policy(versions: Sequence[int]) -> str:
    """The line of a configuration that says which versions Triton loads."""
    return f"version_policy {{ specific {{ versions: {list(versions)} }} }}\n"


def _static_files() -> Iterator[Path]:
    """Configurations, their warm-up's data, the tokenizer's code, the ensembles' placeholders."""
    for pattern in ("*/config.pbtxt", "*/configs/*.pbtxt", "*/warmup/*", "*/1/.gitkeep"):
        yield from sorted(STATIC_REPOSITORY.glob(pattern))
    yield from TOKENIZER_CODE


def _write(path: Path, text: str) -> None:
    """Replaces a file as a whole, and only if that changes it: Triton reloads what was touched."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TextPipelineError(f"{path} cannot be written: {error.strerror}") from error
