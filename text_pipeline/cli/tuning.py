"""The command that looks for the best configuration."""

from pathlib import Path
from typing import Any

import click

from text_pipeline.cli import shared


@click.command()
@shared.repository("Model repository to tune.")
@click.option(
    "--p99-ms",
    required=True,
    type=click.FloatRange(min=0, min_open=True),
    help="The longest that 99 of 100 requests may take.",
)
@click.option(
    "--workload",
    default="mixed",
    help="mixed, short, long, or a file of your texts: one a line, or JSON lines.",
)
@click.option("--base", default="cpu", help="Configuration to vary: cpu, or gpu for config.pbtxt.")
@click.option(
    "--minutes",
    default=10.0,
    type=click.FloatRange(min=0),
    help="No further configuration is begun after so long.",
)
@click.option(
    "--level-seconds", default=3.0, type=click.FloatRange(min=0.1), help="For each level of load."
)
@click.option(
    "--plot", type=click.Path(path_type=Path), default="tuned.png", help="File for the plot."
)
@shared.triton
def tune(repository: Path, p99_ms: float, workload: str, plot: Path, **options: Any) -> None:
    """Find the configuration with the most throughput whose p99 meets a target.

    Starts servers of its own with a copy of the repository, measures them with perf_analyzer, and
    writes the best as configs/tuned.pbtxt: serve it with --model-config-name tuned.
    """
    from rich.console import Console

    from text_pipeline.measure.workload import find
    from text_pipeline.repository.versions import Repository
    from text_pipeline.tuning import report
    from text_pipeline.tuning.tune import frontier, tune

    best, trials = tune(
        Repository(repository), find(workload), p99_ms=p99_ms, **options,
        progress=lambda line: click.echo(line, err=True),
    )  # fmt: skip
    points = frontier(trials)
    Console().print(report.table(points, best, p99_ms))
    report.plot(trials, points, p99_ms, plot)
    click.echo(
        f"best: {best.settings}: {best.texts_per_s:.1f} texts/s, p99 {best.p99_ms:.1f} ms\n"
        f"serve it: text-pipeline serve --repository {repository} --model-config-name tuned"
    )
