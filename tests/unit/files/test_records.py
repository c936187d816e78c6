"""Reading texts and writing answers."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from text_pipeline.errors import TextPipelineError
from text_pipeline.files import json_lines
from text_pipeline.files.records import RecordFile, replacing


def records(path: Path, content: bytes, file_format: str | None = None) -> list[dict[str, Any]]:
    path.write_bytes(content)
    return list(RecordFile(str(path), file_format))


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"", []),
        (b"one\ntwo", ["one", "two"]),
        (b"one\n\n  \ntwo\n", ["one", "", "  ", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\xef\xbb\xbfone\n", ["one"]),
        ("a\u2028b\x0cc\n".encode(), ["a\u2028b\x0cc"]),
    ],
)
def test_every_line_is_a_text(tmp_path: Path, content: bytes, texts: list[str]) -> None:
    found = records(tmp_path / "texts.txt", content)
    assert [record["text"] for record in found] == texts


@pytest.mark.parametrize(
    ("name", "file_format", "text"),
    [
        ("a.txt", None, "x"),
        ("a", None, "x"),
        ("a.jsonl", None, "x"),
        ("a.NDJSON", None, "x"),
        ("a.Json", None, "x"),
        ("a.csv", None, "x"),
        ("a.jsonl", "lines", '{"text": "x"}'),
        ("a.txt", "jsonl", "x"),
    ],
)
def test_format_follows_from_content_and_name_unless_given(
    tmp_path: Path, name: str, file_format: str | None, text: str
) -> None:
    assert records(tmp_path / name, b'{"text": "x"}\n', file_format)[0]["text"] == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xffabc", "not UTF-8 at byte 0 (0xff)"),
        (b'{"text": "a"', "not JSON"),
        (b"[" * 100_000, "JSON nested too deeply"),
        (b"3", "expected an object with a field text, got int"),
        (b"{}", "field text: expected a string, got None"),
        (b'{"text": null}', "field text: expected a string, got None"),
        (b'{"text": "a", "text_pair": 1}', "field text_pair: expected a string, got 1"),
        (b'{"text": "\\ud800"}', "field text: not valid Unicode: a lone surrogate"),
        (b'{"text": "a", "n": 1e400}', "number 1e400 is beyond the range of a double"),
        (b'{"text": "a", "n": [-1e400]}', "number -1e400 is beyond the range of a double"),
        (b'{"text": "a", "n": NaN}', "not JSON (NaN is no number there)"),
        (b'{"text": "a", "n": -Infinity}', "not JSON (-Infinity is no number there)"),
        (b'{"text": "a", "n": ' + b"9" * 5000 + b"}", "number with 5,000 digits"),
        (b'{"text": "a", "text": "b"}', "field 'text' is there twice"),
        (b'{"text": "a", "n": {"b": 1, "b": 1}}', "field 'b' is there twice"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "texts.jsonl"
    with pytest.raises(TextPipelineError) as raised:
        records(path, b'{"text": "fine"}\n\n' + line + b"\n")
    assert str(raised.value).startswith(f"{path} line 3: {message}")


@given(st.integers(1, 2000), st.sampled_from(["[%s]", '{"a": %s}']))
@example(json_lines.MAX_DEPTH - 1, "[%s]")
@example(json_lines.MAX_DEPTH, "[%s]")
@settings(deadline=None, max_examples=20)
def test_nesting_comes_back_or_is_refused_whoever_calls(depth: int, nest: str) -> None:
    value = "1"
    for _ in range(depth):
        value = nest % value
    line = f'{{"text": "a", "v": {value}}}'
    if depth < json_lines.MAX_DEPTH:
        assert json_lines.dump(json_lines.parse(line)).decode() == f"{line}\n"
    else:
        with pytest.raises(ValueError, match="nested too deeply, expected at most 100 levels"):
            json_lines.parse(line)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match=r"none\.txt: No such file or directory$"):
        list(RecordFile(str(tmp_path / "none.txt")))


def test_file_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with replacing(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replacing(pipe) as file:
            file.write(b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "out.jsonl"
    with pytest.raises(TextPipelineError, match=r"out\.jsonl: No such file"), replacing(path):
        pytest.fail("there is no file to write to")
