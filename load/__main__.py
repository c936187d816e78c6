"""`python -m load`: load runs and experiments with perf_analyzer."""

import datetime
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from load import experiments, machine, report, repositories, watch
from load.gpu_check import check, found, plan
from load.levels import Measured, measure
from text_pipeline.cli import Commands, shared
from text_pipeline.errors import TextPipelineError
from text_pipeline.measure import perf_analyzer, workload
from text_pipeline.measure.perf_analyzer import Server
from text_pipeline.repository.versions import Repository
from text_pipeline.server.tritonserver import EmbeddedServer

HERE = Path(__file__).parent
RUNS = HERE / "runs"
VENVS = HERE / ".venvs"
OPEN_LOOP_SHARES = (0.3, 0.5, 0.7, 0.9)
"""Rates of the open loop, as shares of what the closed loop reached."""


@dataclass(frozen=True)
class Running:
    """A server that somebody else started."""

    http_url: str
    grpc_url: str
    metrics_url: str | None


@click.group(cls=Commands, context_settings={"show_default": True})
def main() -> None:
    """Measure the served pipeline under load."""


@main.command()
@click.option(
    "--workload", "names", multiple=True, default=("mixed", "short", "long"),
    help=f"{', '.join(workload.NAMES)}, or a file of texts (one a line, or JSON lines).",
)  # fmt: skip
@click.option(
    "--protocol", "protocols", multiple=True, default=("grpc",),
    type=click.Choice(list(perf_analyzer.PROTOCOLS)),
)  # fmt: skip
@click.option("--concurrency", "concurrencies", multiple=True, type=click.IntRange(1, 1024),
              default=(1, 2, 4, 8, 16, 32, 64), help="Requests in flight.")  # fmt: skip
@click.option("--rate", "rates", multiple=True, type=click.FloatRange(min=0, min_open=True),
              help="Requests a second of an open loop.")  # fmt: skip
@click.option("--open-loop/--no-open-loop", default=True, help="Also with Poisson arrivals.")
@click.option("--seconds", default=8.0, type=click.FloatRange(min=0.1), help="For each level.")
@click.option("--repository", type=click.Path(path_type=Path), default="model_repository")
@click.option("--model-config-name", default="cpu")
@shared.server_url("gRPC", help="gRPC endpoint of a running server; without it one is started.")
@shared.server_url("HTTP", "--http-url", help="Its HTTP endpoint, for --protocol http.")
@shared.server_url(
    "metrics", "--metrics-url", help="Its metrics endpoint, to be watched meanwhile."
)
@click.option(
    "--results", type=click.Path(path_type=Path), help="Folder. Default: load/runs/<time>."
)
def sweep(
    names: Sequence[str],
    protocols: Sequence[str],
    concurrencies: Sequence[int],
    rates: Sequence[float],
    open_loop: bool,
    seconds: float,
    repository: Path,
    model_config_name: str,
    url: str | None,
    http_url: str | None,
    metrics_url: str | None,
    results: Path | None,
) -> None:
    """Throughput and latency over the load, with a report."""
    if url and any(name.startswith("http") for name in protocols) and not http_url:
        raise click.UsageError("--protocol http needs --http-url beside --url")
    running = Running(http_url or "", url, metrics_url) if url else None
    workloads = [workload.find(name) for name in names]
    commands: list[str] = []
    measured: list[Measured] = []
    skipped: list[str] = []
    with (
        _server(repository, model_config_name, running) as server,
        watch.watching(server.metrics_url) as samples,
    ):
        for texts in workloads:
            for protocol in protocols:
                closed = [
                    _measure(server, texts, seconds, protocol, commands, concurrency=number)
                    for number in sorted(concurrencies)
                ]
                measured += closed
                best = max(m.level.texts_per_s for m in closed)
                shares = OPEN_LOOP_SHARES if open_loop else ()
                for rate in rates or [round(best * share, 1) for share in shares]:
                    try:
                        measured.append(
                            _measure(server, texts, seconds, protocol, commands, rate=rate)
                        )
                    except TextPipelineError as error:
                        # Near the limit chance makes queues that are too long, and refused.
                        skipped.append(f"{texts.name}, {protocol}, {rate:g} a second: {error}")
                        _say(skipped[-1])
    folder = _folder(results)
    found = {**machine.describe(), "server": url or f"embedded, {model_config_name}"}
    report.write_machine(folder, found)
    watch.write(samples, folder / "metrics.csv")
    click.echo(report.write_sweep(folder, measured, skipped, found, commands))
    click.echo(f"written to {folder}", err=True)


