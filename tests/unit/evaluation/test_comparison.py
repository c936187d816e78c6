"""Differences between two models, beside scipy's own ways to the same numbers."""

from math import comb

import numpy as np
import pytest
from scipy.stats import bootstrap

from text_pipeline.evaluation.comparison import compare
from text_pipeline.evaluation.scores import Scores, regression


def right(values: list[int]) -> Scores:
    return Scores({"accuracy": float(np.mean(values))}, None, np.array(values, float))


def test_texts_that_only_one_has_right_decide() -> None:
    first, second = right([1] * 3 + [0] * 9 + [1] * 88), right([0] * 3 + [1] * 9 + [1] * 88)
    found = compare(first, second)
    assert (found.better, found.worse) == (9, 3)
    assert found.difference == pytest.approx(0.06)
    # Twelve throws of a coin, of which at most three or at least nine are heads.
    assert found.p_value == pytest.approx(2 * sum(comb(12, k) for k in range(4)) / 2**12)
    assert found.is_chance
    expected = bootstrap(
        (second.merit - first.merit,), np.mean, method="percentile", random_state=0
    ).confidence_interval
    assert found.interval == pytest.approx((expected.low, expected.high), abs=0.011)


def test_a_clear_difference_is_no_chance() -> None:
    found = compare(right([0] * 20 + [1] * 80), right([1] * 100))
    assert not found.is_chance
    assert found.interval[0] > 0


def test_equal_models_do_not_differ() -> None:
    found = compare(right([0, 1, 1]), right([0, 1, 1]))
    assert (found.difference, found.interval, found.p_value) == (0, (0, 0), 1)


def test_smaller_errors_of_a_regression_are_better() -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(size=60)
    first = regression(given, given + rng.normal(0, 1, 60))
    second = regression(given, given + rng.normal(0, 0.1, 60))
    found = compare(first, second)
    assert found.better > found.worse
    assert found.interval[0] < found.difference < found.interval[1] < 0
    assert not found.is_chance
    same = compare(first, first)
    assert (same.difference, same.p_value, same.better, same.worse) == (0, 1, 0, 0)
