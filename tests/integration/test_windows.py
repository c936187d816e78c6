"""A text in windows gets the mean of what PyTorch answers to transformers' windows of it."""

from functools import cache

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests import windowed
from tests.closeness import Closeness
from tests.conftest import Server
from tests.integration.protocols import PROTOCOLS, infer, label
from text_pipeline.client.pipeline import PipelineClient
from text_pipeline.default_model import corpus
from text_pipeline.export.source import Source

TOLERANCE = 1e-5
ARTICLE = min((a.text for a in corpus.articles() if len(a.text) > 4000), key=len)
# One, two and many windows of 16 tokens.
TEXTS = ["a", "Profits fell", "goal " * 20, ARTICLE[:300], "rates rise " * 60]


@pytest.fixture(scope="module")
def expected(reference: Source):
    """What the reference answers to a text, asked once."""
    return cache(lambda *arguments: windowed.reference(reference, *arguments))


def check(
    closeness: Closeness,
    answer: dict[str, np.ndarray],
    expected: list[windowed.Windowed],
    labels: list,
) -> None:
    for row, item in enumerate(expected):
        for name in ("logits", "probabilities"):
            found = answer[name][row]
            closeness.check(found, getattr(item, name), TOLERANCE, rtol=TOLERANCE)
        names = [label(name) for name in answer["labels"][row]]
        closeness.check_order(names, labels, item.probabilities)
        assert answer["token_count"][row] == item.tokens
        assert not answer["truncated"][row]


@pytest.mark.parametrize(("max_tokens", "stride"), [(16, 0), (16, 7)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_texts_of_one_and_many_windows_in_one_request(
    server: Server,
    reference: Source,
    closeness: Closeness,
    expected,
    protocol: str,
    max_tokens: int,
    stride: int,
) -> None:
    items = [expected(text, max_tokens, stride) for text in TEXTS]
    assert {1, 2} < {min(3, len(item.windows)) for item in items}
    parameters = {"overflow": "window", "max_tokens": max_tokens, "stride": stride}
    answer = infer(server, protocol, TEXTS, parameters=parameters)
    check(closeness, answer, items, reference.labels)
    alone = infer(server, protocol, TEXTS[-1:], parameters=parameters)
    check(closeness, alone, items[-1:], reference.labels)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_article_longer_than_the_limit(
    server: Server, reference: Source, closeness: Closeness, expected, protocol: str
) -> None:
    item = expected(ARTICLE, 512, 64)
    assert len(item.windows) == 2
    parameters = {"overflow": "window", "stride": 64}
    answer = infer(server, protocol, [ARTICLE], parameters=parameters)
    check(closeness, answer, [item], reference.labels)
    answer = infer(
        server, protocol, ["a", ARTICLE], model="text_embedding_ensemble", outputs=("embedding",),
        parameters=parameters,
    )  # fmt: skip
    closeness.check(answer["embedding"][1], item.embedding, TOLERANCE)


def test_client_keeps_requests_within_the_windows_of_one(server: Server, expected) -> None:
    texts = ["rates rise " * 100] * 12
    with PipelineClient(server.grpc_url) as client:
        answers = list(client.classify(texts, overflow="window", max_tokens=16))
    assert {answer.token_count for answer in answers} == {expected(texts[0], 16, 0).tokens}


@pytest.mark.parametrize(
    ("texts", "pairs", "message"),
    [
        (["a", "b " * 500], None, "text[1]: at least 36 windows of 16 tokens, the limit is 32"),
        (["a " * 300] * 4, None, "text[2]: with it the request has 66 windows, the limit is 64"),
        (["a"], ["b"], 'overflow: "window" takes single texts, without text_pair'),
        (["a", "word " * 10**6], None, "text[1]: at least "),
    ],
    ids=["one text", "all texts", "pair", "5 MB"],
)
def test_what_has_too_many_windows_is_refused(
    server: Server, texts: list[str], pairs: list[str] | None, message: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer(server, "grpc", texts, pairs, parameters={"overflow": "window", "max_tokens": 16})
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert message in caught.value.message()
