"""The model repository: its static files, its versions, and how a new version gets in."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from text_pipeline.errors import TextPipelineError

TOKENIZER = "text_tokenizer"
CLASSIFIER = "text_classifier_onnx"
ENSEMBLE = "text_pipeline_ensemble"
EMBEDDING_ENSEMBLE = "text_embedding_ensemble"

_PACKAGE = Path(__file__).parent
# In a wheel the static files lie in the package; in a clone they are the repository itself.
STATIC_REPOSITORY = next(
    path
    for path in (_PACKAGE / "model_repository", _PACKAGE.parent / "model_repository")
    if path.is_dir()
)
TOKENIZER_CODE = tuple((STATIC_REPOSITORY / TOKENIZER / "1").glob("*.py"))


@dataclass(frozen=True)
class StagedVersion:
    """Folders to fill; both become visible to Triton only when everything is written."""

    classifier: Path
    """Becomes `text_classifier_onnx/<version>`: `model.onnx` and its report."""
    tokenizer: Path
    """Becomes `text_tokenizer/<version>/tokenizer`."""
    labels: Path
    """Becomes `text_classifier_onnx/labels.txt`."""


class Repository:
    """A model repository of this project at `path`, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def versions(self) -> list[int]:
        """The published versions, ascending."""
        return sorted(
            int(model.parent.name)
            for model in (self.path / CLASSIFIER).glob("*/model.onnx")
            if model.parent.name.isdecimal()
        )

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
        for source in _static_files():
            target = self.path / source.relative_to(STATIC_REPOSITORY)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    @contextmanager
    def publish(self, version: int) -> Iterator[StagedVersion]:
        """Yields folders to fill and moves them into place; on an error nothing is left."""
        self.create()
        classifier, tokenizer = self.path / CLASSIFIER, self.path / TOKENIZER
        # Triton takes only numbers for versions, so it never looks into a staging folder.
        with tempfile.TemporaryDirectory(prefix=".export-", dir=classifier) as staging:
            staged = StagedVersion(
                *(Path(staging) / part for part in ("model", "tokenizer", "labels"))
            )
            staged.classifier.mkdir()
            staged.tokenizer.mkdir()
            yield staged
            code = tokenizer / str(version)
            code.mkdir(exist_ok=True)
            for source in TOKENIZER_CODE:
                if not (code / source.name).exists():
                    shutil.copyfile(source, code / source.name)
            # The classifier comes last: a version exists from the moment its model.onnx does.
            _replace(staged.tokenizer, code / "tokenizer")
            staged.labels.replace(classifier / "labels.txt")
            _replace(staged.classifier, classifier / str(version))


def _static_files() -> Iterator[Path]:
    """Configurations, the tokenizer's code, and the placeholders of the ensembles' versions."""
    for pattern in ("*/config.pbtxt", "*/configs/*.pbtxt", "*/1/.gitkeep"):
        yield from sorted(STATIC_REPOSITORY.glob(pattern))
    yield from TOKENIZER_CODE


def _replace(source: Path, target: Path) -> None:
    """Renames a folder; what an interrupted export or a deleted version left there goes first."""
    if target.exists():
        shutil.rmtree(target)
    source.rename(target)
