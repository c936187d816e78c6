"""One export from start to end: load, build the graph, check it, publish it."""

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch
import transformers

from text_pipeline.client import control
from text_pipeline.contract import (
    DEFAULT_MIN_AGREEMENT,
    DEFAULT_MODEL,
    DEFAULT_TOLERANCES,
    GRAPH,
    LABELS,
    PRECISIONS,
    REPORT,
    REPORT_FORMAT,
)
from text_pipeline.default_model import build as default_model
from text_pipeline.default_model import corpus
from text_pipeline.errors import TextPipelineError, cause
from text_pipeline.export import configured, gate, graph, int8, session, source
from text_pipeline.export.heads import pools_end_token
from text_pipeline.export.labels import label_line
from text_pipeline.export.packed import reason_not_packed
from text_pipeline.export.pooling import find as find_pooling
from text_pipeline.export.progress import Track, in_lines
from text_pipeline.repository.versions import Repository, sha256

CALIBRATION_TEXTS = 64


def export_model(
    model_id: str,
    repository: Repository,
    *,
    version: int | None = None,
    layout: str | None = None,
    device: str = "cpu",
    precision: str | None = None,
    max_tokens: int | None = None,
    pooling: str | None = None,
    texts: Sequence[str] | None = None,
    tolerance: float | None = None,
    min_agreement: float = DEFAULT_MIN_AGREEMENT,
    trust_remote_code: bool = False,
    http_url: str | None = None,
    progress: Callable[[str], None] = print,
    track: Track | None = None,
) -> int:
    """Publishes a Hugging Face classifier as a version, puts it into use, returns its number.

    `layout` is "packed", "padded" or None: packed where the architecture allows. `device` is "cpu"
    or "gpu", `precision` one that PRECISIONS has for it, by default the first. `pooling` is
    one of POOLINGS, by default what the model's files say. `texts` are those the graph is
    checked with, and int8 calibrated; by default BBC news.
    `trust_remote_code` lets code run that the model brings. `http_url` is a server as control.use
    takes it. `progress` is called with one line before every step; `track` shows
    how far a long one is, by default in lines, too. Raises
    TextPipelineError when the model cannot be exported and ExportRejectedError when the graph does
    not answer as PyTorch does; the repository then is as it was.
    """
    track = track or in_lines(progress)
    precision = _choose_precision(device, precision)
    version = repository.new_version(version)
    tolerance = DEFAULT_TOLERANCES[precision] if tolerance is None else tolerance
    if texts is None:
        texts = corpus.mixed(gate.REAL_TEXTS[precision])
    elif not texts:
        raise TextPipelineError("--texts: no text in it")
    with quiet_libraries(), _directory_of(model_id) as directory, _one_line_of(model_id):
        progress(f"loading {model_id}")
        loaded = source.load(directory, max_tokens, trust_remote_code)
        loaded = replace(loaded, pooling=find_pooling(directory, pooling))
        gate_texts = gate.gate_texts(loaded, texts)
        gate.check_model(loaded, gate_texts)
        layout = _choose_layout(loaded, layout, device, progress)
        if pools_end_token(loaded.model):
            progress("it is an encoder-decoder: embeddings are made of the decoder's hidden state")
        with repository.publish(version) as staged:
            path = staged.classifier / GRAPH
            exact = staged.scratch / f"fp32-{GRAPH}" if precision == "int8" else None
            _build(loaded, path, layout, device, precision, texts, progress, track, exact)
            checked, checked_on = path, session.checked_on(device)
            if checked_on != device and layout == "packed":
                progress("no GPU here: the same graph is checked with the attention for CPU")
                checked = staged.scratch / GRAPH
                _build(loaded, checked, layout, checked_on, precision, texts, progress, track)
            progress(f"comparing {len(gate_texts)} texts with PyTorch, in mixed batches and alone")
            configured.check(repository.path, checked, checked_on)
            report = gate.check(
                loaded, checked, gate_texts, tolerance, min_agreement, track, exact, checked_on
            )
            loaded.save_tokenizer(staged.tokenizer)
            content = {
                "format": REPORT_FORMAT,
                "model": model_id,
                "architecture": type(loaded.model).__name__,
                "labels": len(loaded.labels),
                "max_tokens": loaded.max_tokens,
                "takes_pairs": loaded.takes_pairs,
                "takes_windows": True,
                "pooling": asdict(loaded.pooling),
                "tokenizer_sha256": sha256(staged.tokenizer / "tokenizer.json"),
                "layout": layout,
                "device": device,
                "precision": precision,
                "gate": asdict(report) | {"checked_on": checked_on},
                "bytes": {f.name: f.stat().st_size for f in sorted(staged.classifier.iterdir())},
                "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            }
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (staged.classifier / REPORT).write_text(text + "\n", encoding="utf-8")
            # Triton's label file has one label a line.
            lines = map(label_line, loaded.labels)
            (staged.classifier / LABELS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    control.use(repository, version, http_url=http_url)
    progress(
        f"published version {version} in {repository.path}: {len(loaded.labels)} labels, "
        f"up to {loaded.max_tokens} tokens, {precision} for {device}"
    )
    progress(str(report))
    return version


def _build(
    loaded: source.Source,
    path: Path,
    layout: str,
    device: str,
    precision: str,
    texts: Sequence[str],
    progress: Callable[[str], None],
    track: Track,
    exact: Path | None = None,
) -> None:
    """Writes a graph of any precision, and the same in fp32 to `exact` if it is int8."""
    model = graph.build(loaded, layout, device, "fp32" if exact else precision)
    if exact:
        graph.save(model, exact)
        # Spread over all texts, for a file may be sorted.
        chosen = gate.gate_texts(loaded, texts[:: max(1, len(texts) // CALIBRATION_TEXTS)])
        progress(f"quantizing it by {len(chosen)} texts")
        feeds = track(gate.single_feeds(loaded, chosen), len(chosen))
        int8.quantize(model, feeds, path.parent)
    graph.save(model, path)


def _choose_precision(device: str, requested: str | None) -> str:
    possible = PRECISIONS[device]
    if requested is not None and requested not in possible:
        raise TextPipelineError(
            f"--precision {requested} on {device}: expected {' or '.join(possible)}"
        )
    return requested or possible[0]


def _choose_layout(
    loaded: source.Source, requested: str | None, device: str, progress: Callable[[str], None]
) -> str:
    name = type(loaded.model).__name__
    reason = reason_not_packed(loaded.model, device)
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


@contextmanager
def _one_line_of(model_id: str) -> Iterator[None]:
    """Makes a TextPipelineError of what transformers, PyTorch or a model's own code raise."""
    try:
        yield
    except (TextPipelineError, OSError):
        raise
    except Exception as error:  # these raise anything
        raise TextPipelineError(
            f"{model_id}: cannot be exported ({cause(error)}); --debug shows where"
        ) from error


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keeps the libraries' notes about their own internals away from the user's terminal."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()
        logging.disable(disabled)
