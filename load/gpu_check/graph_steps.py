"""The graphs alone on the GPU, without a server: right, fast, and on the device?"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from load.gpu_check import profile
from load.gpu_check.claims import TINY_TOLERANCE, number
from load.gpu_check.found import CUDA
from load.gpu_check.record import Point, Record
from load.graphs import OUTPUTS, run
from tests import tiny_models
from text_pipeline.contract import DEFAULT_MIN_AGREEMENT, DEFAULT_TOLERANCES
from text_pipeline.default_model import build, corpus
from text_pipeline.errors import TextPipelineError, cause
from text_pipeline.export import gate, graph
from text_pipeline.export.exporter import quiet_libraries
from text_pipeline.export.progress import in_lines
from text_pipeline.export.source import Source, load

Feeds = Sequence[dict[str, np.ndarray]]
WORKLOADS: Mapping[str, Callable[[int], list[str]]] = {"short": corpus.short, "mixed": corpus.mixed}
PROFILED_RUNS = 3
HUNDREDTH = 100


@dataclass(frozen=True)
class Graphs:
    """What the graphs are, and how long they are looked at."""

    model: str | None = None
    """A Hugging Face directory; None is the default model."""
    providers: Sequence[str] = (CUDA, profile.CPU)
    compared: int = 64
    """News texts, beside the odd ones."""
    sizes: Sequence[int] = (1, 8, 64)
    """Texts in a batch."""
    measured: int = 192
    """Texts of a workload."""
    seconds: float = 1.0
    """Of each workload and batch size."""
    architectures: Sequence[str] = ("bert", "roberta", "modernbert", "mpnet", "llama")
    """Of tests/tiny_models.py: a bias, positions behind the padding, shared heads, a decoder."""


def figures(layout: str, precision: str) -> tuple[str, ...]:
    """What `check` measures, as far as claims are about it."""
    name = f"{layout} {precision}"
    return (
        *(f"{name} {what}" for what in ("difference", "agreement", "nodes on the CPU", "waits")),
        f"{name} mixed by 64",
    )


def check(layout: str, precision: str, settings: Graphs, record: Record, work: Path) -> None:
    """One graph of one model: compared with PyTorch, timed, and profiled."""
    name = f"{layout} {precision}"
    with _exported(settings.model, layout, precision, work) as (source, path):
        _first_runs(name, source, open_session(path, precision, settings.providers), record)
        texts = gate.gate_texts(source, corpus.mixed(settings.compared))
        report = _compare(source, path, texts, DEFAULT_TOLERANCES[precision])
        record.figure(f"{name} difference", max(report.max_difference.values()))
        record.figure(f"{name} agreement", report.label_agreement)
        record.table(
            f"The {name} graph against PyTorch in fp32",
            ["texts", "labels that agree", *report.max_difference],
            [[str(report.texts), f"{report.label_agreement:.1%}",
              *(number(value) for value in report.max_difference.values())]],
        )  # fmt: skip
        _speeds(name, source, open_session(path, precision, settings.providers), settings, record)
        _profile(name, source, path, precision, settings, record)


def check_architectures(precision: str, settings: Graphs, record: Record, work: Path) -> None:
    """Packed graphs of tiny models of several architectures, each for itself."""
    rows, worst, failed = [], 0.0, []
    for name in settings.architectures:
        try:
            report = _tiny_report(name, precision, settings, work)
        except Exception as error:  # noqa: BLE001 - the others are still to be looked at
            failed.append(f"{name}: {cause(error)}")
            rows.append([name, "", "", cause(error)[:160]])
        else:
            difference = max(report.max_difference.values())
            worst = max(worst, difference)
            rows.append([name, number(difference), f"{report.label_agreement:.1%}", ""])
        record.table(
            f"Tiny packed models in {precision}",
            ["architecture", "largest difference", "labels that agree", "failed"], rows, words=4,
        )  # fmt: skip
    if failed:
        raise TextPipelineError(
            f"{len(failed)} of {len(rows)} architectures cannot run: {'; '.join(failed)}"
        )
    record.figure(f"architectures packed {precision} difference", worst)


def _tiny_report(name: str, precision: str, settings: Graphs, work: Path) -> gate.GateReport:
    with tempfile.TemporaryDirectory(dir=work) as folder:
        model = str(tiny_models.architecture(Path(folder), name))
        with _exported(model, "packed", precision, work) as (source, path):
            open_session(path, precision, settings.providers)
            texts = gate.gate_texts(source, corpus.mixed(settings.compared))
            return _compare(source, path, texts, TINY_TOLERANCE[precision])


def open_session(
    path: Path, precision: str, providers: Sequence[str], **options: Any
) -> onnxruntime.InferenceSession:
    """A session on the first of `providers`, with `options` of SessionOptions.

    Raises TextPipelineError where ONNX Runtime falls back to another one, which it does with a
    warning only.
    """
    if CUDA in providers:
        # The libraries of pip's nvidia packages, where the system has none.
        onnxruntime.preload_dlls()
    chosen = onnxruntime.SessionOptions()
    # As config.pbtxt: the GPU computes, one thread hands it work.
    chosen.intra_op_num_threads = 1
    for name, value in options.items():
        setattr(chosen, name, value)
    # fp32 is to be fp32: TF32, with 10 bits of mantissa, is on by default.
    with_options = [
        (name, {"use_tf32": "0"}) if name == CUDA and precision == "fp32" else name
        for name in providers
    ]
    session = onnxruntime.InferenceSession(path, chosen, providers=with_options)
    if session.get_providers()[0] != providers[0]:
        raise TextPipelineError(
            f"ONNX Runtime does not run on {providers[0]} but on {session.get_providers()[0]}: its "
            "CUDA and cuDNN libraries are missing or do not fit; the step's log names the first"
        )
    return session


@contextmanager
def _exported(
    model: str | None, layout: str, precision: str, work: Path
) -> Iterator[tuple[Source, Path]]:
    """The model in PyTorch, and the file of its graph for GPU while the block lasts."""
    with tempfile.TemporaryDirectory(dir=work) as folder, quiet_libraries():
        source = load(model or str(build.build(Path(folder) / "model")))
        path = Path(folder) / "model.onnx"
        graph.save(graph.build(source, layout, "gpu", precision), path)
        yield source, path


def _compare(source: Source, path: Path, texts: Sequence[str], tolerance: float) -> gate.GateReport:
    return gate.compare(source, path, texts, tolerance, DEFAULT_MIN_AGREEMENT, in_lines(print))


def _feeds(source: Source, texts: Sequence[str], size: int) -> Feeds:
    return [
        gate.ragged_feed(source.tokenizer, texts[start : start + size], source.max_tokens)
        for start in range(0, len(texts), size)
    ]


def _first_runs(
    name: str, source: Source, session: onnxruntime.InferenceSession, record: Record
) -> None:
    """How long the first run of a new session takes, and the hundredth."""
    feeds = _feeds(source, corpus.mixed(8), 8)
    first, *_, hundredth = (run(session, feeds) * 1000 for _ in range(HUNDREDTH))
    record.figure(f"{name} first run ms", first)
    record.figure(f"{name} hundredth run ms", hundredth)


def _speeds(
    name: str,
    source: Source,
    session: onnxruntime.InferenceSession,
    settings: Graphs,
    record: Record,
) -> None:
    rows = []
    for workload, sample in WORKLOADS.items():
        texts = sample(settings.measured)
        for size in settings.sizes:
            feeds = _feeds(source, texts, size)
            run(session, feeds)  # every shape once: memory is found, kernels are chosen
            passes, spent = 0, 0.0
            began = time.perf_counter()
            while spent < settings.seconds:
                run(session, feeds)
                passes, spent = passes + 1, time.perf_counter() - began
            rate = passes * len(texts) / spent
            batch_ms = spent / passes / len(feeds) * 1000
            record.figure(f"{name} {workload} by {size}", rate)
            record.point(Point("graph", f"{name}, {workload}", size, rate, batch_ms))
            rows.append([workload, str(size), number(rate), f"{batch_ms:.2f}"])
    first, hundredth = (record.figures[f"{name} {n} run ms"] for n in ("first", "hundredth"))
    rows.append(["8 mixed texts: first run, hundredth", "8", "",
                 f"{first:.1f}, {hundredth:.2f}"])  # fmt: skip
    record.table(f"Speed of the {name} graph alone",
                 ["workload", "texts in a batch", "texts/s", "ms a batch"], rows)  # fmt: skip


def _profile(
    name: str, source: Source, path: Path, precision: str, settings: Graphs, record: Record
) -> None:
    session = open_session(
        path, precision, settings.providers,
        enable_profiling=True, profile_file_prefix=str(path.with_name("profile")),
    )  # fmt: skip
    size = max(settings.sizes)
    for _ in range(PROFILED_RUNS):
        session.run(OUTPUTS, _feeds(source, corpus.mixed(size), size)[0])
    found = profile.read(Path(session.end_profiling()))
    record.figure(f"{name} nodes on the CPU", len(found.on_cpu))
    record.figure(f"{name} waits", len(found.waits))
    record.table(f"Where the {name} graph runs ({size} mixed texts)",
                 ["what", "nodes", "host ms"], profile.rows(found))  # fmt: skip