@main.command()
@click.argument("names", nargs=-1, type=click.Choice(list(experiments.EXPERIMENTS)))
@click.option("--rounds", default=3, type=click.IntRange(1))
@click.option("--seconds", default=8.0, type=click.FloatRange(min=0.1), help="For each figure.")
@click.option(
    "--results", type=click.Path(path_type=Path), help="Folder. Default: load/runs/<time>."
)
def experiment(names: Sequence[str], rounds: int, seconds: float, results: Path | None) -> None:
    """Compare configurations, graphs, protocols or servers; without NAMES all of them."""
    folder = _folder(results)
    found = machine.describe()
    report.write_machine(folder, found)
    with repositories.temporary(VENVS, _say) as made:
        for name in names or experiments.EXPERIMENTS:
            chosen = experiments.EXPERIMENTS[name]
            outcomes = experiments.run(
                chosen, made, [workload.find(w) for w in chosen.workloads],
                rounds=rounds, seconds=seconds, progress=_say,
            )  # fmt: skip
            slug = name.replace(" ", "-")
            click.echo(report.write_experiment(folder, slug, chosen, outcomes, found, rounds))
    click.echo(f"written to {folder}", err=True)


@main.command()
@click.option(
    "--results", type=click.Path(path_type=Path), help="Folder. Default: load/runs/gpu-<time>."
)
@click.option("--plan", "plans", is_flag=True, help="Say what would run here, and run nothing.")
def gpu(results: Path | None, plans: bool) -> None:
    """Check on this machine's GPU what the manual says of GPUs, with a report."""
    here, steps = found.look(), plan.steps()
    if plans:
        click.echo("\n".join(plan.lines(steps, here)))
        return
    if problem := here.problem:
        raise TextPipelineError(problem)
    folder = _folder(results, "gpu-")
    described = {**machine.describe(), **here.describe()}
    written = check.run(here, steps, described, folder, _say)
    click.echo(f"written to {folder}", err=True)
    if failures := written.failures:
        click.echo("\n".join(failures), err=True)
        raise TextPipelineError(f"{len(failures)} claims or steps failed: {folder / 'report.md'}")


def _measure(
    server: Server,
    texts: workload.Workload,
    seconds: float,
    protocol: str,
    commands: list[str],
    *,
    concurrency: int | None = None,
    rate: float | None = None,
) -> Measured:
    found = measure(
        server, texts, concurrency=concurrency, rate=rate,
        seconds=seconds, protocol=protocol, commands=commands,
    )  # fmt: skip
    level = found.level
    _say(
        f"{texts.name}, {protocol}, {level.load}: {level.texts_per_s:.1f} texts/s, "
        f"p50 {level.p50_ms:.1f}, p99 {level.p99_ms:.1f} ms{'' if level.stable else ', unstable'}"
    )
    return found


@contextmanager
def _server(
    repository: Path, model_config_name: str, running: Running | None
) -> Iterator[Running | EmbeddedServer]:
    if running:
        yield running
        return
    Repository(repository).check()
    _say(f"starting a server with {repository}")
    with EmbeddedServer(repository, model_config_name=model_config_name) as server:
        yield server


def _folder(results: Path | None, prefix: str = "") -> Path:
    if results is None:
        results = RUNS / datetime.datetime.now().strftime(f"{prefix}%Y-%m-%d-%H%M%S")
    results.mkdir(parents=True, exist_ok=True)
    return results


def _say(line: str) -> None:
    click.echo(f"{datetime.datetime.now():%H:%M:%S} {line}", err=True)


if __name__ == "__main__":
    sys.exit(main())
