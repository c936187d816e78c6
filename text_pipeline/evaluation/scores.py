"""How right answers are, in numbers: scikit-learn's and scipy's, and the calibration error."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, pearsonr, spearmanr
from sklearn.metrics import (
    confusion_matrix,
    f1_score,
    mean_absolute_error,
    precision_recall_fscore_support,
)

BINS = 15
"""Of equal width, for the calibration error: as in Guo et al. 2017."""
CONFIDENCE = 0.95
"""Of all intervals."""


@dataclass(frozen=True)
class ClassScore:
    """One class as scikit-learn's classification report has it."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int
    """Texts of this class in the data."""


@dataclass(frozen=True)
class Bin:
    """The answers with scores of about the same height."""

    count: int
    score: float
    """Their mean score."""
    right: float
    """The share of them that is right."""


@dataclass(frozen=True)
class Scores:
    """What one model's answers are worth."""

    summary: dict[str, float]
    """Every measure by its name; the first one is what versions are compared by."""
    interval: tuple[float, float] | None
    """Of the first measure: where it lies for other texts of the same kind."""
    merit: NDArray[np.float64]
    """[texts], its mean being the first measure: 1 for a right answer, 0 for a wrong one."""
    merit_is_error: bool = False
    """For a regression it is the absolute error instead."""
    classes: list[ClassScore] = field(default_factory=list)
    """In class order; without classes that are neither in the data nor in the answers."""
    confusion: NDArray[np.int64] | None = None
    """[classes, classes]: texts of each class by the class that was answered."""
    bins: list[Bin] = field(default_factory=list)


def single_label(
    labels: Sequence[str],
    given: NDArray[np.int64],
    answered: NDArray[np.int64],
    score: NDArray[np.float64],
) -> Scores:
    """Class numbers [texts] as given and as answered, and the score of the answer."""
    right = given == answered
    classes = _class_scores(labels, given, answered, np.union1d(given, answered))
    bins = calibration(score, right)
    return Scores(
        {
            "accuracy": float(right.mean()),
            "macro F1": _macro_f1(classes),
            "calibration error": calibration_error(bins),
        },
        _interval(right),
        right.astype(float),
        classes=classes,
        confusion=confusion_matrix(given, answered, labels=range(len(labels))),
        bins=bins,
    )


def multi_label(
    labels: Sequence[str],
    given: NDArray[np.bool_],
    answered: NDArray[np.bool_],
    score: NDArray[np.float64],
) -> Scores:
    """[texts, classes]: which labels apply, which were answered, and every label's score."""
    right = (given == answered).all(axis=1)
    present = np.flatnonzero((given | answered).any(axis=0))
    classes = _class_scores(labels, given, answered, present)
    bins = calibration(score.ravel(), given.ravel())
    return Scores(
        {
            "all labels right": float(right.mean()),
            "micro F1": float(f1_score(given, answered, average="micro", zero_division=np.nan)),
            "macro F1": _macro_f1(classes),
            "calibration error": calibration_error(bins),
        },
        _interval(right),
        right.astype(float),
        classes=classes,
        bins=bins,
    )


def regression(given: NDArray[np.float64], answered: NDArray[np.float64]) -> Scores:
    """Values [texts] as given and as answered."""
    # A correlation needs two different values on both sides.
    varies = len(np.unique(given)) > 1 and len(np.unique(answered)) > 1
    return Scores(
        {
            "mean absolute error": float(mean_absolute_error(given, answered)),
            "Pearson's r": float(pearsonr(given, answered).statistic) if varies else np.nan,
            "Spearman's rho": float(spearmanr(given, answered).statistic) if varies else np.nan,
        },
        None,
        np.abs(given - answered),
        merit_is_error=True,
    )


def calibration(score: NDArray[np.float64], right: NDArray[np.bool_]) -> list[Bin]:
    """The answers in BINS of scores from 0 to 1; bins without answers are left out."""
    bin_of = np.clip(np.ceil(score * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(bin_of, minlength=BINS)
    scores = np.bincount(bin_of, score, BINS)
    rights = np.bincount(bin_of, right, BINS)
    return [
        Bin(int(counts[i]), float(scores[i] / counts[i]), float(rights[i] / counts[i]))
        for i in np.flatnonzero(counts)
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """How far scores are from the share that is right, on average: the ECE of Guo et al. 2017."""
    gaps = [abs(bin_.score - bin_.right) for bin_ in bins]
    return float(np.average(gaps, weights=[bin_.count for bin_ in bins]))


def _class_scores(
    labels: Sequence[str], given: NDArray[Any], answered: NDArray[Any], present: NDArray[np.int64]
) -> list[ClassScore]:
    if not len(present):
        return []
    columns = precision_recall_fscore_support(given, answered, labels=present, zero_division=0)
    return [
        ClassScore(labels[index], float(precision), float(recall), float(f1), int(support))
        for index, precision, recall, f1, support in zip(present, *columns, strict=True)
    ]


def _macro_f1(classes: Sequence[ClassScore]) -> float:
    """Over the classes of the data or the answers, as scikit-learn does it by default."""
    return float(np.mean([c.f1 for c in classes])) if classes else np.nan


def _interval(right: NDArray[np.bool_]) -> tuple[float, float]:
    """Wilson's interval of a share."""
    found = binomtest(int(right.sum()), len(right)).proportion_ci(CONFIDENCE, method="wilson")
    return float(found.low), float(found.high)
