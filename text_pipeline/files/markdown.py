"""Tables of reports."""

from collections.abc import Sequence


def table(names: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """A Markdown table; the first `words` columns are words, the others numbers."""
    lines = [_row(names), "|" + "---|" * words + "---:|" * (len(names) - words)]
    return "\n".join([*lines, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in cells) + " |"
