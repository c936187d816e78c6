"""What no client library sends is refused, and the server is the same afterwards."""

import json
import struct
from collections.abc import Iterator

import pytest

from tests.closeness import Closeness
from tests.conftest import Server
from tests.integration import raw
from tests.integration.protocols import PROTOCOLS, infer

# What Triton 2.51 may call its own error.
UNREADABLE_JSON = {
    "no inputs": (b"{}", "infer"),
    "negative shape": (raw.json_body(["a"], [-1, 1]), "infer"),
    "numbers' type": (raw.json_body(["a"], datatype="INT64"), "infer"),
    "nothing": (b"", "infer"),
    "no JSON": (b"hello", "infer"),
    "no object": (b"[]", "infer"),
    "cut": (raw.json_body(["a"])[:-5], "infer"),
    "lone surrogate": (b'{"text": "a\\ud800b"}', "generate"),
    "10,000 deep": (b"[" * 10_000 + b"]" * 10_000, "infer"),
    "100,000 deep": (b"[" * 100_000, "infer"),
    **{
        f"{json.dumps(value)} for a {name}, {verb}": (body, verb)
        for value in (7, 1.5, True, None, {"a": "b"})
        for name, verb, body in (
            ("text", "generate", json.dumps({"text": value}).encode()),
            ("text_pair", "generate", json.dumps({"text": "a", "text_pair": value}).encode()),
            ("text", "infer", raw.json_body([value])),
        )
    },
}
JSON_REQUESTS = {
    "no text": (b"{}", "generate"),
    "null for a parameter": (b'{"text": "a", "max_tokens": null}', "generate"),
    "shape of more texts": (raw.json_body(["a"], [3, 1]), "infer"),
    "shape of fewer texts": (raw.json_body(["a", "b"], [1, 1]), "infer"),
    "shape that overflows": (raw.json_body(["a"], [2**62, 4]), "infer"),
    "unknown type": (raw.json_body(["a"], datatype="TEXT"), "infer"),
    "unknown name": (raw.json_body(["a"], name="texts"), "infer"),
}
# Bytes of a tensor [2, 1] that are not two texts.
BINARY_DATA = {
    "nothing": b"",
    "half a length": b"\x01",
    "a length beyond the end": raw.packed(b"a") + struct.pack("<I", 100) + b"b",
    "a length of 4 GB": raw.packed(b"a") + b"\xff\xff\xff\xff",
    "one text": raw.packed(b"a"),
    "three texts": raw.packed(b"a", b"b", b"c"),
    "bytes behind the texts": raw.packed(b"a", b"b") + b"cc",
}


@pytest.fixture(scope="module", autouse=True)
def nothing_died(server: Server) -> Iterator[None]:
    before = server.parts()
    yield
    assert server.parts() == before


@pytest.fixture(autouse=True)
def answers_afterwards(server: Server) -> Iterator[None]:
    yield
    assert infer(server, "grpc", ["still there?"])["labels"].shape[0] == 1


@pytest.mark.parametrize(("body", "verb"), UNREADABLE_JSON.values(), ids=UNREADABLE_JSON.keys())
def test_json_that_holds_no_texts_is_refused(server: Server, body: bytes, verb: str) -> None:
    status, answer = raw.post(server, body, verb)
    assert status in raw.UNREADABLE
    assert json.loads(answer)["error"]


@pytest.mark.parametrize(("body", "verb"), JSON_REQUESTS.values(), ids=JSON_REQUESTS.keys())
def test_json_is_refused(server: Server, body: bytes, verb: str) -> None:
    status, answer = raw.post(server, body, verb)
    assert status in raw.REFUSED
    assert json.loads(answer)["error"]


@pytest.mark.parametrize("data", BINARY_DATA.values(), ids=BINARY_DATA.keys())
@pytest.mark.parametrize("send", raw.SENDERS.values(), ids=raw.SENDERS.keys())
def test_bytes_that_are_no_texts_are_refused(server: Server, send, data: bytes) -> None:
    status, answer = send(server, data, [2, 1])
    assert status in raw.REFUSED
    assert "text" in answer


@pytest.mark.parametrize("size", [2, 500])
def test_a_wrong_size_of_binary_data_is_refused(server: Server, size: int) -> None:
    status, _ = raw.http_binary(server, raw.packed(b"a"), size=size)
    assert status in raw.REFUSED


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"caf\xe9 noir", "byte 3 (0xe9)"),
        (b"\xc0\x80", "byte 0 (0xc0)"),
        (b"a\xed\xa0\x80", "byte 1 (0xed)"),
    ],
    ids=["Latin-1", "overlong NUL", "surrogate"],
)
def test_what_is_not_utf8_is_named_in_json_too(server: Server, data: bytes, named: str) -> None:
    """As in the binary protocols, which test_bad_requests.py sends it by."""
    status, answer = raw.post(server, raw.json_body(["good", "?"], [2, 1]).replace(b"?", data))
    assert status in raw.REFUSED
    assert f"text[1]: not valid UTF-8 at {named}" in answer


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_nul_byte_is_part_of_a_text(server: Server, closeness: Closeness, protocol: str) -> None:
    # MiniLM's normaliser drops it: the words around it become one.
    with_nul, without = infer(server, protocol, ["foot\0ball", "football"])["logits"]
    closeness.check(with_nul, without, 1e-5)
