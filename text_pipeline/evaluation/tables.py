"""What an evaluation found, as tables and sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from text_pipeline.cli.display import plain
from text_pipeline.evaluation.evaluate import Evaluation
from text_pipeline.evaluation.scores import CONFIDENCE, ClassScore

TERMINAL_CLASSES = 30
CONFUSIONS = 10
_LISTED_LABELS = 20


@dataclass(frozen=True)
class Sheet:
    """A table, wherever it is shown."""

    title: str
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    """Columns of words; the others are numbers."""


def show(evaluation: Evaluation, console: Console) -> None:
    """Prints the tables; of many classes the worst."""
    for sheet in sheets(evaluation, TERMINAL_CLASSES):
        table = Table(title=sheet.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for number, name in enumerate(sheet.names):
            table.add_column(name, justify="left" if number < sheet.words else "right")
        for row in sheet.rows:
            table.add_row(*map(plain, row))
        console.print(table)
    for sentence in sentences(evaluation):
        console.print(plain(sentence))


def sheets(evaluation: Evaluation, limit: int | None = None) -> list[Sheet]:
    """The tables; that of the classes has at most `limit` rows, the worst."""
    found = [_summary(evaluation)]
    if evaluation.models[0].scores.classes:
        found.append(_classes(evaluation, limit))
    if confusions := _confusions(evaluation):
        found.append(confusions)
    return found


def sentences(evaluation: Evaluation) -> list[str]:
    """How two models differ, and which labels the data lacks."""
    found = [_comparison(evaluation)] if evaluation.comparison else []
    if absent := evaluation.absent_labels:
        listed = ", ".join(absent[:_LISTED_LABELS])
        more = f" and {len(absent) - _LISTED_LABELS:,} more" if len(absent) > _LISTED_LABELS else ""
        found.append(f"Labels of the model that the data does not have: {listed}{more}.")
    return found


def _comparison(evaluation: Evaluation) -> str:
    found = evaluation.comparison
    assert found is not None
    first, second = (model.name for model in evaluation.models)
    measure = next(iter(evaluation.models[0].scores.summary))
    verdict = "it may be chance" if found.is_chance else "more than chance"
    return (
        f"{evaluation.changed} of {len(evaluation.targets)} texts get another answer from "
        f"{second} than from {first}; {found.better} get a better one, {found.worse} a worse one. "
        f"The {measure} changes by {found.difference:+.3f} "
        f"({CONFIDENCE:.0%} interval {_range(found.interval, '+')}; {found.test}, "
        f"p = {found.p_value:.2g}): {verdict}."
    )


def _summary(evaluation: Evaluation) -> Sheet:
    models = evaluation.models
    rows = []
    for number, measure in enumerate(models[0].scores.summary):
        intervals = [model.scores.interval if number == 0 else None for model in models]
        values = [model.scores.summary[measure] for model in models]
        cells = [
            f"{value:.3f}" + (f" ({_range(interval)})" if interval else "")
            for value, interval in zip(values, intervals, strict=True)
        ]
        name = f"{measure} ({CONFIDENCE:.0%} interval)" if intervals[0] else measure
        rows.append([name, *cells, *_difference(values)])
    rows.append(["texts cut", *(str(model.cut) for model in models), *[""] * (len(models) - 1)])
    names = ["", *(model.name for model in models), *["difference"] * (len(models) - 1)]
    return Sheet(f"{len(evaluation.targets):,} texts of {evaluation.data}", names, rows)


def _classes(evaluation: Evaluation, limit: int | None) -> Sheet:
    """Precision, recall and F1 of the one model and, behind an arrow, of the other."""
    by_label: dict[str, list[ClassScore | None]] = {}
    for number, model in enumerate(evaluation.models):
        for found in model.scores.classes:
            by_label.setdefault(found.label, [None] * len(evaluation.models))[number] = found
    chosen = [label for label in evaluation.head.labels if label in by_label]
    title = "Classes"
    if limit is not None and len(chosen) > limit:
        title = f"The {limit} classes of {len(chosen):,} with the lowest F1"
        chosen = sorted(chosen, key=lambda label: _lowest_f1(by_label[label]))[:limit]
    rows = []
    for label in chosen:
        columns = [
            [getattr(score, name) if score else 0.0 for score in by_label[label]]
            for name in ("precision", "recall", "f1")
        ]
        support = max(score.support for score in by_label[label] if score)
        cells = ["→".join(f"{value:.3f}" for value in column) for column in columns]
        rows.append([label, str(support), *cells, *_difference(columns[-1])])
    names = ["label", "texts", "precision", "recall", "F1"]
    names += ["difference"] * (len(evaluation.models) - 1)
    return Sheet(title, names, rows)


def _lowest_f1(scores: Sequence[ClassScore | None]) -> float:
    return min(score.f1 if score else 0.0 for score in scores)


def _confusions(evaluation: Evaluation) -> Sheet | None:
    """The pairs of classes that are most often taken for each other."""
    matrices = [m.scores.confusion for m in evaluation.models if m.scores.confusion is not None]
    if not matrices:
        return None
    wrong = np.max(matrices, axis=0)
    np.fill_diagonal(wrong, 0)
    labels = evaluation.head.labels
    rows = []
    for flat in np.argsort(-wrong, axis=None, kind="stable")[:CONFUSIONS]:
        given, answered = divmod(int(flat), len(labels))
        if wrong[given, answered]:
            counts = [str(matrix[given, answered]) for matrix in matrices]
            rows.append([labels[given], labels[answered], *counts])
    names = ["label", "answered", *(model.name for model in evaluation.models)]
    return Sheet("Most often confused", names, rows, words=2) if rows else None


def _difference(values: Sequence[float]) -> list[str]:
    """The last column of a comparison; none for one model."""
    return [f"{values[1] - values[0]:+.3f}"] if len(values) > 1 else []


def _range(interval: tuple[float, float], sign: str = "") -> str:
    low, high = (f"{value:{sign}.3f}" for value in interval)
    return f"{low} to {high}"
