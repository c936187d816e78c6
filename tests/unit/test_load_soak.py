"""What the soak finds wrong."""

import pytest

from load.soak import COLUMNS, Record, pool


def record(last: float = 100.0) -> Record:
    """300 s in which every column is 100, and `last` in the last third."""
    rows = [(float(s), *[100.0 if s < 210 else last] * (len(COLUMNS) - 1)) for s in range(300)]
    found = Record(rows)
    found.outcomes.update({"answered": 900, "cancelled": 90, "reloads": 5})
    return found


def test_a_plateau_is_no_problem() -> None:
    assert record().problems() == []
    assert record(last=105.0).problems() == []


def test_growth_is_named() -> None:
    problems = record(last=120.0).problems()
    assert problems == [f"{column} grew from 100 to 120" for column in COLUMNS[1:]]


@pytest.mark.parametrize("outcome", ["answered wrongly", "failed: INTERNAL why"])
def test_a_wrong_or_failed_request_is_a_problem(outcome: str) -> None:
    found = record()
    found.outcomes[outcome] += 2
    assert found.problems() == [f"2 requests {outcome}"]


def test_the_texts_are_of_all_lengths() -> None:
    lengths = sorted(map(len, pool(seed=0)))
    assert lengths[0] < 10
    assert lengths[-1] > 2000
