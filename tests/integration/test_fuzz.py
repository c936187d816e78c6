"""Random requests: each is answered or refused with a reason. By hand: FUZZ_EXAMPLES=20000."""

import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Server
from tests.integration import raw

FUZZ = settings(max_examples=int(os.environ.get("FUZZ_EXAMPLES", "150")), deadline=None)
TENSOR_FIELDS = ("name", "shape", "datatype", "data", "parameters")
PARAMETERS = ("max_tokens", "overflow", "max_token", "binary_data_output", "timeout", "x")

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(TENSOR_FIELDS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
texts = st.binary(max_size=300) | st.text(max_size=200).map(lambda text: text.encode("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def nothing_died(server: Server) -> Iterator[None]:
    before = server.parts()
    yield
    assert server.parts() == before


@FUZZ
@given(
    changes=st.dictionaries(st.sampled_from(TENSOR_FIELDS), values, max_size=3),
    parameters=st.dictionaries(st.sampled_from(PARAMETERS), values, max_size=3),
    verb=st.sampled_from(["infer", "generate"]),
)
def test_json(server: Server, changes: dict, parameters: dict, verb: str) -> None:
    tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a text"]} | changes
    content = {"inputs": [tensor], "parameters": parameters}
    if verb == "generate":
        content = {"text": changes.get("data", "a text")} | parameters
    status, answer = raw.post(server, json.dumps(content).encode(errors="surrogatepass"), verb)
    assert status in {"200", *raw.UNREADABLE}
    assert status == "200" or json.loads(answer)["error"]


@FUZZ
@given(body=st.binary(max_size=200), verb=st.sampled_from(["infer", "generate"]))
def test_bodies(server: Server, body: bytes, verb: str) -> None:
    status, answer = raw.post(server, body, verb)
    # A body without a length header is one raw tensor, of which the ensemble has two.
    assert status in raw.UNREADABLE
    assert json.loads(answer)["error"]


@FUZZ
@given(
    parts=st.lists(texts, max_size=6),
    shape=st.lists(st.integers(-2, 66), max_size=3) | st.just([2, 1]),
    noise=st.binary(max_size=6),
    protocol=st.sampled_from(sorted(raw.SENDERS)),
)
def test_bytes(
    server: Server, parts: list[bytes], shape: list[int], noise: bytes, protocol: str
) -> None:
    status, answer = raw.SENDERS[protocol](server, raw.packed(*parts) + noise, shape)
    assert status in {"200", "OK", *raw.UNREADABLE}
    assert status in {"200", "OK"} or answer


@FUZZ
@given(parts=st.lists(texts, min_size=1, max_size=6), protocol=st.sampled_from(sorted(raw.SENDERS)))
def test_texts(server: Server, parts: list[bytes], protocol: str) -> None:
    """Any valid text is answered; the first invalid one of a request is named."""
    status, answer = raw.SENDERS[protocol](server, raw.packed(*parts), [len(parts), 1])
    valid = [_is_utf8(part) for part in parts]
    if all(valid):
        assert status in {"200", "OK"}, answer
    else:
        assert status in raw.REFUSED
        assert f"text[{valid.index(False)}]: not valid UTF-8" in answer


def _is_utf8(raw_text: bytes) -> bool:
    try:
        raw_text.decode()
    except UnicodeDecodeError:
        return False
    return True
