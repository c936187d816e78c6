"""What a tuning run found, as a table and a plot."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.table import Table

from text_pipeline.tuning.search import Point, Trial


def table(frontier: Sequence[Point], best: Point, p99_ms: float) -> Table:
    """The frontier: nothing measured beats these points in both throughput and p99."""
    shown = Table("texts/s", "p99 ms", "in flight", "settings", title=f"target: p99 {p99_ms:g} ms")
    for point in frontier:
        shown.add_row(
            f"{point.texts_per_s:.1f}{'' if point.stable else ' (unstable)'}",
            f"{point.p99_ms:.1f}",
            str(point.concurrency),
            str(point.settings),
            style="bold" if point is best else "" if point.p99_ms <= p99_ms else "dim",
        )
    return shown


def plot(trials: Sequence[Trial], frontier: Sequence[Point], p99_ms: float, path: Path) -> None:
    """p99 over throughput: every configuration a line, the frontier in black."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    for trial in trials:
        axes.plot(
            [point.texts_per_s for point in trial.points],
            [point.p99_ms for point in trial.points],
            ".-", alpha=0.6, label=str(trial.settings),
        )  # fmt: skip
    axes.plot(
        [p.texts_per_s for p in frontier], [p.p99_ms for p in frontier], "k--", label="frontier"
    )
    axes.axhline(p99_ms, color="red", linewidth=1, label=f"target {p99_ms:g} ms")
    axes.set(xlabel="texts/s", ylabel="p99 ms", yscale="log", xlim=(0, None))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="x-small")
    figure.savefig(path, dpi=110)
