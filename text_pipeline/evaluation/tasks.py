"""What each kind of model is asked in the data, and how its answers are scored."""

import difflib
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from text_pipeline.client.head import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Head
from text_pipeline.client.pipeline import Classification
from text_pipeline.errors import TextPipelineError
from text_pipeline.evaluation import scores
from text_pipeline.evaluation.scores import Scores

THRESHOLD = 0.5
"""Score from which on a label of a multi-label model applies."""
_SHOWN_LABELS = 20


class Task(ABC):
    """One kind of model. A text's target and answer are kept in the smallest form that does."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = labels
        self.index = {label: index for index, label in enumerate(labels)}

    @abstractmethod
    def target(self, value: Any) -> Any:
        """From the field `label` of a record; raises ValueError with what was expected."""

    @abstractmethod
    def answer(self, answer: Classification) -> Any:
        """From what the server says."""

    @abstractmethod
    def decision(self, answer: Any) -> Hashable:
        """What the answer says, without its scores."""

    @abstractmethod
    def shown(self, answer: Any) -> dict[str, Any]:
        """An answer in words, for a file."""

    @abstractmethod
    def scores(self, targets: Sequence[Any], answers: Sequence[Any]) -> Scores:
        """What the answers are worth."""

    def _class(self, label: Any) -> int:
        if isinstance(label, str) and label in self.index:
            return self.index[label]
        known = list(self.labels)
        if len(known) > _SHOWN_LABELS:
            known = difflib.get_close_matches(str(label), known, 5, 0.3) or known[:5]
        more = len(self.labels) - len(known)
        raise ValueError(
            f"field label: expected one of the model's labels ({', '.join(known)}"
            f"{f' and {more:,} more' if more else ''}), got {label!r:.60}"
        )


class SingleLabel(Task):
    """Softmax: one label for each text."""

    def target(self, value: Any) -> int:
        """The class number of a label."""
        return self._class(value)

    def answer(self, answer: Classification) -> tuple[int, float]:
        """The best class's number and score."""
        return self.index[answer.labels[0]], answer.scores[0]

    def decision(self, answer: tuple[int, float]) -> int:
        """The class number."""
        return answer[0]

    def shown(self, answer: tuple[int, float]) -> dict[str, Any]:
        """Label and score."""
        return {"label": self.labels[answer[0]], "score": answer[1]}

    def scores(self, targets: Sequence[int], answers: Sequence[tuple[int, float]]) -> Scores:
        """As single_label has them."""
        answered, score = zip(*answers, strict=True)
        return scores.single_label(
            self.labels, np.array(targets), np.array(answered), np.array(score)
        )


class MultiLabel(Task):
    """Sigmoid: any number of labels for each text."""

    def target(self, value: Any) -> np.ndarray:
        """BOOL [classes] of a list of labels."""
        if not isinstance(value, list):
            raise ValueError(
                f"field label: expected a list of labels, for any number of them may apply, "
                f"got {value!r:.60}"
            )
        applies = np.zeros(len(self.labels), bool)
        applies[[self._class(label) for label in value]] = True
        return applies

    def answer(self, answer: Classification) -> np.ndarray:
        """FP32 [classes]."""
        row = np.empty(len(self.labels), np.float32)
        row[[self.index[label] for label in answer.labels]] = answer.scores
        return row

    def decision(self, answer: np.ndarray) -> bytes:
        """Which labels apply."""
        return (answer >= THRESHOLD).tobytes()

    def shown(self, answer: np.ndarray) -> dict[str, Any]:
        """The labels that apply, with their scores."""
        applies = np.flatnonzero(answer >= THRESHOLD)
        return {
            "labels": [self.labels[index] for index in applies],
            "scores": answer[applies].tolist(),
        }

    def scores(self, targets: Sequence[np.ndarray], answers: Sequence[np.ndarray]) -> Scores:
        """As multi_label has them."""
        score = np.array(answers, np.float64)
        return scores.multi_label(self.labels, np.array(targets), score >= THRESHOLD, score)


class Regression(Task):
    """A single output as it is: one number for each text."""

    def target(self, value: Any) -> float:
        """A finite number."""
        # JSON's true is an int in Python.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) <= sys.float_info.max:
            raise ValueError(
                f"field label: expected a number, for the model is a regression, got {value!r:.60}"
            )
        return float(value)

    def answer(self, answer: Classification) -> float:
        """The only score."""
        return answer.scores[0]

    def decision(self, answer: float) -> float:
        """The value."""
        return answer

    def shown(self, answer: float) -> dict[str, Any]:
        """The value."""
        return {"score": answer}

    def scores(self, targets: Sequence[float], answers: Sequence[float]) -> Scores:
        """As regression has them."""
        return scores.regression(np.array(targets), np.array(answers))


def task_of(heads: Sequence[Head]) -> Task:
    """The task of one model or of several; raises TextPipelineError if theirs is not the same."""
    first = heads[0]
    for head in heads[1:]:
        if head.kind != first.kind:
            raise TextPipelineError(
                f"expected two models of one kind to compare, got {first.kind} and {head.kind}"
            )
        if different := sorted(set(first.labels) ^ set(head.labels)):
            raise TextPipelineError(
                "expected two models with the same labels to compare, but only one of them has "
                f"{', '.join(different[:_SHOWN_LABELS])}"
            )
    if first.kind == REGRESSION and len(first.labels) > 1:
        raise TextPipelineError(
            f"the model is a regression with {len(first.labels)} values: expected one value"
        )
    kinds: dict[str, type[SingleLabel | MultiLabel | Regression]]
    kinds = {SINGLE_LABEL: SingleLabel, MULTI_LABEL: MultiLabel, REGRESSION: Regression}
    return kinds[first.kind](first.labels)
