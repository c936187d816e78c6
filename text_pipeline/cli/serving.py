"""Commands around a server: start it, ask how it is, what its machine and repository lack."""

from pathlib import Path
from typing import Any

import click

from text_pipeline.cli import shared
from text_pipeline.contract import MODEL_CONTROLS
from text_pipeline.errors import TextPipelineError


@click.command()
@shared.repository("Model repository to serve.")
@click.option("--host", default="127.0.0.1", help="Address to listen on, or a name for one.")
@shared.port("http")
@shared.port("grpc")
@shared.port("metrics")
@shared.model_config_name
@click.option(
    "--log",
    type=click.Path(path_type=Path, allow_dash=True),
    help="File for the server's log; - passes it on.",
)
@click.option(
    "--model-control",
    type=click.Choice(MODEL_CONTROLS),
    default=MODEL_CONTROLS[0],
    help="How the server learns of new versions: by a restart, by looking every 15 s, or by "
    "`text-pipeline use --url`.",
)
@shared.triton
@click.option(
    "--trace-url",
    help="OTLP/HTTP endpoint that gets OpenTelemetry traces, for example "
    "http://127.0.0.1:4318/v1/traces. Default: no traces.",
)
@click.option(
    "--trace-rate", default=100, type=click.IntRange(1), help="Trace one request in so many."
)
@click.argument("tritonserver_arguments", nargs=-1)
def serve(
    repository: Path, log: Path | None, tritonserver_arguments: tuple[str, ...], **options: Any
) -> None:
    """Start a Triton server; Ctrl-C stops it, and it ends when it classifies no more.

    TRITONSERVER_ARGUMENTS go to tritonserver as they are: after --, for example
    `serve -- --log-verbose=1`.
    """
    from text_pipeline.repository.versions import Repository
    from text_pipeline.server.serve import serve

    serve(
        Repository(repository),
        log_path=log,
        extra_arguments=tritonserver_arguments,
        **options,
        progress=click.echo,
    )


@click.command()
@shared.repository("Model repository to look into.")
@click.option("--called", help="The repository's name in messages, if it is not its path.")
@shared.model_config_name
def check(repository: Path, called: str | None, model_config_name: str) -> None:
    """Say what is missing in a model repository; succeed if it can be served.

    A graph that the configuration runs on another device than it is made for is a warning.
    """
    from text_pipeline.repository import devices
    from text_pipeline.repository.versions import Repository

    Repository(repository).check(called)
    for found in devices.problems(Repository(repository), model_config_name):
        click.echo(f"warning: {found}")


@click.command()
@shared.server_url("HTTP", default="127.0.0.1:8000", help="The server's HTTP endpoint.")
@click.option(
    "--timeout",
    default=10.0,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds the answer may take.",
)
def health(url: str, timeout: float) -> None:
    """Classify a text with a running server, as a health check; succeed if it answers."""
    from text_pipeline.server.probe import ensemble_problem

    if problem := ensemble_problem(url, timeout):
        raise TextPipelineError(problem)


@click.command()
@shared.port("http")
@shared.port("grpc")
@shared.port("metrics")
def doctor(http_port: int, grpc_port: int, metrics_port: int) -> None:
    """Check whether this machine can run the server, with and without containers.

    Fails if something stops `serve` on CPU; what only containers, GPUs or int8 need is a note.
    """
    from rich.console import Console

    from text_pipeline.cli import display
    from text_pipeline.server.doctor import examine

    findings = examine({"http": http_port, "grpc": grpc_port, "metrics": metrics_port})
    display.print_findings(findings, Console())
    if stops := [finding.subject for finding in findings if finding.stops]:
        raise TextPipelineError(f"the server cannot start here: see {', '.join(stops)}")
