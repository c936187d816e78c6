"""What an evaluation found, as a folder without any text of the data."""

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from text_pipeline.errors import TextPipelineError
from text_pipeline.evaluation import plots, tables
from text_pipeline.evaluation.evaluate import Evaluation
from text_pipeline.files import markdown, records


def check_output(folder: Path) -> None:
    """Raises TextPipelineError if the report could not be written there: a report is kept."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TextPipelineError(f"{folder} exists and is not empty: name another folder")


def write(evaluation: Evaluation, folder: Path) -> None:
    """report.md, report.json, answers.jsonl and plots; the folder appears when it is complete."""
    with _new_folder(folder) as staged:
        drawn = plots.write(evaluation, staged)
        (staged / "report.md").write_text(_document(evaluation, drawn), encoding="utf-8")
        content = json.dumps(_content(evaluation), indent=2, ensure_ascii=False, allow_nan=False)
        (staged / "report.json").write_text(content + "\n", encoding="utf-8")
        with (staged / "answers.jsonl").open("wb") as file:
            for line in _answer_lines(evaluation):
                records.write(line, file)


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    staged = folder.absolute().with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        staged.mkdir(parents=True)
        yield staged
        staged.replace(folder)
    except OSError as error:
        raise TextPipelineError(f"{folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _document(evaluation: Evaluation, drawn: dict[str, str]) -> str:
    parts = [
        f"## {sheet.title}\n\n{markdown.table(sheet.names, sheet.rows, words=sheet.words)}"
        for sheet in tables.sheets(evaluation)
    ]
    pictures = [f"![{title}]({name})" for name, title in drawn.items()]
    return "\n\n".join(["# Evaluation", *tables.sentences(evaluation), *parts, *pictures]) + "\n"


def _content(evaluation: Evaluation) -> dict[str, Any]:
    """For report.json."""
    labels = evaluation.head.labels
    models = []
    for model in evaluation.models:
        scores = model.scores
        content: dict[str, Any] = {
            "name": model.name,
            "url": model.url,
            "version": model.version,
            "texts_cut": model.cut,
            "measures": {
                name: value if math.isfinite(value) else None
                for name, value in scores.summary.items()
            },
            "interval": scores.interval,
            "classes": [asdict(found) for found in scores.classes],
            "calibration": [asdict(bin_) for bin_ in scores.bins],
        }
        if scores.confusion is not None:
            # Of a thousand classes nearly all of a million pairs never occur.
            content["confusions"] = [
                {
                    "label": labels[given],
                    "answered": labels[answered],
                    "texts": int(scores.confusion[given, answered]),
                }
                for given, answered in np.argwhere(scores.confusion)
            ]
        models.append(content)
    return {
        "data": evaluation.data,
        "texts": len(evaluation.targets),
        "kind": evaluation.head.kind,
        "labels": labels,
        "models": models,
        "comparison": evaluation.comparison
        and asdict(evaluation.comparison) | {"changed": evaluation.changed},
    }


def _answer_lines(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """The line's number in the data and every model's answer: what to look up in the data."""
    rows = zip(*(model.answers for model in evaluation.models), strict=True)
    for number, row in zip(evaluation.lines, rows, strict=True):
        answers = dict(zip((m.name for m in evaluation.models), row, strict=True))
        yield {"line": number} | {k: evaluation.task.shown(v) for k, v in answers.items()}
