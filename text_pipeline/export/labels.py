"""The names of the classes, as config.json has them."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from text_pipeline.errors import TextPipelineError


def labels_in_order(id2label: Mapping[int | str, Any]) -> list[str]:
    """The labels by integer key, "10" after "2"; numbers and booleans as JSON writes them.

    Raises TextPipelineError where an answer would name no class, or one of two: a gap would shift
    every label behind it.
    """
    by_class: dict[int, str] = {}
    for key, value in id2label.items():
        number = _class_number(key)
        if number in by_class:
            raise TextPipelineError(f"id2label names class {number} twice")
        by_class[number] = _name(number, value)
    expected = list(range(len(by_class)))
    if not by_class or sorted(by_class) != expected:
        last = max(by_class, default=0)
        missing = itertools.islice((n for n in range(last + 1) if n not in by_class), 10)
        raise TextPipelineError(
            f"id2label has {len(by_class)} labels with keys up to {last}: "
            f"missing {', '.join(map(str, missing))}"
        )
    labels = [by_class[number] for number in expected]
    _check_distinct(labels)
    return labels


def label_line(label: str) -> str:
    """A label as Triton's label file has it, which has one a line."""
    return " ".join(label.splitlines())


def _class_number(key: int | str) -> int:
    if isinstance(key, str) and not (key.isascii() and key.isdigit()):
        raise TextPipelineError(
            f"id2label has the key {json.dumps(key)}, expected the number of a class: are names "
            "and numbers exchanged, as in label2id?"
        )
    return int(key)


def _name(number: int, value: Any) -> str:
    if isinstance(value, bool | int | float):
        value = json.dumps(value)
    if not isinstance(value, str) or not value.strip():
        raise TextPipelineError(
            f"id2label names class {number} {json.dumps(value, default=str)}, expected a name: "
            "write one into config.json"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TextPipelineError(
            f"id2label names class {number} {json.dumps(value)}, which is not Unicode text "
            f"({error.reason}): write another name into config.json"
        ) from None
    return value


def _check_distinct(labels: list[str]) -> None:
    first: dict[str, int] = {}
    for number, label in enumerate(labels):
        if (same := first.setdefault(label_line(label), number)) != number:
            raise TextPipelineError(
                f"id2label names classes {same} and {number} both {json.dumps(label)}, and nobody "
                "could tell them apart: give each its own name in config.json"
            )
