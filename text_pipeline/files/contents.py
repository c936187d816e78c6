"""What a file of texts holds, told by its first line and its name, so that nothing is misread."""

import re
import shlex
from pathlib import PurePath

from text_pipeline.errors import TextPipelineError

STANDARD_STREAM = "-"
LINES, JSON_LINES = "lines", "jsonl"

HEAD_BYTES = 64 * 2**10
"""As much of a first line is looked at: a whole file may be one line."""

_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PANDAS = (
    'make JSON lines of it: pandas.read_{}(…).to_json("texts.jsonl", orient="records", lines=True)'
)
# How files begin that are no text in UTF-8: what it is, and what to do. Others have bytes that are
# not UTF-8 or are NUL sooner or later. UTF-32 comes before UTF-16, which begins like it.
_BINARY = tuple(
    (re.compile(start), what, advice)
    for start, what, advice in (
        (rb"\x1f\x8b", "compressed with gzip", "decompress it first (gzip -d)"),
        (
            rb"BZh[1-9](?:1AY&SY|\x17rE8P)",
            "compressed with bzip2",
            "decompress it first (bzip2 -d)",
        ),
        (rb"\xfd7zXZ\x00", "compressed with xz", "decompress it first (xz -d)"),
        (rb"\x28\xb5\x2f\xfd", "compressed with zstd", "decompress it first (zstd -d)"),
        (rb"PK\x03\x04", "a zip archive or Excel's .xlsx", "unpack it, or save it as JSON lines"),
        (rb"PAR1\x15", "Parquet", _PANDAS.format("parquet")),
        (rb"ARROW1\x00", "Arrow", _PANDAS.format("feather")),
        (rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff", "UTF-32", "iconv -f UTF-32 -t UTF-8 makes UTF-8"),
        (rb"\xff\xfe|\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8 makes UTF-8"),
    )
)

_STRING = r'"(?:[^"\\]|\\.)*"'
_OBJECT = re.compile(rf"\{{\s*(?:{_STRING}\s*:|\}}?$)")
# The line ends where an object or array cannot: the rest is on the next lines.
_GOES_ON = re.compile(r".*[{[,:]$", re.DOTALL)
# Of objects or arrays; of nothing or strings only to the line's end, for ["so"] may begin a text.
_ARRAY = re.compile(rf'\[\s*(?:$|\{{\s*(?:["}}]|$)|\[\s*"|\]$|{_STRING}\s*(?:\]|,(?:.*[],])?)$)')
_CUT_ARRAY = re.compile(rf'\[\s*{_STRING}\s*,\s*"')

_COLUMNS = {
    *("text", "text_pair", "sentence", "title", "review", "comment", "content", "message", "body"),
    *("label", "labels", "category", "class", "sentiment", "target", "id"),
}
_NAME = re.compile(r"[^\W\d](?:[\w .-]*\w)?")
# A quoted or short first field, or a short last one behind a tab, and no space at the delimiter,
# where prose has one. A number before digits (1,000) is a number.
_ROW = re.compile(
    r'"(?:[^"]|"")*"([,;\t])(?=\S)|\w+([,;])(?=")|\d+([,;])(?=[^\W\d])'
    r"|[\w.+-]+(\t)(?=\S)|.*\S(\t)[\w.+-]+$"
)


def format_of(path: str, head: bytes, asked: str | None = None) -> str:
    """LINES or JSON_LINES, for a file with this name that begins with `head`.

    `head` ends with the first line that is not blank, or after HEAD_BYTES. With `asked` nothing is
    guessed, but what cannot be of that format is named. Raises TextPipelineError with what the file
    is and what to do.
    """
    for start, what, advice in _BINARY:
        if start.match(head):
            raise TextPipelineError(f"{shown(path)}: {what}, expected text in UTF-8: {advice}")
    if asked == LINES:
        return LINES
    line = head.decode("utf-8-sig", errors="ignore").strip()
    if _OBJECT.match(line):
        if _GOES_ON.match(line) and head.endswith(b"\n"):
            raise TextPipelineError(
                f"{shown(path)}: JSON over several lines, expected an object in each line: "
                f"jq -c . {_argument(path)} > texts.jsonl"
            )
        return JSON_LINES
    if _is_array(line, head) or (line.startswith("[") and has_json_name(path)):
        raise TextPipelineError(
            f"{shown(path)}: a JSON array, expected JSON lines: {_array_advice(path)}"
        )
    if delimiter := _delimiter(line) or _DELIMITERS.get(_ending(path)):
        what = "TSV" if delimiter == "\t" else "CSV"
        raise TextPipelineError(
            f"{shown(path)}: looks like {what}, expected JSON lines or a text in each line: with a "
            f"column named text, {_table_advice(path, delimiter)}"
        )
    return asked or (JSON_LINES if has_json_name(path) else LINES)


def has_json_name(path: str) -> bool:
    """Whether the name says JSON, in any spelling."""
    return _ending(path) in _JSON_ENDINGS


def shown(path: str) -> str:
    """The name in messages."""
    return "standard input" if path == STANDARD_STREAM else path


def _ending(path: str) -> str:
    return PurePath(path).suffix.lower()


def _is_array(line: str, head: bytes) -> bool:
    is_whole = head.endswith(b"\n") or len(head) < HEAD_BYTES
    return bool(_ARRAY.match(line) or (not is_whole and _CUT_ARRAY.match(line)))


def _delimiter(line: str) -> str | None:
    """What separates the columns, if the line is the head or the first row of a table."""
    for delimiter in ",;\t|":
        names = [name.strip('"') for name in line.split(delimiter)]
        is_known = not _COLUMNS.isdisjoint(map(str.lower, names))
        if len(names) > 1 and is_known and all(map(_NAME.fullmatch, names)):
            return delimiter
    row = _ROW.match(line)
    return row and next(filter(None, row.groups()))


def _array_advice(path: str) -> str:
    script = (
        "import json, sys; [print(json.dumps(r if isinstance(r, dict) else {'text': r})) "
        "for r in json.load(open(sys.argv[1], 'rb'))]"
    )
    return f'python3 -c "{script}" {_argument(path)} > texts.jsonl'


def _table_advice(path: str, delimiter: str) -> str:
    other = "" if delimiter == "," else f", delimiter={delimiter!r}"
    script = (
        "import csv, json, sys; f = open(sys.argv[1], encoding='utf-8-sig', newline=''); "
        f"[print(json.dumps(r)) for r in csv.DictReader(f{other})]"
    )
    return f'python3 -c "{script}" {_argument(path)} > texts.jsonl'


def _argument(path: str) -> str:
    return "/dev/stdin" if path == STANDARD_STREAM else shlex.quote(path)
