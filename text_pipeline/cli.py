"""The command `text-pipeline`: parses, calls, prints."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from text_pipeline.embedded.ports import DEFAULT_PORTS
from text_pipeline.errors import TextPipelineError

if TYPE_CHECKING:
    from text_pipeline.records import Record

TABLE_ROWS = 100
"""Rows of one table on the terminal: longer results come as several, while they arrive."""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error of this project is one line and an exit code."""
        try:
            return super().invoke(ctx)
        except TextPipelineError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Commands, context_settings={"show_default": True})
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
    type=click.Path(path_type=Path),
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
    "--log", "log_path", type=click.Path(path_type=Path), help="File for the server's log."
)
def serve(repository: Path, **options: Any) -> None:
    """Start a Triton server on this machine, without Docker; Ctrl-C stops it."""
    from text_pipeline.embedded.serve import serve
    from text_pipeline.repository import Repository

    serve(Repository(repository), **options, progress=click.echo)


@commands.command()
@click.option(
    "--model",
    "model_id",
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
@click.option("--max-tokens", type=click.IntRange(1), help="Shorten the model's own limit.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-4,
    help="Largest difference to PyTorch in any output.",
)
def export(model_id: str, repository: Path, **options: Any) -> None:
    """Publish a Hugging Face classifier as a version, if it answers as PyTorch does."""
    from text_pipeline.export.exporter import export_model
    from text_pipeline.repository import Repository

    export_model(model_id, Repository(repository), **options, progress=click.echo)


@commands.command()
@click.argument("texts", nargs=-1)
@click.option("--input", "input_path", help="File of texts; - for standard input.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["lines", "jsonl"]),
    help="One text a line (blank lines are texts, too) or JSON lines with a field text and "
    "perhaps text_pair. Default: by the file's name (.jsonl, .ndjson).",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="File for JSON lines, written when everything is classified.",
)
@click.option("--url", default="127.0.0.1:8001", help="The server's gRPC endpoint.")
@click.option("--top-k", type=click.IntRange(1), help="How many labels to show of each text.")
@click.option("--max-tokens", type=int, help="Cut texts earlier than the model's limit.")
@click.option(
    "--overflow",
    type=click.Choice(["truncate", "error"]),
    default="truncate",
    help="What to do with texts that are too long.",
)
@click.option("--chunk-size", default=32, type=click.IntRange(1, 64), help="Texts a request.")
@click.option("--in-flight", default=8, type=click.IntRange(1, 256), help="Requests at a time.")
def classify(
    texts: tuple[str, ...],
    input_path: str | None,
    file_format: str | None,
    output: Path | None,
    url: str,
    top_k: int | None,
    max_tokens: int | None,
    overflow: str,
    chunk_size: int,
    in_flight: int,
) -> None:
    """Classify TEXTS, or those of a file: a table on a terminal, JSON lines otherwise."""
    if bool(texts) == bool(input_path):
        raise click.UsageError(
            'give either texts or --input, for example: text-pipeline classify "Profits fell"'
        )
    from text_pipeline.client import PipelineClient
    from text_pipeline.records import RecordFile, answered, replacing, text_of, write

    source = RecordFile(input_path, file_format) if input_path else None
    records: Iterable[Record] = source if source is not None else ({"text": t} for t in texts)
    waiting: deque[Record] = deque()

    def sent() -> Iterator[Any]:
        for record in records:
            waiting.append(record)
            yield text_of(record)

    with PipelineClient(url, chunk_size=chunk_size, in_flight=in_flight) as client:
        answers = client.classify(sent(), max_tokens=max_tokens, overflow=overflow)
        results = (answered(waiting.popleft(), answer, top_k) for answer in answers)
        if output is None and sys.stdout.isatty():
            _print_tables(results)
            return
        with replacing(output) if output else nullcontext(sys.stdout) as file:
            for result in _with_progress(results, source):
                write(result, file)


def _print_tables(results: Iterator["Record"]) -> None:
    from rich.console import Console
    from rich.table import Table

    while rows := list(islice(results, TABLE_ROWS)):
        table = Table("text", "label", "score", "others", "tokens")
        for row in rows:
            others = ", ".join(
                f"{label} {score:.2f}"
                for label, score in zip(row["labels"][1:4], row["scores"][1:4], strict=True)
            )
            tokens = f"{row['token_count']}{' (cut)' if row['truncated'] else ''}"
            text = " ".join(row["text"].split())
            cells = [text[:80], row["label"], f"{row['score']:.3f}", others, tokens]
            table.add_row(*(_plain(cell) for cell in cells))
        Console().print(table)


def _plain(cell: str) -> Any:
    """A cell as it is: neither markup nor control characters of a text reach the terminal."""
    from rich.text import Text

    return Text("".join(c if c.isprintable() else "�" for c in cell))


def _with_progress(results: Iterator["Record"], source: Any) -> Iterator["Record"]:
    """Passes results on and shows on standard error how far the input file has been read."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("{task.fields[done]} texts"),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    hidden = source is None or not console.is_terminal
    with progress.Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=source.size if source else None, done=0)
        for done, result in enumerate(results, start=1):
            bar.update(task, completed=source.bytes_read if source else 0, done=done)
            yield result
