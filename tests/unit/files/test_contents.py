"""Files of any content: texts and JSON lines come back as they were, all else is refused."""

import bz2
import csv
import gzip
import io
import json
import lzma
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from text_pipeline.errors import TextPipelineError
from text_pipeline.files import json_lines
from text_pipeline.files.records import RecordFile

any_content = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
names = st.sampled_from(["a", "a.txt", "a.TXT", "a.log.1"])
json_names = st.sampled_from(["a.jsonl", "a.JSONL", "a.ndjson", "a.Json", "a.b.JsonL"])
# Unicode's surrogates are no text.
texts = st.text(st.characters(exclude_categories=["Cs"]))
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"))
numbers = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
members = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
json_records = st.dictionaries(st.text(), members, max_size=3).flatmap(
    lambda others: (
        st.fixed_dictionaries({"text": texts}, optional={"text_pair": st.none() | texts})
        .map(lambda record: others | record)
        .filter(lambda record: isinstance(record.get("text_pair", ""), str | None))
    )
)
blanks = st.sampled_from(["", "\n", " \t\r\n", "\n\n"])


def read(path: Path, content: bytes, **options: Any) -> list[dict[str, Any]]:
    path.write_bytes(content)
    return list(RecordFile(str(path), **options))


def refusal(path: Path, content: bytes, **options: Any) -> str:
    """The one line that says why."""
    with pytest.raises(TextPipelineError) as raised:
        read(path, content, **options)
    (line,) = str(raised.value).split("\n")
    return line


@any_content
@given(json_names | names, st.lists(json_records, min_size=1), blanks, st.booleans(), st.booleans())
def test_json_lines_come_back_under_any_name(
    tmp_path: Path, name: str, given: list[Any], blank: str, as_utf8: bool, mark: bool
) -> None:
    if as_utf8:
        written = [json_lines.dump(record).decode() for record in given]
    else:
        written = [json.dumps(record) + "\n" for record in given]
    content = blank + blank.join(written) + blank
    found = read(tmp_path / name, content.encode("utf-8-sig" if mark else "utf-8"))
    assert repr(found) == repr(given)  # 1 is not 1.0, and 0.0 not -0.0
    again = io.BytesIO(b"".join(map(json_lines.dump, found)))
    assert [json.loads(line, parse_constant=pytest.fail) for line in again] == given


@any_content
@given(names, st.lists(lines), st.sampled_from(["\n", "\r\n"]))
@example(
    "a", ["{curly} first", "[1] a note", '["so"] he said', "Yes, no", "1,000 jobs | more"], "\n"
)
@example("a", ["1,000 jobs"], "\n")
@example("a", ["[ok]", '"Yes," he said, "no"', "\tindented", "PAR1 is a gene", "[1, 2]"], "\n")
@example("a", ["text"], "\n")
@example("a", ["label: text, title"], "\n")
def test_a_line_is_a_text_or_the_file_is_refused(
    tmp_path: Path, name: str, given: list[str], end: str
) -> None:
    content = "".join(line + end for line in given)
    assume(not content.startswith("\ufeff"))
    path = tmp_path / name
    asked = [record["text"] for record in read(path, content.encode(), file_format="lines")]
    assert asked == given
    try:
        found = read(path, content.encode(), format_option="--format lines")
    except TextPipelineError as error:
        # Only where the first line looks like something else.
        first = next(line.strip() for line in given if line.strip())
        assert first[0] in '{["' or any(mark in first for mark in ",;\t|")
        assert str(error).endswith("; if every line is a text: --format lines")
        return
    is_json = given and json_lines_of(given)
    assert is_json or [record["text"] for record in found] == given


def json_lines_of(given: list[str]) -> bool:
    return all(line.strip()[:1] in ("{", "") for line in given)


@pytest.mark.parametrize(
    "line",
    [
        "{curly} brackets", "[1] a note", '["so"] he said', "Yes, no", "1,000 jobs, 2;3", "[ok]",
        '"Yes," he said, "no"', "\tindented", "PAR1 is a gene", "[1, 2]", "text", "Title, text",
        "id: text | label", "{{name}}", "[{sic}]", "BZh is no word", "2,4-D", "“a”,“b”", "a;b",
    ],
)  # fmt: skip
def test_prose_is_a_text(tmp_path: Path, line: str) -> None:
    for content in (f"{line}\n", f"\n \n{line}\nmore\n", line):
        assert read(tmp_path / "a.txt", content.encode())[-1]["text"] in (line, "more")


@any_content
@given(names | json_names, st.binary(), st.sampled_from([gzip, bz2, lzma]))
def test_what_is_compressed_is_refused(tmp_path: Path, name: str, data: bytes, how: Any) -> None:
    for asked in (None, "lines", "jsonl"):
        line = refusal(tmp_path / name, how.compress(data), file_format=asked)
        assert "compressed with" in line
        assert "decompress it first" in line


@any_content
@given(names, lines.filter(len), st.sampled_from(["utf-16", "utf-32"]), st.booleans())
def test_other_unicode_is_refused(
    tmp_path: Path, name: str, text: str, encoding: str, has_mark: bool
) -> None:
    content = f"{text} \n".encode(encoding if has_mark else f"{encoding}-be")
    expected = f"{encoding.upper()}, expected text in UTF-8: iconv" if has_mark else "UTF-8"
    assert expected in refusal(tmp_path / name, content)


