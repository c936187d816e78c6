"""What makes a claim pass, fail, or not run."""

import math
from dataclasses import replace

import pytest

from load.gpu_check import plan
from load.gpu_check.claims import (
    AT_LEAST,
    AT_MOST,
    CLAIMS,
    FAIL,
    NOT_RUN,
    PASS,
    Claim,
    judge,
    number,
)

LIMIT = Claim("p99", "p99 is low", "so", "there", "p99", AT_MOST, 20, "ms")
RATIO = Claim("gain", "it gains", "so", "there", "with", AT_LEAST, 1.5, "x", over="without")


@pytest.mark.parametrize(
    "claim, figures, outcome, words",
    [
        (LIMIT, {"p99": 20}, PASS, "20 ms"),
        (LIMIT, {"p99": 20.5}, FAIL, "20.5 ms"),
        (LIMIT, {"p99": math.nan}, FAIL, "nan ms"),
        (LIMIT, {"p99": math.inf}, FAIL, "inf ms"),
        (LIMIT, {"p98": 1}, NOT_RUN, "step load failed"),
        (replace(LIMIT, bound=AT_LEAST), {"p99": 20.5}, PASS, "20.5 ms"),
        (RATIO, {"with": 1250, "without": 180}, PASS, "6.94 x (1250 against 180)"),
        (RATIO, {"with": 200, "without": 180}, FAIL, "1.11 x (200 against 180)"),
        (RATIO, {"with": 200, "without": 0}, NOT_RUN, "200 against 0: no ratio"),
        (RATIO, {"with": 200}, NOT_RUN, "nothing here measures it"),
    ],
)
def test_a_claim_is_judged_by_what_was_measured(claim, figures, outcome, words) -> None:
    verdict = judge(claim, figures, {"p99": "step load failed"})
    assert (verdict.outcome, verdict.measured_in_words) == (outcome, words)


def test_every_claim_is_about_figures_that_a_step_measures() -> None:
    measured = {figure for step in plan.steps() for figure in step.figures}
    assert {figure for claim in CLAIMS for figure in claim.figures} <= measured
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize(
    "value, words", [(1250, "1250"), (0, "0"), (0.00342, "0.00342"), (18.24, "18.2"), (2.0, "2")]
)
def test_numbers_have_three_digits(value: float, words: str) -> None:
    assert number(value) == words
