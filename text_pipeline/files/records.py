"""Texts in files: one a line or JSON lines in, JSON lines out; streams, however long."""

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from text_pipeline.errors import TextPipelineError
from text_pipeline.files import contents, json_lines
from text_pipeline.files.json_lines import Record

Text = str | tuple[str, str]
"""A text, or a sentence pair."""


class RecordFile:
    """The records of a file, each with a `text` and perhaps a `text_pair`.

    In the format `lines` every line is a text, blank ones too, so that line n of the output belongs
    to line n of the input. In `jsonl` every line is blank or an object whose other fields are kept.
    """

    def __init__(
        self, path: str, file_format: str | None = None, *, format_option: str | None = None
    ) -> None:
        """`path` may be "-" for standard input; without a format, content and name tell it.

        `format_option` is what the user can say to have every line taken as a text.
        """
        self.path = path
        self.format = file_format
        self.bytes_read = 0
        self.line = 0
        """The number of the line of the last record."""
        is_guessed = file_format is None and not contents.has_json_name(path)
        is_open = is_guessed and format_option is not None
        self._way_out = f"; if every line is a text: {format_option}" if is_open else ""

    @property
    def size(self) -> int | None:
        """The file's size in bytes; None for standard input and pipes."""
        path = Path(self.path)
        return path.stat().st_size if path.is_file() else None

    def __iter__(self) -> Iterator[Record]:
        """Yields records; raises TextPipelineError with the line's number for a bad one."""
        with self._open() as file:
            head = _head(file)
            try:
                found = contents.format_of(self.path, b"".join(head), self.format)
            except TextPipelineError as error:
                raise TextPipelineError(f"{error}{self._way_out}") from None
            if head and not head[-1].endswith(b"\n"):
                head[-1] += file.readline()  # the rest of a long line
            for self.line, line in enumerate(chain(head, file), start=1):
                self.bytes_read += len(line)
                text = self._decoded(line)
                if found == contents.LINES or text.strip(json_lines.BLANKS):
                    yield self._record(text, found)

    def _decoded(self, line: bytes) -> str:
        try:
            return line.decode("utf-8-sig" if self.line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise TextPipelineError(
                f"{self.where}: not UTF-8 at byte {error.start} (0x{line[error.start]:02x})"
            ) from None

    def _record(self, text: str, found: str) -> Record:
        if found == contents.JSON_LINES:
            try:
                return json_lines.parse(text)
            except ValueError as error:
                raise TextPipelineError(f"{self.where}: {error}{self._way_out}") from None
        if "\0" in text and self.format is None:
            raise TextPipelineError(
                f"{self.where}: a NUL byte, as in UTF-16 and in files that are no text: expected "
                f"text in UTF-8, or JSON lines, where \\u0000 is one{self._way_out}"
            )
        return {"text": text.removesuffix("\n").removesuffix("\r")}

    @property
    def where(self) -> str:
        """The file and the line of the last record, for messages."""
        return f"{contents.shown(self.path)} line {self.line}"

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        if self.path == contents.STANDARD_STREAM:
            yield sys.stdin.buffer
            return
        try:
            file = Path(self.path).open("rb")  # noqa: SIM115 - the error is only the opening's
        except OSError as error:
            raise TextPipelineError(f"{self.path}: {error.strerror}") from None
        with file:
            yield file


def text_of(record: Record) -> Text:
    """A record's text, or its pair."""
    pair = record.get("text_pair")
    return record["text"] if pair is None else (record["text"], pair)


def write(record: Record, file: BinaryIO) -> None:
    """Writes one JSON line, in UTF-8 whatever the locale."""
    file.write(json_lines.dump(record))
    # Whoever reads a pipe sees every answer when it comes.
    file.flush()


@contextmanager
def output(path: Path | None) -> Iterator[BinaryIO]:
    """The file to write to: a complete one at `path`, or standard output."""
    with nullcontext(sys.stdout.buffer) if path is None else replacing(path) as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name only when the block ends without an error.

    A link stays one: the file it points to is replaced. Devices and pipes are written directly.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with _errors_of(path), target.open("wb") as file:
            yield file
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with _errors_of(path), temporary.open("xb") as file:
            yield file
        with _errors_of(path):
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TextPipelineError(f"{path}: {error.strerror}") from error


def _head(file: BinaryIO) -> list[bytes]:
    """The lines to the first that is not blank; of long ones the beginning."""
    lines: list[bytes] = []
    left = contents.HEAD_BYTES
    while line := file.readline(left):
        lines.append(line)
        left -= len(line)
        if line.removeprefix(codecs.BOM_UTF8).strip() or not left:
            break
    return lines
