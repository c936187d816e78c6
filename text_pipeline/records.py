"""Texts in files: one a line or JSON lines in, JSON lines out; streams, however long."""

import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from text_pipeline.chunks import Text
from text_pipeline.client import Classification, PipelineClient
from text_pipeline.errors import TextPipelineError

STANDARD_STREAM = "-"

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
                    record = parse(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                except UnicodeDecodeError as error:
                    raise TextPipelineError(
                        f"{self.path} line {number}: not UTF-8 at byte {error.start} "
                        f"(0x{error.object[error.start]:02x})"
                    ) from None
                except ValueError as error:
                    raise TextPipelineError(f"{self.path} line {number}: {error}") from None
                yield record

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


def classify_records(
    client: PipelineClient, records: Iterable[Record], **options: Any
) -> Iterator[Record]:
    """Yields every record with its answer; `options` are those of `PipelineClient.classify`."""
    waiting: deque[Record] = deque()

    def texts() -> Iterator[Text]:
        for record in records:
            waiting.append(record)
            yield text_of(record)

    for answer in client.classify(texts(), **options):
        yield answered(waiting.popleft(), answer)


def text_of(record: Record) -> Text:
    """A record's text, or its pair."""
    pair = record.get("text_pair")
    return record["text"] if pair is None else (record["text"], pair)


def answered(record: Record, answer: Classification) -> Record:
    """The record with its answer: the best label and score, all labels and scores, the counts.

    Where no score reached the threshold, the best label and score are None.
    A field of the record that has the name of one of these is kept as `input_<name>`: records
    with a `label` to compare with are common.
    """
    answer_fields = {
        "label": answer.labels[0] if answer.labels else None,
        "score": answer.scores[0] if answer.scores else None,
        "labels": answer.labels,
        "scores": answer.scores,
        "token_count": answer.token_count,
        "truncated": answer.truncated,
    }
    kept: Record = {}
    for name, value in record.items():
        while name in answer_fields or name in kept:
            name = f"input_{name}"
        kept[name] = value
    return kept | answer_fields


def write(record: Record, file: BinaryIO) -> None:
    """Writes one JSON line, in UTF-8 whatever the locale."""
    try:
        line = json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # A lone surrogate in another field than the text; only a \\u escape can carry it.
        line = json.dumps(record).encode()
    file.write(line + b"\n")
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


def _parse_line(line: str) -> Record:
    return {"text": line.removesuffix("\n").removesuffix("\r")}


def _parse_object(line: str) -> Record:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected an object with a field text, got {type(record).__name__}")
    for field in ("text", "text_pair"):
        value = record.get(field)
        if not isinstance(value, str) and (field == "text" or value is not None):
            raise ValueError(f"field {field}: expected a string, got {value!r:.40}")
    return record
