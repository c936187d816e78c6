"""Reports of evaluations that no server is needed for: many classes, odd labels, the folder."""

import io
import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

from text_pipeline.client.head import REGRESSION, SINGLE_LABEL, Head
from text_pipeline.client.pipeline import Classification
from text_pipeline.errors import TextPipelineError
from text_pipeline.evaluation import plots, report, tables
from text_pipeline.evaluation.evaluate import Evaluated, Evaluation
from text_pipeline.evaluation.tasks import task_of


def evaluation(labels: tuple[str, ...], kind: str = SINGLE_LABEL) -> Evaluation:
    """One model that takes every class for the next one in a tenth of 2,000 texts."""
    head = Head(kind, labels)
    task = task_of([head])
    numbers = np.arange(2000) % len(labels)
    targets = [task.target(labels[n] if kind == SINGLE_LABEL else float(n)) for n in numbers]
    answers = [
        task.answer(Classification((labels[(n + (i % 10 == 0)) % len(labels)],), (0.8,), 5, False))
        for i, n in enumerate(numbers)
    ]
    model = Evaluated("version 1", "host:1", 1, answers, 0, task.scores(targets, answers))
    return Evaluation("data.jsonl", head, task, range(1, 2001), targets, [model], None)


def shown(found: Evaluation) -> str:
    file = io.StringIO()
    tables.show(found, Console(file=file, width=80))
    return file.getvalue()


def test_a_thousand_classes_are_shown_by_the_worst(tmp_path: Path) -> None:
    found = evaluation(tuple(f"intent {number}" for number in range(1000)))
    text = shown(found)
    assert "The 30 classes of 1,000 with the lowest F1" in text
    assert len(text.splitlines()) < 80
    report.write(found, tmp_path / "report")
    height, width, _ = matplotlib.image.imread(tmp_path / "report" / "confusion.png").shape
    assert max(height, width) < 2000
    whole = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert sum(line.startswith("| intent ") for line in whole.splitlines()) > 1000
    content = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert sum(pair["texts"] for pair in content["models"][0]["confusions"]) == 2000


def test_the_most_confused_classes_are_drawn_in_class_order() -> None:
    matrix = np.diag(np.full(100, 50))
    matrix[70, 3] = 9
    chosen = plots.most_confused([matrix])
    assert {3, 70} < set(chosen)
    assert list(chosen) == sorted(chosen)
    assert len(chosen) == plots.SHOWN_CLASSES


def test_labels_of_all_kinds_are_shown_as_they_are(tmp_path: Path) -> None:
    labels = ("[bold]", "a|b", "$x_1$ $", "two\nlines", "新闻", "\x1b[2J")
    text = shown(evaluation(labels))
    assert "[bold]" in text
    assert "\x1b[2J" not in text
    report.write(evaluation(labels), tmp_path / "report")
    rows = (tmp_path / "report" / "report.md").read_text(encoding="utf-8").splitlines()
    (row,) = (row for row in rows if row.startswith(r"| a\|b | 33"))
    assert row.count("|") == 7


def test_a_regression_has_a_picture_of_its_values(tmp_path: Path) -> None:
    report.write(evaluation(("score",), REGRESSION), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"report.md", "report.json", "answers.jsonl", "values.png"}
    assert json.loads((tmp_path / "report.json").read_text())["models"][0]["measures"] == {
        "mean absolute error": pytest.approx(0.8), "Pearson's r": None, "Spearman's rho": None,
    }  # fmt: skip


def test_a_report_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    for taken in (tmp_path, tmp_path / "kept"):
        with pytest.raises(TextPipelineError, match="exists and is not empty: name another"):
            report.check_output(taken)
    report.check_output(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_report_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TextPipelineError, match=r"file/report: Not a directory"):
        report.write(evaluation(("a", "b")), tmp_path / "file" / "report")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
