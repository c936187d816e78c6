"""The pictures of an evaluation: confusions, calibration, values."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from text_pipeline.evaluation.evaluate import Evaluated, Evaluation
from text_pipeline.evaluation.scores import BINS

SHOWN_CLASSES = 30
"""Of more, a picture shows those that are most often confused."""
_CLASSES_WITH_COUNTS = 12
_TICK_CHARACTERS = 24


def write(evaluation: Evaluation, folder: Path) -> dict[str, str]:
    """Draws what there is data for; returns every file's name with its title."""
    figures = {}
    if evaluation.models[0].scores.confusion is not None:
        figures["confusion.png"] = (_confusion(evaluation), "Confusion matrix")
    if evaluation.models[0].scores.bins:
        figures["reliability.png"] = (_reliability(evaluation.models), "Reliability")
    if evaluation.models[0].scores.merit_is_error:
        figures["values.png"] = (_values(evaluation), "Values")
    with warnings.catch_warnings():
        # Characters that matplotlib's font lacks become boxes; the tables have them.
        warnings.filterwarnings("ignore", "Glyph")
        for name, (figure, _) in figures.items():
            figure.savefig(folder / name, dpi=110)
    return {name: title for name, (_, title) in figures.items()}


def _confusion(evaluation: Evaluation) -> Figure:
    matrices = [m.scores.confusion for m in evaluation.models if m.scores.confusion is not None]
    chosen = most_confused(matrices)
    size = max(4.0, 2.5 + 0.25 * len(chosen))
    figure = Figure(figsize=(size * len(matrices) + 1, size), layout="constrained")
    row = figure.subplots(1, len(matrices), squeeze=False)[0]
    ticks = [_short(evaluation.head.labels[index]) for index in chosen]
    for axes, model, matrix in zip(row, evaluation.models, matrices, strict=True):
        counts = matrix[np.ix_(chosen, chosen)]
        # Every row is a whole, that of the class in the data; a class without texts stays white.
        shares = counts / np.maximum(matrix[chosen].sum(axis=1, keepdims=True), 1)
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(chosen)), ticks, rotation=90)
        axes.set_yticks(range(len(chosen)), ticks)
        title = model.name
        if len(chosen) < len(matrix):
            title += f": {len(chosen)} most confused of {len(matrix):,} classes"
        axes.set(title=title, xlabel="answered", ylabel="label in the data")
        if len(chosen) <= _CLASSES_WITH_COUNTS:
            for (y, x), count in np.ndenumerate(counts):
                color = "white" if shares[y, x] > 0.5 else "black"
                axes.text(x, y, str(count), ha="center", va="center", color=color)
    figure.colorbar(image, ax=row[-1], label="share of the class's texts")
    return figure


def most_confused(matrices: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The classes to show, in class order."""
    wrong = np.sum(matrices, axis=0)
    np.fill_diagonal(wrong, 0)
    confusions = wrong.sum(axis=0) + wrong.sum(axis=1)
    return np.sort(np.argsort(-confusions, kind="stable")[:SHOWN_CLASSES])


def _reliability(models: Sequence[Evaluated]) -> Figure:
    figure = Figure(figsize=(6, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    above.plot([0, 1], [0, 1], "k--", linewidth=1, label="calibrated")
    for model in models:
        bins = model.scores.bins
        score = [bin_.score for bin_ in bins]
        error = model.scores.summary["calibration error"]
        above.plot(score, [b.right for b in bins], "o-", label=f"{model.name}, error {error:.3f}")
        total = sum(bin_.count for bin_ in bins)
        below.plot(score, [b.count / total for b in bins], "o-")
    above.set(ylabel="share that is right", ylim=(0, 1.02))
    below.set(
        xlabel=f"mean score of each of {BINS} bins", ylabel="share of answers", xlim=(0, 1.02)
    )
    above.legend(fontsize="small")
    _finish(above, "Reliability")
    below.grid(alpha=0.3)
    return figure


def _values(evaluation: Evaluation) -> Figure:
    count = len(evaluation.models)
    figure = Figure(figsize=(5 * count, 5), layout="constrained")
    row = figure.subplots(1, count, squeeze=False, sharex=True, sharey=True)[0]
    for axes, model in zip(row, evaluation.models, strict=True):
        axes.plot(evaluation.targets, model.answers, ".", alpha=0.5)
        axes.axline((0, 0), slope=1, color="black", linestyle="--", linewidth=1)
        axes.set(xlabel="value in the data", ylabel="answered")
        _finish(axes, model.name)
    return figure


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.grid(alpha=0.3)


def _short(label: str) -> str:
    # A dollar sign begins a formula in matplotlib.
    label = " ".join(label.split()).replace("$", r"\$")
    return label if len(label) <= _TICK_CHARACTERS else label[: _TICK_CHARACTERS - 1] + "…"
