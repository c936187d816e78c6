"""One export from start to end: load, build the graph, check it, publish it."""

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import onnx_ir as ir
import torch
import transformers

from text_pipeline.default_model import build as default_model
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import gate, graph, source
from text_pipeline.export.packed import reason_not_packed
from text_pipeline.repository import Repository

DEFAULT_TOLERANCE = 1e-4
"""fp32 kernels of PyTorch and ONNX Runtime differ by some 1e-6 on MiniLM; deep models by more."""

DEFAULT_MODEL = "default"
"""The model id of this project's own news classifier."""

GRAPH = "model.onnx"
REPORT = "export.json"


def export_model(
    model_id: str,
    repository: Repository,
    *,
    version: int | None = None,
    layout: str | None = None,
    max_tokens: int | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    progress: Callable[[str], None] = print,
) -> int:
    """Publishes a Hugging Face classifier as a version and returns its number.

    `layout` is "packed", "padded" or None: packed where the architecture allows. `progress` is
    called with one line before every step. Raises TextPipelineError when the model
    cannot be exported and ExportRejectedError when the graph does not answer as PyTorch does; the
    repository then is as it was.
    """
    version = repository.new_version(version)
    with quiet_libraries(), _directory_of(model_id) as directory:
        progress(f"loading {model_id}")
        loaded = source.load(directory, max_tokens)
        layout = _choose_layout(loaded, layout, progress)
        model = graph.build(loaded, layout)
        with repository.publish(version) as staged:
            ir.save(model, staged.classifier / GRAPH)
            progress("comparing it with PyTorch, alone and in mixed batches")
            report = gate.check(loaded, staged.classifier / GRAPH, tolerance)
            _write_report(staged.classifier / REPORT, model_id, loaded, layout, report)
            # Triton's label file has one label a line.
            lines = [" ".join(label.splitlines()) for label in loaded.labels]
            staged.labels.write_text("\n".join(lines) + "\n", encoding="utf-8")
            # The tokenizer step takes its limit from here.
            loaded.tokenizer.model_max_length = loaded.max_tokens
            loaded.tokenizer.save_pretrained(staged.tokenizer)
    largest = max(report.max_difference.values())
    progress(
        f"published version {version} in {repository.path}: {len(loaded.labels)} labels, "
        f"up to {loaded.max_tokens} tokens, largest difference {largest:.1g} "
        f"over {report.texts} texts"
    )
    return version


def _choose_layout(
    loaded: source.Source, requested: str | None, progress: Callable[[str], None]
) -> str:
    name = type(loaded.model).__name__
    reason = reason_not_packed(loaded.model)
    if requested == "packed" and reason:
        raise TextPipelineError(f"{name} cannot be packed ({reason}): use --layout padded")
    layout = requested or ("padded" if reason else "packed")
    why = "as requested" if requested else reason or "its architecture allows it"
    progress(f"building the {layout} graph of {name} ({why})")
    return layout


@contextmanager
def _directory_of(model_id: str) -> Iterator[str]:
    """Where the model is: `default` is put together in a temporary folder."""
    if model_id != DEFAULT_MODEL:
        yield model_id
        return
    with tempfile.TemporaryDirectory() as directory:
        default_model.build(Path(directory))
        yield directory


def _write_report(
    path: Path, model_id: str, loaded: source.Source, layout: str, report: gate.GateReport
) -> None:
    content = {
        "model": model_id,
        "architecture": type(loaded.model).__name__,
        "labels": len(loaded.labels),
        "max_tokens": loaded.max_tokens,
        "layout": layout,
        "precision": "fp32",
        "gate": asdict(report),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keeps the libraries' notes about their own internals away from the user's terminal."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    exporter_log = logging.getLogger("torch.onnx")
    level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()
        exporter_log.setLevel(level)