def test_archives_and_tables_in_binary_form_are_refused(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("xl/workbook.xml", "<workbook/>")
    assert "a zip archive or Excel's .xlsx" in refusal(tmp_path / "a.xlsx", archive.getvalue())
    # A column chunk's first page, and a file without rows.
    for start in (b"PAR1\x15\x04\x15\x1a", b"PAR1\x15\x02\x19\x4c"):
        line = refusal(tmp_path / "a", start)
        assert "Parquet" in line
        assert "pandas.read_parquet(…).to_json(" in line
    assert "Arrow" in refusal(tmp_path / "a", b"ARROW1\0\0")
    assert "zstd" in refusal(tmp_path / "a", b"\x28\xb5\x2f\xfd\0")
    assert "a NUL byte" in refusal(tmp_path / "a", b"one\nSQLite format 3\0\n")
    assert read(tmp_path / "a", b"a\0b\n", file_format="lines") == [{"text": "a\0b"}]


def advised(line: str, folder: Path, stdin: bytes | None = None) -> list[dict[str, Any]]:
    """The records that the command in the message makes."""
    command = line[line.index("python3 ") :].replace("python3", shlex.quote(sys.executable), 1)
    subprocess.run(["bash", "-c", command], cwd=folder, input=stdin, check=True, timeout=60)
    return list(RecordFile(str(folder / "texts.jsonl")))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt", "it's $HOME.JSON"])
@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("given", [[{"text": "é, [1]"}, {"text": "b", "n": 1}], ["a", "b c"]])
def test_json_array_is_refused_with_the_command_that_makes_lines(
    tmp_path: Path, name: str, indent: int | None, given: list[Any]
) -> None:
    content = json.dumps(given, indent=indent, ensure_ascii=False).encode("utf-8-sig")
    for asked in (None, "jsonl"):
        line = refusal(tmp_path / name, content, file_format=asked)
        assert "a JSON array, expected JSON lines" in line
    if indent != 2:
        return  # the command has been tried
    expected = [item if isinstance(item, dict) else {"text": item} for item in given]
    assert advised(line, tmp_path) == expected


@any_content
@given(st.lists(st.dictionaries(st.text(), members, min_size=1) | st.text(), min_size=1), names)
def test_no_json_array_is_taken_for_texts(tmp_path: Path, given: list[Any], name: str) -> None:
    for indent in (None, 1):
        refusal(tmp_path / name, json.dumps(given, indent=indent).encode())


def test_longest_array_is_refused_without_reading_it(tmp_path: Path) -> None:
    for item in ({"text": "a" * 100}, "a" * 100):
        content = json.dumps([item] * 2000).encode()
        assert "a JSON array" in refusal(tmp_path / "a.txt", content)


@pytest.mark.parametrize("content", ['{"text": "a"}', '{"text": {"b": [1, 2]}}', "{}"])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt"])
def test_json_over_several_lines_is_refused(tmp_path: Path, content: str, name: str) -> None:
    written = json.dumps(json.loads(content), indent=2).encode()
    line = refusal(tmp_path / name, written)
    expected = ["line 1: field text"] if content == "{}" else ["several lines", "jq -c . /"]
    assert all(part in line for part in expected)


rows = st.lists(
    st.tuples(texts, st.sampled_from(["good", "bad", "1", "-"])), min_size=1, max_size=5
)


@any_content
@given(
    rows,
    st.sampled_from([("text", "label"), ("ID", "Text"), ("Sentence", "a b"), None]),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.booleans(),
)
def test_table_is_refused_by_content_and_by_name(
    tmp_path: Path, rows: list[Any], head: Any, delimiter: str, quoting: Any, mark: bool
) -> None:
    table = io.StringIO(newline="")
    writer = csv.writer(table, delimiter=delimiter, quoting=quoting)
    writer.writerows([head, *rows] if head else rows)
    content = table.getvalue().encode("utf-8-sig" if mark else "utf-8")
    for name in ("a.csv", "a.CSV", "a.tsv"):
        assert refusal(tmp_path / name, content)
    if head is not None:
        line = refusal(tmp_path / "a.txt", content)
        assert f"looks like {'TSV' if delimiter == chr(9) else 'CSV'}" in line
        assert refusal(tmp_path / "a.txt", content, file_format="jsonl")


@pytest.mark.parametrize(
    "content",
    [
        b'"3","Wall St. Bears","Short sellers"\n', b'3,"Wall St. Bears"\n', b"3,Wall St. Bears\n",
        b"ham\tGo until jurong point\n", b"A good film\t1\n", b'good;"A film"\n', b'"a ""b""",c\n',
    ],
)  # fmt: skip
def test_table_without_a_head_is_refused_too(tmp_path: Path, content: bytes) -> None:
    assert "looks like" in refusal(tmp_path / "a", content)


@pytest.mark.parametrize(("name", "delimiter"), [("a b.csv", ","), ("a.csv", ";"), ("a", "\t")])
def test_table_is_refused_with_the_command_that_makes_json_lines(
    tmp_path: Path, name: str, delimiter: str
) -> None:
    table = io.StringIO(newline="")
    given = [["text", "label"], ['é,;\t"\r\n', "x"], ["b", "y"]]
    csv.writer(table, delimiter=delimiter).writerows(given)
    content = table.getvalue().encode("utf-8-sig")
    expected = [dict(zip(given[0], row, strict=True)) for row in given[1:]]
    assert advised(refusal(tmp_path / name, content), tmp_path) == expected


def test_standard_input_is_named_and_the_command_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b'[\n{"text": "a"}\n]'
    with (tmp_path / "in").open("w+b") as file:
        file.write(content)
        file.seek(0)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        with pytest.raises(TextPipelineError, match=r"^standard input: a JSON array") as raised:
            list(RecordFile("-"))
    assert advised(str(raised.value), tmp_path, content) == [{"text": "a"}]
