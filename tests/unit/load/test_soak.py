"""What the soak finds wrong, and a minute of it."""

import asyncio
from pathlib import Path

import pytest

from load.soak import COLUMNS, Record, pool, soak, two_versions
from text_pipeline.contract import KEY_VARIABLE


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


def test_a_minute_of_it_finds_nothing_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a key of the tests")
    repository = two_versions(tmp_path / "repository")
    found = asyncio.run(soak(repository, seconds=60, reload_s=25, seed=0))
    assert found.problems() == []
    assert found.outcomes["reloads"] > 0
    assert found.outcomes["answered"] > 50
    assert found.outcomes["cancelled"] > 5
