"""Commands that send texts to a running server."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from text_pipeline.errors import TextPipelineError

if TYPE_CHECKING:
    from text_pipeline.files.records import Record, RecordFile


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
            "perhaps text_pair. Default: JSON lines if the name says so (.jsonl, .ndjson, .json) "
            "or the first line is an object.",
        ),
        click.option("--url", default="127.0.0.1:8001", help="The server's gRPC endpoint."),
        _asks_server,
    ))  # fmt: skip


def _given(
    texts: tuple[str, ...], input: str | None, format: str | None
) -> "tuple[RecordFile | None, Iterable[Record]]":
    """The file of texts, if there is one, and the records of it or of the arguments."""
    from text_pipeline.files.records import RecordFile

    if input is None and not texts and not sys.stdin.isatty():
        input = "-"
    if bool(texts) == bool(input):
        name = click.get_current_context().info_name
        raise click.UsageError(
            f'give either texts or --input, for example: text-pipeline {name} "Profits fell"'
        )
    source = RecordFile(input, format, format_option="--format lines") if input else None
    return source, source if source is not None else ({"text": text} for text in texts)


@click.command()
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

    from text_pipeline.cli import display
    from text_pipeline.client.pipeline import PipelineClient
    from text_pipeline.client.records import classify_records
    from text_pipeline.files import records

    with PipelineClient(
        url, chunk_size=chunk_size, in_flight=in_flight, timeout_s=timeout_s
    ) as client:
        results = classify_records(client, given, **options)
        if output is None and sys.stdout.isatty():
            display.print_tables(results, Console())
            return
        if source is not None:
            results = display.with_progress(results, source, Console(stderr=True))
        with records.output(output) as file:
            for result in results:
                records.write(result, file)


@click.command()
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

    from text_pipeline.cli import display
    from text_pipeline.client.pipeline import PipelineClient
    from text_pipeline.files import records
    from text_pipeline.files.vectors import write_npy

    with PipelineClient(
        url, chunk_size=chunk_size, in_flight=in_flight, timeout_s=timeout_s
    ) as client:
        vectors: Iterable[Any] = client.embed(map(records.text_of, given), **options)
        if source is not None:
            vectors = display.with_progress(vectors, source, Console(stderr=True))
        with records.replacing(output) as file:
            write_npy(vectors, file)


@click.command()
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

    from text_pipeline.cli import display
    from text_pipeline.client.pipeline import PipelineClient
    from text_pipeline.files import records

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
