"""What people see on a terminal: tables of answers, and how far an input has been read."""

from collections.abc import Iterable, Iterator
from itertools import islice

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from text_pipeline.records import Record, RecordFile

TABLE_ROWS = 100
"""Rows of one table: longer results come as several, while they arrive."""
TEXT_WIDTH = 80
"""Characters shown of a text."""


def print_tables(results: Iterator[Record], console: Console) -> None:
    """Prints the answers, as many tables as it takes."""
    while rows := list(islice(results, TABLE_ROWS)):
        table = Table("text", "label", "score", "others", "tokens")
        for row in rows:
            table.add_row(*map(_plain, _cells(row)))
        console.print(table)


def _cells(row: Record) -> tuple[str, ...]:
    others = zip(row["labels"][1:4], row["scores"][1:4], strict=True)
    text = " ".join(" / ".join(filter(None, (row["text"], row.get("text_pair")))).split())
    return (
        text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…",
        row["label"],
        f"{row['score']:.3f}",
        ", ".join(f"{label} {score:.2f}" for label, score in others),
        f"{row['token_count']}{' (cut)' if row['truncated'] else ''}",
    )


def _plain(cell: str) -> Text:
    """A cell as it is: neither markup nor control characters of a text reach the terminal."""
    return Text("".join(c if c.isprintable() else "�" for c in cell))


def with_progress(
    results: Iterable[Record], source: RecordFile, console: Console
) -> Iterator[Record]:
    """Passes results on and shows how far `source` has been read, if `console` is a terminal."""
    if not console.is_terminal:
        yield from results
        return
    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[done]} texts"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=source.size, done=0)
        for done, result in enumerate(results, start=1):
            bar.update(task, completed=source.bytes_read, done=done)
            yield result
