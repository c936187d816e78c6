"""Whether one model is better than another, or only lucky with these texts."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest, ttest_rel

from text_pipeline.evaluation.scores import CONFIDENCE, Scores

RESAMPLES = 10_000


@dataclass(frozen=True)
class Comparison:
    """The second of two models against the first, text by text."""

    difference: float
    """Of the measure they are compared by: second minus first."""
    interval: tuple[float, float]
    """Where the difference lies for other texts of the same kind."""
    p_value: float
    """How often equally good models differ by as much or more."""
    test: str
    better: int
    """Texts that the second answers better: it alone is right, or its error is smaller."""
    worse: int
    """Texts that the first answers better."""

    @property
    def is_chance(self) -> bool:
        """Whether the difference may be one of these texts alone."""
        return self.p_value >= 1 - CONFIDENCE


def compare(first: Scores, second: Scores) -> Comparison:
    """Both for the same texts in the same order."""
    change = second.merit - first.merit
    higher, lower = int((change > 0).sum()), int((change < 0).sum())
    difference = float(change.mean())
    if first.merit_is_error:
        interval, p_value = _t_test(first, second)
        return Comparison(difference, interval, p_value, "paired t-test", lower, higher)
    interval = _bootstrap(higher, lower, len(change))
    # McNemar's exact test: of the texts that only one of them has right, each has half by chance.
    p_value = binomtest(higher, higher + lower).pvalue if higher + lower else 1.0
    return Comparison(difference, interval, float(p_value), "McNemar's test", higher, lower)


def _bootstrap(higher: int, lower: int, count: int) -> tuple[float, float]:
    """The paired bootstrap: texts drawn again and again, each with both of its answers.

    A text's change is 1, -1 or 0, so that drawing `count` texts is drawing how many of each.
    """
    rng = np.random.default_rng(0)
    shares = np.array([higher, lower, count - higher - lower]) / count
    drawn = rng.multinomial(count, shares, RESAMPLES)
    low, high = np.quantile(
        (drawn[:, 0] - drawn[:, 1]) / count, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    )
    return float(low), float(high)


def _t_test(first: Scores, second: Scores) -> tuple[tuple[float, float], float]:
    if np.array_equal(first.merit, second.merit) or len(first.merit) < 2:
        return (0.0, 0.0), 1.0
    found = ttest_rel(second.merit, first.merit)
    low, high = found.confidence_interval(CONFIDENCE)
    return (float(low), float(high)), float(found.pvalue)
