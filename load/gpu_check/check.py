"""The whole check: every step that can run here, and a report that grows with each."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from load.gpu_check import plan, runner
from load.gpu_check.found import Found
from load.gpu_check.report import Report
from load.gpu_check.runner import Step
from text_pipeline.errors import TextPipelineError


def run(
    found: Found,
    all_steps: Sequence[Step],
    machine: Mapping[str, str],
    folder: Path,
    progress: Callable[[str], None],
) -> Report:
    """Runs what can run here and writes the report to `folder` after every step.

    Raises TextPipelineError, and leaves nothing behind, where nothing can run.
    """
    if problem := found.problem:
        raise TextPipelineError(problem)
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(found, machine, all_steps)
    report.write(folder)
    with tempfile.TemporaryDirectory(prefix="text-pipeline-gpu-") as work:
        # For the container's user, who is another one.
        Path(work).chmod(0o755)
        steps = plan.possible(all_steps, found)
        for outcome in runner.run(steps, folder, Path(work), progress):
            report.outcomes.append(outcome)
            report.write(folder)
    return report
