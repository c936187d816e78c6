"""Texts in files: one a line or JSON lines in, JSON lines out; streams, however long."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from text_pipeline.client import Classification, Text
from text_pipeline.errors import TextPipelineError

STANDARD_STREAM = "-"
FORMATS = ("lines", "jsonl")

Record = dict[str, Any]


class RecordFile:
    """The records of a file, each with a `text` and perhaps a `text_pair`.

    In the format `lines` every line is a text, blank ones too, so that line n of the output belongs
    to line n of the input. In `jsonl` every line is an object whose other fields are kept.
    """

    def __init__(self, path: str, file_format: str | None = None) -> None:
        """`path` may be "-" for standard input; the format follows from the name's ending."""
        self.path = path
        is_jsonl = path.endswith((".jsonl", ".ndjson"))
        self.format = file_format or ("jsonl" if is_jsonl else "lines")
        self.bytes_read = 0

    @property
    def size(self) -> int | None:
        """The file's size in bytes; None for standard input and pipes."""
        path = Path(self.path)
        return path.stat().st_size if path.is_file() else None

    def __iter__(self) -> Iterator[Record]:
        """Yields records; raises TextPipelineError with the line's number for a bad one."""
        parse = _parse_object if self.format == "jsonl" else _parse_line
        with self._open() as file:
            for number, line in enumerate(file, start=1):
                self.bytes_read += len(line)
                try:
                    yield parse(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                except UnicodeDecodeError as error:
                    raise TextPipelineError(
                        f"{self.path} line {number}: not UTF-8 at byte {error.start} "
                        f"(0x{line[error.start]:02x})"
                    ) from None
                except ValueError as error:
                    raise TextPipelineError(f"{self.path} line {number}: {error}") from None

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        if self.path == STANDARD_STREAM:
            yield sys.stdin.buffer
            return
        try:
            file = Path(self.path).open("rb")  # noqa: SIM115 - the error is only the opening's
        except OSError as error:
            raise TextPipelineError(f"{self.path}: {error.strerror}") from None
        with file:
            yield file


def text_of(record: Record) -> Text:
    """What the record asks to classify."""
    return (record["text"], record["text_pair"]) if "text_pair" in record else record["text"]


def answered(record: Record, answer: Classification, top_k: int | None = None) -> Record:
    """The record with its answer: the best label and score, the `top_k` best, and the counts."""
    return record | {
        "label": answer.labels[0],
        "score": answer.scores[0],
        "labels": answer.labels[:top_k],
        "scores": answer.scores[:top_k],
        "token_count": answer.token_count,
        "truncated": answer.truncated,
    }


def write(record: Record, file: TextIO) -> None:
    """Writes one JSON line."""
    # Bytes that were no UTF-8 came in as lone surrogates; only \u escapes can carry them.
    file.write(json.dumps(record, ensure_ascii=False) + "\n")


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A file that appears under its name only when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise TextPipelineError(f"{path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _parse_line(line: str) -> Record:
    return {"text": line.removesuffix("\n").removesuffix("\r")}


def _parse_object(line: str) -> Record:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected an object with a field text, got {type(record).__name__}")
    for field in ("text", "text_pair"):
        if (field == "text" or field in record) and not isinstance(record.get(field), str):
            raise ValueError(f"field {field}: expected a string, got {record.get(field)!r:.40}")
    return record
