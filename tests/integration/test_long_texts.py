"""Long texts are answered as if the server had read all of them, and nobody waits for that."""

import threading
import time
from collections.abc import Iterator

import pytest

from tests.closeness import Closeness
from tests.conftest import Server
from tests.integration import raw
from tests.integration.protocols import PROTOCOLS, infer
from tests.integration.test_answers import check
from text_pipeline.export.source import Source

MEGABYTE = 1_000_000
# What comes first in the whole text, and nothing behind it matters.
SAME_BEGINNING = {
    "2 MB without a space": "x" * 2 * MEGABYTE,
    "a word behind it": "x" * 2 * MEGABYTE + " football",
    "2 MB of white space": " " * MEGABYTE + "\n" * MEGABYTE + "football",
    "70,000 words": "The striker scored twice. " * 17_500,
    "70,000 dots": "." * 70_000,
    "Chinese": "新闻" * 35_000,
    "typed special tokens": "[SEP] [PAD] " * 10_000,
}
LIMIT_S = 1.0
"""As a whole, 2 MB of dots took 3 s and 1 GB of memory, and everybody waited."""


@pytest.fixture(scope="module", autouse=True)
def nothing_died(server: Server) -> Iterator[None]:
    before = server.parts()
    yield
    assert server.parts() == before


@pytest.mark.parametrize("text", SAME_BEGINNING.values(), ids=SAME_BEGINNING.keys())
def test_the_answer_is_that_of_the_whole_text(
    server: Server, reference: Source, closeness: Closeness, text: str
) -> None:
    check(closeness, reference, [text], infer(server, "grpc", [text]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_of_70_mb_is_answered(
    server: Server, closeness: Closeness, protocol: str
) -> None:
    short, long = infer(server, protocol, ["x" * 5000, "x" * 70 * MEGABYTE])["logits"]
    closeness.check(long, short, 1e-5)


def test_a_text_with_hardly_any_tokens_is_refused(server: Server) -> None:
    text = b"x" * 5000 + b" "
    status, answer = raw.grpc_raw(server, raw.packed(b"good", text * 400), [2, 1])
    assert status in raw.REFUSED
    assert "text[1]: fewer than 512 tokens in its first 131072 characters" in answer


def test_short_texts_do_not_wait_for_long_ones(server: Server) -> None:
    done = threading.Event()

    def send_long_texts() -> None:
        while not done.is_set():
            infer(server, "grpc", ["." * 2 * MEGABYTE], outputs=("labels",))

    sender = threading.Thread(target=send_long_texts)
    sender.start()
    waited = []
    try:
        for _ in range(40):
            sent = time.monotonic()
            infer(server, "grpc", ["A short text."], outputs=("labels",))
            waited.append(time.monotonic() - sent)
    finally:
        done.set()
        sender.join()
    assert max(waited) < LIMIT_S
