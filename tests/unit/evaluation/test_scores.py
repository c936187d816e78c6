"""Measures beside scikit-learn's on answers of all kinds."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, classification_report, f1_score

from text_pipeline.evaluation import scores

LABELS = [f"label {number}" for number in range(8)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_single_label_measures_are_scikit_learns(rng: np.random.Generator) -> None:
    given = rng.choice([0, 1, 2, 5], 300)
    # Class 5 is never answered, 6 is not in the data, 3, 4 and 7 are in neither.
    answered = np.where(rng.random(300) < 0.6, np.where(given == 5, 6, given), rng.choice(3, 300))
    found = scores.single_label(LABELS, given, answered, rng.uniform(0.2, 1, 300))
    assert found.summary["accuracy"] == accuracy_score(given, answered)
    assert found.summary["macro F1"] == pytest.approx(
        f1_score(given, answered, average="macro", zero_division=0)
    )
    expected = classification_report(given, answered, output_dict=True, zero_division=0)
    assert [score.label for score in found.classes] == [LABELS[i] for i in (0, 1, 2, 5, 6)]
    for score in found.classes:
        row = expected[score.label.removeprefix("label ")]
        assert (score.precision, score.recall, score.f1, score.support) == tuple(row.values())
    assert found.confusion.sum(axis=1).tolist() == np.bincount(given, minlength=8).tolist()
    assert found.confusion.sum(axis=0).tolist() == np.bincount(answered, minlength=8).tolist()


def test_multi_label_measures_are_scikit_learns(rng: np.random.Generator) -> None:
    given = rng.random((200, 8)) < 0.2
    given[:, 7] = False
    score = np.clip(0.6 * given + rng.normal(0.2, 0.25, given.shape), 0, 1)
    score[:, 7] = 0
    answered = score >= 0.5
    found = scores.multi_label(LABELS, given, answered, score)
    assert found.summary["all labels right"] == accuracy_score(given, answered)
    for average in ("micro", "macro"):
        assert found.summary[f"{average} F1"] == pytest.approx(
            f1_score(given[:, :7], answered[:, :7], average=average)
        )
    assert [(c.label, c.support) for c in found.classes] == [
        (LABELS[index], given[:, index].sum()) for index in range(7)
    ]


@pytest.mark.parametrize("top", [0.3, 1])
def test_bins_are_scikit_learns_and_weigh_by_their_texts(
    rng: np.random.Generator, top: float
) -> None:
    score = rng.uniform(0, top, 500)
    right = rng.random(500) < score**2
    bins = scores.calibration(score, right)
    rights, means = calibration_curve(right, score, n_bins=scores.BINS)
    np.testing.assert_allclose([bin_.right for bin_ in bins], rights)
    np.testing.assert_allclose([bin_.score for bin_ in bins], means)
    assert sum(bin_.count for bin_ in bins) == 500
    counts = np.histogram(score, scores.BINS, (0, 1))[0]
    expected = (np.abs(rights - means) * counts[counts > 0]).sum() / 500
    assert scores.calibration_error(bins) == pytest.approx(expected)


def test_calibration_error_of_known_answers() -> None:
    # Four answers with 0.9, three of them right; six with 0.6, all right.
    score = np.array([0.9] * 4 + [0.6] * 6)
    right = np.array([True] * 3 + [False] + [True] * 6)
    expected = 0.4 * 0.15 + 0.6 * 0.4
    assert scores.calibration_error(scores.calibration(score, right)) == pytest.approx(expected)


def test_scores_at_both_ends_have_a_bin() -> None:
    bins = scores.calibration(np.array([0.0, 1.0]), np.array([False, True]))
    assert [(bin_.count, bin_.score, bin_.right) for bin_ in bins] == [(1, 0, 0), (1, 1, 1)]


def test_regression_measures_of_known_values() -> None:
    found = scores.regression(np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 9.0]))
    assert found.summary == {
        "mean absolute error": 2.0,
        "Pearson's r": pytest.approx(np.corrcoef([1, 2, 4], [1, 3, 9])[0, 1]),
        "Spearman's rho": pytest.approx(1),
    }


def test_a_measure_that_does_not_exist_is_not_a_number() -> None:
    constant = scores.regression(np.array([1.0, 1.0]), np.array([1.0, 3.0]))
    assert np.isnan(constant.summary["Pearson's r"])
    nothing = np.zeros((3, 2), bool)
    empty = scores.multi_label(LABELS[:2], nothing, nothing, np.full((3, 2), 0.1))
    assert empty.summary["all labels right"] == 1
    assert np.isnan([empty.summary["micro F1"], empty.summary["macro F1"]]).all()
