"""What a step has measured so far, in a file: a step that is cut short leaves what it had."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Table:
    """For the report: the first `words` columns are words, the others numbers."""

    title: str
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


@dataclass(frozen=True)
class Point:
    """Of the report's plots."""

    kind: str
    """"served", over requests in flight, or "graph", over texts in a batch."""
    series: str
    x: int
    texts_per_s: float
    ms: float
    """The p99 of requests, or the time of a batch."""


@dataclass
class Record:
    """Figures by name, tables and points; `path` holds all of it after every addition."""

    path: Path | None = None
    figures: dict[str, float] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    error: str | None = None
    """Why the step failed, in one line."""

    def figure(self, name: str, value: float) -> None:
        """Adds a number that a claim may be about."""
        self.figures[name] = float(value)
        self.save()

    def table(self, title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *,
              words: int = 1) -> None:  # fmt: skip
        """Adds a table, or replaces the one with this title."""
        self.tables = [table for table in self.tables if table.title != title]
        self.tables.append(Table(title, names, rows, words))
        self.save()

    def point(self, point: Point) -> None:
        """Adds a measured level."""
        self.points.append(point)
        self.save()

    def failed(self, error: str) -> None:
        """Notes why the step ends without having done everything."""
        self.error = " ".join(error.split())
        self.save()

    def save(self) -> None:
        """Writes the file, if there is one."""
        if self.path is not None:
            place(self.path, json.dumps(self.content(), indent=2, ensure_ascii=False) + "\n")

    def content(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "figures": self.figures,
            "tables": [asdict(table) for table in self.tables],
            "points": [asdict(point) for point in self.points],
            "error": self.error,
        }

    @classmethod
    def read(cls, path: Path) -> "Record":
        """What a step wrote; empty if it came to nothing."""
        if not path.is_file():
            return cls()
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            None,
            content["figures"],
            [Table(**table) for table in content["tables"]],
            [Point(**point) for point in content["points"]],
            content["error"],
        )


def place(path: Path, text: str) -> None:
    """Writes a file under another name and moves it into place."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
