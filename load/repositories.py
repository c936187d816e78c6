"""The default model, or another, in every layout and precision that is compared."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from load import idle
from text_pipeline.default_model import build
from text_pipeline.export.exporter import export_model
from text_pipeline.repository.versions import Repository


class Repositories:
    """Model repositories in `folder`, each exported when it is first asked for."""

    def __init__(self, folder: Path, venvs: Path, progress: Callable[[str], None]) -> None:
        """`venvs` keeps the other servers' virtual environments from run to run."""
        self.folder = folder
        self.venvs = venvs
        self.model = build.build(folder / "model")
        self._progress = progress

    def get(self, layout: str, precision: str) -> Path:
        """The repository with the model in this layout and precision, version 1."""
        path = self.folder / f"{layout}-{precision}"
        if not path.exists():
            self._progress(f"exporting {layout}, {precision}")
            export_model(
                str(self.model), Repository(path),
                layout=layout, precision=precision, progress=lambda _: None,
            )  # fmt: skip
        return path

    def idle(self) -> Path:
        """The repository of the packed fp32 model with a classifier that does nothing."""
        path = self.folder / "idle"
        if not path.exists():
            idle.copy(self.get("packed", "fp32"), path)
        return path


@contextmanager
def temporary(venvs: Path, progress: Callable[[str], None]) -> Iterator[Repositories]:
    """Repositories that end with the block."""
    with tempfile.TemporaryDirectory(prefix="text-pipeline-load-") as folder:
        yield Repositories(Path(folder), venvs, progress)
