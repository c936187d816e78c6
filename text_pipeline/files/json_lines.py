"""One JSON line: read strictly, so that nothing changes on its way, and written as valid JSON."""

import json
import math
from typing import Any

Record = dict[str, Any]

BLANKS = " \t\r\n"
"""What may stand around JSON."""
MAX_DEPTH = 100
"""Arrays and objects in each other; Python's own limit depends on the version and the caller."""


def parse(line: str) -> Record:
    """An object with a string `text` and perhaps `text_pair`; raises ValueError with what is wrong.

    Refused is also what JSON allows and Python would change without a word: a name that an object
    has twice, numbers beyond a double's range. Other numbers become the nearest double.
    """
    too_deep = ValueError(f"JSON nested too deeply, expected at most {MAX_DEPTH} levels")
    try:
        record = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise too_deep from None
    if line.count("[") + line.count("{") > MAX_DEPTH and _is_too_deep(record):
        raise too_deep
    if not isinstance(record, dict):
        raise ValueError(f"expected an object with a field text, got {type(record).__name__}")
    for field in ("text", "text_pair"):
        value = record.get(field)
        if not isinstance(value, str):
            if field == "text" or value is not None:
                raise ValueError(f"field {field}: expected a string, got {value!r:.40}")
        elif not _is_unicode(value):
            raise ValueError(f"field {field}: not valid Unicode: a lone surrogate")
    return record


def dump(record: Record) -> bytes:
    """One line in UTF-8 with its end. JSON has no NaN and no infinity: they become null."""
    try:
        line = _ENCODER.encode(record)
    except ValueError:
        line = _ENCODER.encode(_finite(record))
    try:
        return line.encode() + b"\n"
    except UnicodeEncodeError:
        # A lone surrogate in another field than the text; only a \\u escape can carry it.
        return json.dumps(json.loads(line)).encode() + b"\n"


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return any(isinstance(value, dict | list) for value in level)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _object(members: list[tuple[str, Any]]) -> Record:
    record = dict(members)
    if len(record) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice!r:.40} is there twice")
    return record


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise ValueError(f"number {literal:.40} is beyond the range of a double")
    return value


def _int(literal: str) -> int:
    try:
        return int(literal)
    except ValueError:  # Python's own limit of digits, for time
        raise ValueError(f"number with {len(literal):,} digits, expected fewer") from None


def _constant(literal: str) -> None:
    raise ValueError(f"not JSON ({literal} is no number there)")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
