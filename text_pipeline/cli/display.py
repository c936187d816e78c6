"""What people see on a terminal: tables of answers, and how far an input has been read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from text_pipeline.files.records import Record, RecordFile
from text_pipeline.repository.inspection import Content, Version
from text_pipeline.server.doctor import Finding

if TYPE_CHECKING:
    from text_pipeline.export.progress import Track

Answer = TypeVar("Answer")

TABLE_ROWS = 100
"""Rows of one table: longer results come as several, while they arrive."""
TEXT_WIDTH = 80
"""Characters shown of a text."""
STEP_WIDTH = 30
"""Characters of a step before its bar."""


def print_tables(results: Iterator[Record], console: Console) -> None:
    """Prints the answers, as many tables as it takes."""
    while rows := list(islice(results, TABLE_ROWS)):
        table = Table("text", "label", "score", "others", "tokens")
        for row in rows:
            table.add_row(*map(plain, _cells(row)))
        console.print(table)


def _cells(row: Record) -> tuple[str, ...]:
    others = zip(row["labels"][1:4], row["scores"][1:4], strict=True)
    text = " ".join(" / ".join(filter(None, (row["text"], row.get("text_pair")))).split())
    return (
        _shortened(text),
        row["label"] or "-",
        f"{row['score']:.3f}" if row["labels"] else "-",
        ", ".join(f"{label} {score:.2f}" for label, score in others),
        f"{row['token_count']}{' (cut)' if row['truncated'] else ''}",
    )


def _shortened(text: str, width: int = TEXT_WIDTH) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def plain(cell: str) -> Text:
    """A cell as it is: neither markup nor control characters of a text reach the terminal."""
    return Text("".join(c if c.isprintable() else "�" for c in cell))


def with_progress(
    results: Iterable[Answer], source: RecordFile, console: Console
) -> Iterator[Answer]:
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


@contextmanager
def steps(console: Console) -> "Iterator[tuple[Callable[[str], None], Track | None]]":
    """What says a step and what shows how far it is: a bar below the lines on a terminal.

    Elsewhere lines alone.
    """
    if not console.is_terminal:
        yield click.echo, None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def say(line: str) -> None:
            nonlocal task
            console.print(plain(line), soft_wrap=True)
            bar.remove_task(task)
            # Without a total the bar runs to and fro.
            task = bar.add_task(_shortened(line, STEP_WIDTH), total=None)

        def track(items: Iterable[Answer], total: int) -> Iterator[Answer]:
            bar.reset(task, total=total)
            for item in items:
                yield item
                bar.advance(task)

        yield say, track


def print_content(content: Content, console: Console) -> None:
    """Prints what is in a repository: a line for the whole, a block for every version."""
    used = content.version_in_use
    state = f"version {used} is in use" if used else "which version is in use cannot be told"
    names = ", ".join(["config.pbtxt", *content.configurations])
    console.print(plain(f"{content.path}: {state}; configurations: {names}"), soft_wrap=True)
    for problem in content.problems:
        console.print(plain(f"damaged: {problem}"), style="red", soft_wrap=True)
    for version in content.versions:
        state = ", in use" if version.in_use else ", loaded" if version.is_loaded else ""
        console.print(f"\nversion {version.number}{state}", style="bold")
        for name, value in _version_rows(version):
            style = "red" if name == "damaged" else None
            console.print(plain(f"  {name:<11}{value}"), style=style, soft_wrap=True)


def _version_rows(version: Version) -> Iterator[tuple[str, str]]:
    report, gate = version.report, version.report.get("gate", {})
    if report:
        yield "model", f"{report.get('model')} ({report.get('architecture')})"
        yield (
            "graph",
            f"{report.get('layout')}, {report.get('precision')} for {report.get('device')}",
        )
        yield "runs with", ", ".join(version.configurations) or "no configuration of its device"
        pairs = ", also pairs" if report.get("takes_pairs") else ""
        yield "takes", f"up to {report.get('max_tokens')} tokens{pairs}"
    if version.labels:
        yield "labels", f"{len(version.labels)}: {_shortened(', '.join(version.labels))}"
    if gate:
        differences = gate.get("max_difference", {})
        largest = max(differences, key=differences.__getitem__, default="")
        yield (
            "checked",
            f"{gate.get('label_agreement', 0):.1%} of {gate.get('texts')} labels as in PyTorch; "
            f"largest difference {differences.get(largest, 0):.2g} ({largest}), "
            f"limit {gate.get('tolerance'):g}; on {gate.get('checked_on')}",
        )
    if report:
        made = ", ".join(f"{name} {number}" for name, number in report.get("versions", {}).items())
        yield "made with", made
    yield "size", f"{version.bytes / 1e6:.1f} MB"
    yield from (("damaged", problem) for problem in version.problems)


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Prints what a machine has: what stops a start in red, what only lacks in yellow."""
    for finding in findings:
        style = "red" if finding.stops else "yellow" if finding.problem else None
        mark = "stops" if finding.stops else "note" if finding.problem else "ok"
        problem = f": {finding.problem}" if finding.problem else ""
        line = f"{mark:<6} {finding.subject:<18}{finding.found}{problem}"
        console.print(plain(line), style=style, soft_wrap=True)
