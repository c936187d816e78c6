"""What the graphs alone can do, in one process and without a server: `python -m load.graphs`.

Compares ways to run the same model on the same texts, so that what one step gives is not counted
for another: the padded graph as `torch.onnx` exports it; the same with every operator fused that
the packed one has fused (attention, GELU, normalisation), in arrival order, sorted by length and
one text at a time; the packed graph; the packed graph in int8. Every figure is the median of
several passes, interleaved so that the machine's noise meets all alike.
"""

import csv
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import onnx_ir as ir
import onnxruntime
from onnxscript.rewriter.ort_fusions import optimize_for_ort
from rich.progress import Progress

from text_pipeline.default_model import build, corpus
from text_pipeline.export import gate, graph, int8
from text_pipeline.export.exporter import CALIBRATION_TEXTS, quiet_libraries
from text_pipeline.export.source import Source, load

WORKLOADS: dict[str, Callable[[int], list[str]]] = {"mixed": corpus.mixed, "short": corpus.short}
# name: graph, whether texts are sorted by length, whether every text is a batch of its own
WAYS = {
    "padded, not fused": ("padded, not fused", False, False),
    "padded": ("padded", False, False),
    "padded, sorted": ("padded", True, False),
    "one at a time": ("padded", False, True),
    "packed": ("packed", False, False),
    "packed int8": ("packed int8", False, False),
}
# What each step gives: the ratio of two ways.
GAINS = {
    "fusion": ("padded", "padded, not fused"),
    "packing": ("packed", "padded"),
    "over one at a time": ("packed", "one at a time"),
    "int8": ("packed int8", "packed"),
}
OUTPUTS = ("labels", "scores", "probabilities", "logits")
RESULTS = Path(__file__).parent / "results" / "graphs"


@dataclass(frozen=True)
class Figure:
    """The median of one way to run one workload."""

    workload: str
    threads: int
    batch_size: int
    way: str
    texts_per_s: float
    tokens_per_s: float


@click.command()
@click.option("--texts", default=300, help="Texts of each workload.")
@click.option("--repeats", default=3, help="Passes of which the median is taken.")
@click.option("--batch-size", "batch_sizes", multiple=True, type=int, default=(1, 8, 32, 64))
@click.option("--threads", "thread_counts", multiple=True, type=int, default=(1, 2))
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path), help="Folder.")
def main(
    texts: int,
    repeats: int,
    batch_sizes: Sequence[int],
    thread_counts: Sequence[int],
    results: Path,
) -> None:
    """Measure the padded and the packed graphs offline; writes a table, CSV and a plot."""
    with tempfile.TemporaryDirectory() as folder, quiet_libraries():
        source = load(str(build.build(Path(folder) / "model")))
        for name, model in graphs_of(source):
            ir.save(model, Path(folder) / f"{name}.onnx")
        figures = [
            figure
            for threads in thread_counts
            for figure in measure(source, Path(folder), threads, texts, repeats, batch_sizes)
        ]
    results.mkdir(parents=True, exist_ok=True)
    write_csv(figures, results / "graphs.csv")
    write_plot(figures, results / "graphs.png")
    (results / "graphs.md").write_text(table(figures), encoding="utf-8")
    click.echo(table(figures))


def graphs_of(source: Source) -> Iterator[tuple[str, ir.Model]]:
    """The graphs of WAYS by name."""
    # For GPU, ONNX Runtime gets the operators as they are exported.
    yield "padded, not fused", graph.build(source, "padded", "gpu", "fp32")
    padded, _ = optimize_for_ort(graph.build(source, "padded"))
    yield "padded", padded
    packed = graph.build(source, "packed")
    yield "packed", packed
    texts = corpus.mixed(CALIBRATION_TEXTS, seed=1)
    int8.quantize(packed, gate.single_feeds(source, texts))
    yield "packed int8", packed


