"""The report of a check: report.md, report.json, and report.png if there is something to draw."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from load.gpu_check.claims import CLAIMS, FAIL, NOT_RUN, PASS, Claim, Verdict, judge
from load.gpu_check.found import Found
from load.gpu_check.record import Point, place
from load.gpu_check.runner import Outcome, Step
from text_pipeline.files import markdown

_AXES = {
    "served": ("requests in flight", "p99, ms"),
    "graph": ("texts in a batch", "ms a batch"),
}


@dataclass
class Report:
    """What is known so far."""

    found: Found
    machine: Mapping[str, str]
    steps: Sequence[Step]
    """All of them, also those that cannot run here."""
    outcomes: list[Outcome] = field(default_factory=list)
    claims: Sequence[Claim] = CLAIMS

    def verdicts(self) -> list[Verdict]:
        """Of every claim."""
        figures = {n: v for o in self.outcomes for n, v in o.record.figures.items()}
        missing = self._missing()
        return [judge(claim, figures, missing) for claim in self.claims]

    @property
    def failures(self) -> list[str]:
        """Claims that do not hold, steps that failed; what cannot run here is neither."""
        claims = [f"{v.claim.name}: {v.measured_in_words}, expected {v.claim.limit_in_words}"
                  for v in self.verdicts() if v.outcome == FAIL]  # fmt: skip
        steps = [f"step {o.step.name}: {o.record.error}" for o in self.outcomes if o.record.error]
        return claims + steps

    def _missing(self) -> dict[str, str]:
        """Why a figure was not measured, of every figure that a step would measure."""
        ran = {outcome.step.name: outcome for outcome in self.outcomes}
        why: dict[str, str] = {}
        for step in self.steps:
            if step.name in ran:
                error = ran[step.name].record.error
                reason = f"step {step.name} {'failed' if error else 'did not measure this'}"
            elif step.needs in self.found.missing:
                reason = f"{step.needs} is missing"
            else:
                reason = f"step {step.name} did not run"
            why |= dict.fromkeys(step.figures, reason)
        return why

    def write(self, folder: Path) -> None:
        """Writes all files, each under another name first."""
        verdicts = self.verdicts()
        points = [point for outcome in self.outcomes for point in outcome.record.points]
        if points:
            draw(points, folder / "report.png")
        place(folder / "report.json", json.dumps(self._content(verdicts), indent=2) + "\n")
        place(folder / "report.md", self._markdown(verdicts, bool(points)))

    def _content(self, verdicts: Sequence[Verdict]) -> dict[str, Any]:
        return {
            "form": self.found.form,
            "gpus": list(self.found.gpus),
            "missing": dict(self.found.missing),
            "machine": dict(self.machine),
            "claims": [
                asdict(v.claim)
                | {"outcome": v.outcome, "measured": _finite(v.measured), "because": v.because}
                for v in verdicts
            ],
            "steps": [
                {"name": o.step.name, "seconds": round(o.seconds, 1), "error": o.record.error,
                 "figures": {name: _finite(value) for name, value in o.record.figures.items()}}
                for o in self.outcomes
            ],
        }  # fmt: skip

    def _markdown(self, verdicts: Sequence[Verdict], has_plot: bool) -> str:
        counts = Counter(verdict.outcome for verdict in verdicts)
        counted = ", ".join(f"{counts[outcome]} {outcome}" for outcome in (PASS, FAIL, NOT_RUN))
        minutes = sum(outcome.seconds for outcome in self.outcomes) / 60
        parts = [
            "# GPU check",
            f"**{counted}**, of {len(verdicts)} claims. Form {self.found.form}. "
            f"{len(self.outcomes)} steps took {minutes:.1f} minutes on "
            f"{', '.join(self.found.gpus)}.",
            *(f"Missing: {what}" for what in self.found.missing.values()),
            "## Claims",
            markdown.table(
                ["", "claim", "measured", "limit"],
                [[v.outcome, v.claim.text, v.measured_in_words, v.claim.limit_in_words]
                 for v in verdicts], words=4,
            ),
            "## Steps",
            markdown.table(["step", "outcome", "seconds"], [
                [o.step.name, o.record.error or "done", f"{o.seconds:.0f}"] for o in self.outcomes
            ], words=2),
            *(["![throughput and latency](report.png)"] if has_plot else []),
            "## What was measured",
            *(f"### {table.title}\n\n{markdown.table(table.names, table.rows, words=table.words)}"
              for outcome in self.outcomes for table in outcome.record.tables),
            "## How each claim is measured, and where it is made",
            *(f"* **{v.claim.text}**: {v.claim.how}. Source: {v.claim.source}." for v in verdicts),
            "## The machine",
            "\n".join(f"* {name}: {value}" for name, value in self.machine.items()),
            "What each step printed is in `steps/*.log`; `make test-gpu` repeats all of it.",
        ]  # fmt: skip
        return "\n\n".join(parts) + "\n"


def draw(points: Sequence[Point], path: Path) -> None:
    """Throughput and time over requests in flight, and over texts in a batch of the graph alone."""
    from matplotlib.figure import Figure

    kinds = [kind for kind in _AXES if any(point.kind == kind for point in points)]
    figure = Figure(figsize=(11, 4.5 * len(kinds)), layout="constrained")
    rows = figure.subplots(len(kinds), 2, squeeze=False)
    for kind, (throughput, time) in zip(kinds, rows, strict=True):
        of_kind = [point for point in points if point.kind == kind]
        xlabel, ylabel = _AXES[kind]
        for series in dict.fromkeys(point.series for point in of_kind):
            chosen = sorted((p for p in of_kind if p.series == series), key=lambda p: p.x)
            xs = [point.x for point in chosen]
            throughput.plot(xs, [point.texts_per_s for point in chosen], "o-", label=series)
            time.plot(xs, [point.ms for point in chosen], "o-", label=series)
        throughput.set(xlabel=xlabel, ylabel="texts/s", ylim=(0, None))
        time.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
        for axes in (throughput, time):
            axes.set_xscale("log", base=2)
            axes.get_xaxis().set_major_formatter("{x:.0f}")
            axes.grid(alpha=0.3)
        throughput.legend(fontsize="small")
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=110, format="png")
    temporary.replace(path)


def _finite(value: float | None) -> float | None:
    """JSON has neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None
