"""The command `text-pipeline`: parses, calls, prints."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from text_pipeline.control import MODEL_CONTROL
from text_pipeline.embedded.ports import DEFAULT_PORTS
from text_pipeline.errors import TextPipelineError

if TYPE_CHECKING:
    from text_pipeline.records import Record, RecordFile

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""


class Commands(click.Group):
    """Commands whose errors are one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error of this project is one line and an exit code."""
        try:
            return super().invoke(ctx)
        except TextPipelineError as error:
            click.echo(f"error: {' '.join(str(error).split())}", err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            # Without a file it is no matter of the user's disk, but a fault of ours.
            if (path := error.filename2 or error.filename) is None:
                raise
            click.echo(f"error: {path}: {error.strerror}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(cls=Commands, context_settings={"show_default": True})
@click.version_option(package_name="text-pipeline")
def commands() -> None:
    """Serve Hugging Face text classifiers on Triton Inference Server.

    Every option can be given as an environment variable, for example
    TEXT_PIPELINE_CLASSIFY_URL for `classify --url`.
    """


def main() -> None:
    """The entry point."""
    commands(auto_envvar_prefix="TEXT_PIPELINE")


@commands.command()
@click.option(
    "--repository",
    type=click.Path(path_type=Path, readable=False),
    default="model_repository",
    help="Model repository to serve.",
)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--http-port", default=DEFAULT_PORTS["http"], type=click.IntRange(1, 65535))
@click.option("--grpc-port", default=DEFAULT_PORTS["grpc"], type=click.IntRange(1, 65535))
@click.option("--metrics-port", default=DEFAULT_PORTS["metrics"], type=click.IntRange(1, 65535))
@click.option(
    "--model-config-name",
    default="cpu",
    help="Custom model configuration: <model>/configs/<name>.pbtxt where there is one.",
)
@click.option(
    "--log",
    type=click.Path(path_type=Path, allow_dash=True),
    help="File for the server's log; - passes it on.",
)
@click.option(
    "--model-control",
    type=click.Choice(MODEL_CONTROL),
    default=MODEL_CONTROL[0],
    help="How the server learns of new versions: by a restart, by looking every 15 s, or by "
    "`text-pipeline use --url`.",
)
@click.option(
    "--triton",
    type=click.Path(path_type=Path),
    help="An installed Triton, such as /opt/tritonserver. Default: the wheel's.",
)
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
    from text_pipeline.embedded.serve import serve
    from text_pipeline.repository import Repository

    serve(
        Repository(repository),
        log_path=log,
        extra_arguments=tritonserver_arguments,
        **options,
        progress=click.echo,
    )


@commands.command()
@click.option(
    "--repository",
    type=click.Path(path_type=Path, readable=False),
    default="model_repository",
    help="Model repository to look into.",
)
@click.option("--called", help="The repository's name in messages, if it is not its path.")
def check(repository: Path, called: str | None) -> None:
    """Say what is missing in a model repository; succeed if it can be served."""
    from text_pipeline.repository import Repository

    Repository(repository).check(called)


@commands.command()
@click.option(
    "--repository",
    type=click.Path(path_type=Path),
    default="model_repository",
    help="Model repository to look into.",
)
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def inspect(repository: Path, as_json: bool) -> None:
    """Show what is in a model repository: versions, labels, limits, sizes, what is damaged."""
    import dataclasses
    import json

    from rich.console import Console

    from text_pipeline import display, inspection
    from text_pipeline.repository import Repository

    content = inspection.inspect(Repository(repository))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(content), indent=2, ensure_ascii=False))
    else:
        display.print_content(content, Console())


@commands.command()
@click.option("--http-port", default=DEFAULT_PORTS["http"], type=click.IntRange(1, 65535))
@click.option("--grpc-port", default=DEFAULT_PORTS["grpc"], type=click.IntRange(1, 65535))
@click.option("--metrics-port", default=DEFAULT_PORTS["metrics"], type=click.IntRange(1, 65535))
def doctor(http_port: int, grpc_port: int, metrics_port: int) -> None:
    """Check whether this machine can run the server, with and without containers.

    Fails if something stops `serve` on CPU; what only containers, GPUs or int8 need is a note.
    """
    from rich.console import Console

    from text_pipeline import display
    from text_pipeline.doctor import examine

    findings = examine({"http": http_port, "grpc": grpc_port, "metrics": metrics_port})
    display.print_findings(findings, Console())
    if stops := [finding.subject for finding in findings if finding.stops]:
        raise TextPipelineError(f"the server cannot start here: see {', '.join(stops)}")


@commands.command()
@click.option("--url", default="127.0.0.1:8000", help="The server's HTTP endpoint.")
@click.option(
    "--timeout",
    default=10.0,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds the answer may take.",
)
def health(url: str, timeout: float) -> None:
    """Classify a text with a running server, as a health check; succeed if it answers."""
    from text_pipeline.embedded.probe import ensemble_problem

    if problem := ensemble_problem(url, timeout):
        raise TextPipelineError(problem)


_server_option = click.option(
    "--url",
    help="HTTP endpoint of a server in poll or explicit mode that serves the repository: it loads "
    "the version before that is used.",
)


@commands.command()
@click.option(
    "--model",
    required=True,
    help="Directory of a Hugging Face ...ForSequenceClassification model, a hub id (owner/name), "
    "or `default` for this project's news classifier.",
)
@click.option(
    "--repository",
    type=click.Path(path_type=Path),
    default="model_repository",
    help="Model repository to publish in; made if it does not exist.",
)
@click.option("--version", type=click.IntRange(1), help="Default: the next free one.")
@click.option(
    "--layout",
    type=click.Choice(["packed", "padded"]),
    help="Packed computes no padding. Default: packed where the architecture allows.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "gpu"]),
    default="cpu",
    show_default=True,
    help="What the graph will run on.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "int8", "fp16"]),
    help="fp32 (the default) or int8 on cpu, fp16 (the default) or fp32 on gpu.",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Shorten the model's own limit.")
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "last"]),
    help="What an embedding is made of: all tokens, the first, the last. Default: as the model's "
    "sentence-transformers files say, else mean.",
)
@click.option(
    "--texts",
    help="File of real texts, one a line or JSON lines, that the graph is checked with and int8 "
    "is calibrated with. Default: BBC news.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    help="Largest difference to PyTorch in any output. Default: 1e-4 for fp32, 0.03 for fp16, "
    "0.25 for int8.",
)
@click.option(
    "--min-agreement",
    type=click.FloatRange(0, 1),
    default=0.99,
    show_default=True,
    help="Least share of texts that get the label they get in PyTorch.",
)
@click.option(
    "--trust-remote-code", is_flag=True, help="Run the model's own code, if it brings some."
)
@_server_option
def export(
    model: str, repository: Path, texts: str | None, url: str | None, **options: Any
) -> None:
    """Publish a Hugging Face classifier as a version, if it answers as PyTorch does."""
    from text_pipeline.export.exporter import export_model
    from text_pipeline.records import RecordFile
    from text_pipeline.repository import Repository

    options["texts"] = texts and [record["text"] for record in RecordFile(texts)]
    export_model(model, Repository(repository), **options, http_url=url, progress=click.echo)


@commands.command()
@click.option("--version", type=click.IntRange(1), required=True, help="A published version.")
@click.option(
    "--repository",
    type=click.Path(path_type=Path),
    default="model_repository",
    help="Model repository that has it.",
)
@click.option(
    "--alone",
    is_flag=True,
    help="Load no other version: the one in use before is broken, or its memory is wanted.",
)
@_server_option
def use(version: int, repository: Path, alone: bool, url: str | None) -> None:
    """Put a published version into use, for example an earlier one again."""
    from text_pipeline import control
    from text_pipeline.repository import Repository

    control.use(Repository(repository), version, alone=alone, http_url=url)
    click.echo(f"{repository} uses version {version}")


def _decorated(
    command: Callable[..., None], decorators: Iterable[Callable[..., Any]]
) -> Callable[..., None]:
    """The options in the order of `decorators`."""
    for decorate in reversed([*decorators]):
        command = decorate(command)
    return command


def _asks_server(command: Callable[..., None]) -> Callable[..., None]:
    """What every command takes that sends texts to a server."""
    return _decorated(command, (
        click.option(
            "--max-tokens", type=click.IntRange(1), help="Cut texts earlier than the model's limit."
        ),
        click.option(
            "--overflow",
            type=click.Choice(["truncate", "error", "window"]),
            default="truncate",
            help="What to do with texts that are too long: cut or refuse them, or take the mean of "
            "their windows.",
        ),
        click.option(
            "--stride",
            type=click.IntRange(0),
            help="Tokens that neighbouring windows share. Default: 0.",
        ),
        click.option(
            "--chunk-size", default=32, type=click.IntRange(1, 64), help="Texts a request."
        ),
        click.option(
            "--in-flight", default=8, type=click.IntRange(1, 256), help="Requests at a time."
        ),
        click.option(
            "--timeout",
            "timeout_s",
            default=300.0,
            type=click.FloatRange(min=0, min_open=True),
            help="Seconds one request may take, the server's queue included.",
        ),
    ))  # fmt: skip


def _takes_texts(command: Callable[..., None]) -> Callable[..., None]:
    """What commands take whose texts are arguments or in a file."""
    return _decorated(command, (
        click.argument("texts", nargs=-1),
        click.option(
            "--input", help="File of texts; - for standard input, the default in a pipe."
        ),
        click.option(
            "--format",
            type=click.Choice(["lines", "jsonl"]),
            help="One text a line (blank lines are texts, too) or JSON lines with a field text and "
            "perhaps text_pair. Default: by the file's name (.jsonl, .ndjson).",
        ),
        click.option("--url", default="127.0.0.1:8001", help="The server's gRPC endpoint."),
        _asks_server,
    ))  # fmt: skip


def _given(
    texts: tuple[str, ...], input: str | None, format: str | None
) -> "tuple[RecordFile | None, Iterable[Record]]":
    """The file of texts, if there is one, and the records of it or of the arguments."""
    from text_pipeline.records import RecordFile

    if input is None and not texts and not sys.stdin.isatty():
        input = "-"
    if bool(texts) == bool(input):
        name = click.get_current_context().info_name
        raise click.UsageError(
            f'give either texts or --input, for example: text-pipeline {name} "Profits fell"'
        )
    source = RecordFile(input, format) if input else None
    return source, source if source is not None else ({"text": text} for text in texts)


@commands.command()
@_takes_texts
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="File for JSON lines, written when everything is classified.",
)
@click.option("--top-k", type=click.IntRange(1), help="How many labels to show of each text.")
@click.option(
    "--threshold",
    type=float,
    help="Show only labels with at least this score: those that fit, of a multi-label model.",
)
def classify(
    texts: tuple[str, ...],
    input: str | None,
    format: str | None,
    output: Path | None,
    url: str,
    chunk_size: int,
    in_flight: int,
    timeout_s: float,
    **options: Any,
) -> None:
    """Classify TEXTS, or those of a file: a table on a terminal, JSON lines otherwise.

    JSON lines in keep their fields; one that has the name of an answer's is renamed, for
    example from label to input_label.
    """
    source, given = _given(texts, input, format)
    from rich.console import Console

    from text_pipeline import display, records
    from text_pipeline.client import PipelineClient

    with PipelineClient(
        url, chunk_size=chunk_size, in_flight=in_flight, timeout_s=timeout_s
    ) as client:
        results = records.classify_records(client, given, **options)
        if output is None and sys.stdout.isatty():
            display.print_tables(results, Console())
            return
        if source is not None:
            results = display.with_progress(results, source, Console(stderr=True))
        with records.output(output) as file:
            for result in results:
                records.write(result, file)


@commands.command()
@_takes_texts
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="NumPy file (.npy) for the embeddings, a row for each text, written when all are there.",
)
def embed(
    texts: tuple[str, ...],
    input: str | None,
    format: str | None,
    output: Path,
    url: str,
    chunk_size: int,
    in_flight: int,
    timeout_s: float,
    **options: Any,
) -> None:
    """Write the embeddings of TEXTS, or of those of a file, as rows of a NumPy array in FP32."""
    source, given = _given(texts, input, format)
    from rich.console import Console

    from text_pipeline import display, records
    from text_pipeline.client import PipelineClient
    from text_pipeline.vectors import write_npy

    with PipelineClient(
        url, chunk_size=chunk_size, in_flight=in_flight, timeout_s=timeout_s
    ) as client:
        vectors: Iterable[Any] = client.embed(map(records.text_of, given), **options)
        if source is not None:
            vectors = display.with_progress(vectors, source, Console(stderr=True))
        with records.replacing(output) as file:
            write_npy(vectors, file)


@commands.command()
@click.option(
    "--data",
    required=True,
    help="JSON lines with text, perhaps text_pair, and label; - for standard input. A label is one "
    "of the model's, a list of them for a multi-label model, a number for a regression.",
)
@click.option(
    "--url",
    "urls",
    multiple=True,
    default=["127.0.0.1:8001"],
    help="The server's gRPC endpoint; two to compare two servers.",
)
@click.option(
    "--version",
    "versions",
    multiple=True,
    type=click.IntRange(1),
    help="A version that the server has loaded; two to compare them. Default: the one in use.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to make for report.md, report.json, plots, and every line's answer without text.",
)
@_asks_server
def evaluate(
    data: str,
    urls: tuple[str, ...],
    versions: tuple[int, ...],
    output: Path | None,
    chunk_size: int,
    in_flight: int,
    timeout_s: float,
    **options: Any,
) -> None:
    """Measure how right a running server's answers are, or compare two versions or servers."""
    asked = [(url, version) for url in urls for version in versions or [None]]
    if len(asked) > 2 or len(set(asked)) < len(asked):
        raise click.UsageError(
            "expected one model or two different ones to compare: give --url or --version twice"
        )
    from contextlib import ExitStack
    from functools import partial

    from rich.console import Console

    from text_pipeline import display, records
    from text_pipeline.client import PipelineClient

    try:
        from text_pipeline.evaluation import evaluate as evaluation
        from text_pipeline.evaluation import tables

        if output is not None:
            from text_pipeline.evaluation import report

            report.check_output(output)
    except ModuleNotFoundError as error:
        raise TextPipelineError(
            f"evaluate needs {error.name}: pip install 'text-pipeline[evaluate]'"
        ) from None

    source = records.RecordFile(data, "jsonl")
    with ExitStack() as stack:
        settings: Any = {"chunk_size": chunk_size, "in_flight": in_flight, "timeout_s": timeout_s}
        clients = [
            stack.enter_context(PipelineClient(url, version=version, **settings))
            for url, version in asked
        ]
        console = Console(stderr=True)
        progress = partial(display.with_progress, source=source, console=console)
        found = evaluation.evaluate(source, clients, progress=progress, **options)
    tables.show(found, Console())
    if output is not None:
        report.write(found, output)


@commands.command()
@click.option(
    "--repository", type=click.Path(path_type=Path, readable=False), default="model_repository"
)
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
@click.option(
    "--triton",
    type=click.Path(path_type=Path),
    help="An installed Triton, such as /opt/tritonserver. Default: the wheel's.",
)
def tune(repository: Path, p99_ms: float, workload: str, plot: Path, **options: Any) -> None:
    """Find the configuration with the most throughput whose p99 meets a target.

    Starts servers of its own with a copy of the repository, measures them with perf_analyzer, and
    writes the best as configs/tuned.pbtxt: serve it with --model-config-name tuned.
    """
    from rich.console import Console

    from text_pipeline.measure.workload import find
    from text_pipeline.repository import Repository
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