def measure(
    source: Source,
    folder: Path,
    threads: int,
    texts: int,
    repeats: int,
    batch_sizes: Sequence[int],
) -> list[Figure]:
    """All ways, workloads and batch sizes with one number of threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # As the server: else the threads of the session before go on spinning into the next one's time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    sessions = {
        name: onnxruntime.InferenceSession(folder / f"{name}.onnx", options)
        for name in dict.fromkeys(name for name, _, _ in WAYS.values())
    }
    figures = []
    with Progress() as progress:
        steps = len(WORKLOADS) * len(batch_sizes) * repeats * len(WAYS)
        task = progress.add_task(f"{threads} thread(s)", total=steps)
        for workload, sample in WORKLOADS.items():
            batch = sample(texts)
            for size in batch_sizes:
                feeds = {way: feeds_of(source, way, batch, size) for way in WAYS}
                seconds: dict[str, list[float]] = {way: [] for way in WAYS}
                for repeat in range(repeats):
                    # Both orders: what runs after a long way finds a warm, hot processor.
                    for way in list(WAYS)[:: 1 if repeat % 2 == 0 else -1]:
                        seconds[way].append(run(sessions[WAYS[way][0]], feeds[way]))
                        progress.advance(task)
                tokens = sum(int(feed["item_length"].sum()) for feed in feeds["packed"])
                for way, times in seconds.items():
                    median = statistics.median(times)
                    figures.append(
                        Figure(workload, threads, size, way, len(batch) / median, tokens / median)
                    )
    return figures


def feeds_of(
    source: Source, way: str, texts: Sequence[str], size: int
) -> list[dict[str, np.ndarray]]:
    """The graph's inputs for every batch, tokenized beforehand."""
    _, is_sorted, is_alone = WAYS[way]
    ordered = (
        sorted(texts, key=lambda t: len(source.tokenizer(t)["input_ids"])) if is_sorted else texts
    )
    step = 1 if is_alone else size
    return [
        gate.ragged_feed(source.tokenizer, ordered[start : start + step], source.max_tokens)
        for start in range(0, len(ordered), step)
    ]


def run(session: onnxruntime.InferenceSession, feeds: Sequence[dict[str, np.ndarray]]) -> float:
    """Seconds for all batches."""
    start = time.perf_counter()
    for feed in feeds:
        session.run(OUTPUTS, feed)
    return time.perf_counter() - start


def table(figures: Sequence[Figure]) -> str:
    """A Markdown table of texts/s and GAINS, a row for each workload, threads and batch size."""
    lines = [
        f"| workload, threads, batch | {' | '.join([*WAYS, *GAINS])} |",
        f"|---|{'---:|' * (len(WAYS) + len(GAINS))}",
    ]
    by_row: dict[tuple[str, int, int], dict[str, float]] = {}
    for f in figures:
        by_row.setdefault((f.workload, f.threads, f.batch_size), {})[f.way] = f.texts_per_s
    for (workload, threads, size), row in by_row.items():
        rates = [f"{row[way]:.1f}" for way in WAYS]
        gains = [f"{row[way] / row[other]:.2f}" for way, other in GAINS.values()]
        lines.append(f"| {workload}, {threads}, {size} | {' | '.join(rates + gains)} |")
    return "\n".join(lines) + "\n"


def write_csv(figures: Sequence[Figure], path: Path) -> None:
    """One line per figure."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(figures[0])))
        writer.writeheader()
        writer.writerows(asdict(figure) for figure in figures)


def write_plot(figures: Sequence[Figure], path: Path) -> None:
    """Texts/s over the batch size, a panel for each workload and thread count."""
    from matplotlib.figure import Figure as Plot

    panels = sorted({(f.workload, f.threads) for f in figures})
    plot = Plot(figsize=(5 * len(panels), 4), layout="constrained")
    for axes, (workload, threads) in zip(
        plot.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        for way in WAYS:
            points = [
                f for f in figures if (f.workload, f.threads, f.way) == (workload, threads, way)
            ]
            axes.plot(
                [f.batch_size for f in points], [f.texts_per_s for f in points], "o-", label=way
            )
        axes.set(
            title=f"{workload}, {threads} thread(s)",
            xlabel="texts in a batch",
            ylabel="texts/s",
            xscale="log",
            ylim=(0, None),
        )
        axes.set_xticks(sorted({f.batch_size for f in figures}))
        axes.get_xaxis().set_major_formatter("{x:.0f}")
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    handles, names = plot.axes[0].get_legend_handles_labels()
    plot.legend(handles, names, loc="outside lower center", ncols=len(WAYS))
    plot.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
