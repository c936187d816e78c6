"""The report says what was found, to someone who was not there."""

import json
from pathlib import Path

import pytest

from load.gpu_check import check
from load.gpu_check.claims import AT_LEAST, AT_MOST, FAIL, NOT_RUN, PASS, Claim
from load.gpu_check.found import DOCKER, GRAPHS, Found
from load.gpu_check.record import Point, Record, Table
from load.gpu_check.report import Report
from load.gpu_check.runner import Outcome, Step
from text_pipeline.errors import TextPipelineError

FOUND = Found(["NVIDIA T4"], {DOCKER: "Docker: not installed"})


def nothing(record: Record, work: Path) -> None:
    """Is not run here."""


def step(name: str, needs: str, *figures: str) -> Step:
    return Step(name, "shows", 0.4, 60, nothing, needs, figures)


def claim(figure: str, bound: str = AT_MOST, limit: float = 20) -> Claim:
    return Claim(
        figure, f"{figure} is as said", "measured so", "README", figure, bound, limit, "ms"
    )


SPEED, RIGHT, SERVED = (
    step("speed", GRAPHS, "p99", "rate"),
    step("right", GRAPHS, "difference"),
    step("served", DOCKER, "requests/s"),
)


@pytest.fixture
def report() -> Report:
    claims = [
        claim("p99"), claim("rate", AT_LEAST, 1250), claim("difference"), claim("requests/s"),
    ]  # fmt: skip
    return Report(FOUND, {"processor": "some | other"}, [SPEED, RIGHT, SERVED], claims=claims)


def test_every_claim_has_a_verdict_and_a_reason(report: Report, tmp_path: Path) -> None:
    table = Table("Speed of the graph", ["workload", "texts/s"], [["short", "900"]])
    points = [Point("graph", "short", 8, 900, 9), Point("served", "short", 64, 800, 12)]
    report.outcomes += [
        Outcome(SPEED, 31.2, Record(None, {"p99": 12.0, "rate": 900.0}, [table], points)),
        Outcome(RIGHT, 2.0, Record(error="no kernel")),
    ]
    report.write(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "**1 pass, 1 fail, 2 not run**, of 4 claims. Form B: " in text
    assert "| pass | p99 is as said | 12 ms | at most 20 ms |" in text
    assert "| fail | rate is as said | 900 ms | at least 1250 ms |" in text
    assert "| not run | difference is as said | step right failed | at most 20 ms |" in text
    assert "| not run | requests/s is as said | Docker is missing | at most 20 ms |" in text
    assert "| right | no kernel | 2 |" in text
    assert "### Speed of the graph\n\n| workload | texts/s |" in text
    assert "measured so. Source: README." in text and "Missing: Docker: not installed" in text
    assert "![throughput and latency](report.png)" in text
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "report.json").read_text())
    assert [c["outcome"] for c in content["claims"]] == [PASS, FAIL, NOT_RUN, NOT_RUN]
    assert content["steps"][1]["error"] == "no kernel"
    assert report.failures == ["rate: 900 ms, expected at least 1250 ms", "step right: no kernel"]
    assert {path.name for path in tmp_path.iterdir()} == {"report.md", "report.json", "report.png"}


def test_what_cannot_run_here_is_no_failure(report: Report, tmp_path: Path) -> None:
    report.outcomes.append(
        Outcome(SPEED, 1, Record(None, {"p99": 1.0, "rate": 2000.0, "difference": 0.0}))
    )
    report.write(tmp_path)
    assert report.failures == []
    assert not (tmp_path / "report.png").exists()


def test_json_has_no_infinity(report: Report, tmp_path: Path) -> None:
    report.outcomes.append(Outcome(SPEED, 1, Record(None, {"p99": float("inf")})))
    report.write(tmp_path)
    content = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert content["claims"][0]["outcome"] == FAIL and content["claims"][0]["measured"] is None
    assert "inf ms" in (tmp_path / "report.md").read_text()


def test_where_nothing_can_run_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match="no NVIDIA GPU"):
        check.run(Found([], {}), [SPEED], {}, tmp_path / "results", lambda _: None)
    assert not (tmp_path / "results").exists()
