"""A bad request gets an error that names the field; nobody else notices."""

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.conftest import Server
from tests.integration.protocols import PROTOCOLS, column, infer, infer_tensors

BINARY_PROTOCOLS = ("http-binary", "grpc")
BAD_BYTES = {
    "invalid byte": (b"caf\xe9 noir", "text[1]: not valid UTF-8 at byte 3 (0xe9)"),
    "lone surrogate": (b"a\xed\xa0\x80b", "text[1]: not valid UTF-8 at byte 1 (0xed)"),
    "cut sequence": ("é".encode()[:1], "text[1]: not valid UTF-8 at byte 0 (0xc3)"),
}


@pytest.fixture(autouse=True)
def answers_afterwards(server: Server):
    yield
    assert infer(server, "grpc", ["still there?"])["labels"].shape[0] == 1


def rejected(server: Server, protocol: str, *args: Any, **kwargs: Any) -> str:
    """The message of the 400 or INVALID_ARGUMENT that the request must get."""
    with pytest.raises(InferenceServerException) as caught:
        infer(server, protocol, *args, **kwargs)
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    return caught.value.message()


@pytest.mark.parametrize(("raw", "message"), BAD_BYTES.values(), ids=BAD_BYTES.keys())
@pytest.mark.parametrize("protocol", BINARY_PROTOCOLS)
def test_bytes_that_are_not_utf8_are_named(
    server: Server, protocol: str, raw: bytes, message: str
) -> None:
    assert message in rejected(server, protocol, ["good", raw])


@pytest.mark.parametrize("protocol", BINARY_PROTOCOLS)
def test_bad_second_segment_is_named(server: Server, protocol: str) -> None:
    assert "text_pair[1]: not valid UTF-8" in rejected(server, protocol, ["a", "b"], ["c", b"\xff"])


def test_lone_surrogate_in_json_is_refused(server: Server) -> None:
    request = urllib.request.Request(
        f"http://{server.http_url}/v2/models/text_pipeline_ensemble/generate",
        b'{"text": "a\\ud800b"}',
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert "surrogate" in json.load(caught.value)["error"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_65_texts_exceed_the_batch(server: Server, protocol: str) -> None:
    assert "64" in rejected(server, protocol, ["a"] * 65)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_tokens": 0}, "max_tokens: expected an integer from 3 to 512, got 0"),
        ({"max_tokens": 2}, "max_tokens: expected an integer from 3 to 512, got 2"),
        ({"max_tokens": 10**9}, "max_tokens: expected an integer from 3 to 512, got 1000000000"),
        ({"max_tokens": "abc"}, 'max_tokens: expected an integer from 3 to 512, got "abc"'),
        ({"max_tokens": True}, "max_tokens: expected an integer from 3 to 512, got true"),
        (
            {"overflow": "errror"},
            'overflow: expected "truncate" or "error" or "window", got "errror"',
        ),
        ({"stride": 1}, 'stride: expected together with overflow "window" only'),
        ({"overflow": "window", "stride": -1}, "stride: expected an integer from 0 to 255, got -1"),
        (
            {"overflow": "window", "max_tokens": 9, "stride": 4},
            "stride: expected an integer from 0 to 3, got 4",
        ),
        ({"overflow": "window", "strides": 1}, "strides: unknown parameter, expected stride"),
        ({"overfow": "error"}, "overfow: unknown parameter, expected overflow"),
        ({"max-token": 8}, "max-token: unknown parameter, expected max_tokens"),
        ({"overflow": "x" * 100_000}, f'got "{"x" * 199}... (100002 characters)'),
        ({f"any {n}": n for n in range(101)}, "parameters: 101 of them, the limit is 100"),
        ({"overflow": "error", "max_tokens": 4}, "text[1]: 9 tokens, the limit is 4"),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bad_parameter_is_named(
    server: Server, protocol: str, parameters: dict[str, Any], message: str
) -> None:
    texts = ["short", "a b c d e f g"]
    assert message in rejected(server, protocol, texts, parameters=parameters)


@pytest.mark.parametrize(
    "tensors",
    [
        {"text": column(["a", "b"]).reshape(2)},
        {"text": column(["a", "b"]).reshape(1, 2)},
        {"text": column(["a", "b"]).reshape(2, 1, 1)},
        {"text": np.ones((1, 1), np.int64)},
        {"texts": column(["a"])},
        {"text_pair": column(["a"])},
        {"text": column(["a", "b"]), "text_pair": column(["c"])},
        {"text": column([])},
    ],
    ids=["[2]", "[1,2]", "[2,1,1]", "INT64", "unknown", "pair only", "unequal", "no rows"],
)
@pytest.mark.parametrize("protocol", BINARY_PROTOCOLS)
def test_wrong_tensors_are_refused(
    server: Server, protocol: str, tensors: dict[str, np.ndarray]
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer_tensors(server, protocol, tensors)
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_one_bad_request_among_eight_is_the_only_one_refused(server: Server) -> None:
    requests: list[list[str | bytes]] = [[f"text number {n}", "x"] for n in range(8)]
    requests[3][1] = b"\xff"

    def ask(texts: list[str | bytes]) -> Any:
        try:
            return infer(server, "grpc", texts)["scores"]
        except InferenceServerException as error:
            return error

    for _ in range(10):  # so that some of them share a batch
        with ThreadPoolExecutor(8) as executor:
            answers = list(executor.map(ask, requests))
        refused = [n for n, a in enumerate(answers) if isinstance(a, InferenceServerException)]
        assert refused == [3]
