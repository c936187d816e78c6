"""Every answer is the one of transformers in PyTorch."""

import json
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
import tritonclient.http

from tests.closeness import Closeness
from tests.conftest import Server
from tests.integration.protocols import PROTOCOLS, column, infer, label
from text_pipeline.default_model import corpus
from text_pipeline.export.gate import columns, pytorch_outputs
from text_pipeline.export.source import Source

TOLERANCE = 1e-4
# From one token beside the special ones to several times the limit.
TEXTS = [
    "a",
    "Profits fell",
    *corpus.mixed(26, seed=1),
    "word " * 2000,
    max((a.text for a in corpus.articles()), key=len),
]
ODD_TEXTS = {
    "empty": "",
    "blank": " \t\n ",
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈",
    "combining": "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!",
    "right-to-left": "‏שלום עולם، مرحبا بالعالم",
    "CJK": "新闻分类系统",
    "special tokens": "[CLS] a [SEP] [PAD] [MASK] b </s>",
    "NUL": "a\0b",
    "unknown tokens": "𓀀 𓁐",
    "one long word": "x" * 5000,
}


def check(closeness: Closeness, source: Source, texts: list, answer: dict[str, np.ndarray]) -> None:
    """Compares the outputs of one request with PyTorch's for each text alone."""
    for row, expected in enumerate(pytorch_outputs(source, texts)):
        for name in ("logits", "probabilities", "scores"):
            closeness.check(answer[name][row], expected[name], TOLERANCE)
        names = [label(name) for name in answer["labels"][row]]
        closeness.check_order(names, source.labels, expected["probabilities"])
        whole = len(source.tokenizer(*columns([texts[row]]))["input_ids"][0])
        assert answer["token_count"][row] == min(whole, source.max_tokens)
        assert bool(answer["truncated"][row]) == (whole > source.max_tokens)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_texts_of_all_lengths_in_one_request(
    server: Server, reference: Source, closeness: Closeness, protocol: str
) -> None:
    check(closeness, reference, TEXTS, infer(server, protocol, TEXTS))


@pytest.mark.parametrize("text", TEXTS[::6], ids=len)
def test_text_alone(server: Server, reference: Source, closeness: Closeness, text: str) -> None:
    check(closeness, reference, [text], infer(server, "grpc", [text]))


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_odd_text_beside_an_ordinary_one(
    server: Server, reference: Source, closeness: Closeness, text: str, protocol: str
) -> None:
    texts = ["An ordinary sentence about football.", text]
    check(closeness, reference, texts, infer(server, protocol, texts))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_request_of_64_texts(
    server: Server, reference: Source, closeness: Closeness, protocol: str
) -> None:
    texts = corpus.short(64)
    check(closeness, reference, texts, infer(server, protocol, texts))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sentence_pairs(
    server: Server, reference: Source, closeness: Closeness, protocol: str
) -> None:
    long = "many words " * 400
    pairs = [("A question?", "An answer."), ("short", ""), ("a", long), (long, "b"), (long, long)]
    check(closeness, reference, pairs, infer(server, protocol, *columns(pairs)))


@pytest.mark.parametrize(("tokens", "truncated"), [(511, False), (512, False), (513, True)])
def test_limit_is_exact(
    server: Server, reference: Source, closeness: Closeness, tokens: int, truncated: bool
) -> None:
    text = " ".join(["word"] * (tokens - reference.tokenizer.num_special_tokens_to_add()))
    answer = infer(server, "grpc", [text])
    check(closeness, reference, [text], answer)
    assert bool(answer["truncated"]) == truncated


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("max_tokens", [3, 16, 512])
def test_max_tokens_cuts_earlier(
    server: Server, reference: Source, closeness: Closeness, protocol: str, max_tokens: int
) -> None:
    texts = corpus.mixed(4, seed=2)
    answer = infer(server, protocol, texts, parameters={"max_tokens": max_tokens})
    check(closeness, replace(reference, max_tokens=max_tokens), texts, answer)


def test_generate_answers_labels_best_first(
    server: Server, reference: Source, closeness: Closeness
) -> None:
    text = "The striker scored twice in the final."
    request = urllib.request.Request(
        f"http://{server.http_url}/v2/models/text_pipeline_ensemble/generate",
        json.dumps({"text": text, "max_tokens": 8}).encode(),
    )
    with urllib.request.urlopen(request) as response:
        answer = json.load(response)
    assert answer["labels"][0] == "sport"
    assert answer["scores"] == sorted(answer["scores"], reverse=True)
    assert "embedding" not in answer
    rows = {name: np.array([answer[name]]) for name in answer}
    check(closeness, replace(reference, max_tokens=8), [text], rows)


@pytest.mark.parametrize("protocol", ["http-binary", "grpc"])
@pytest.mark.parametrize("texts", [["Rates rose."], ["Rates rose.", "The film won an award."]])
def test_classification_extension_names_the_best(
    server: Server, reference: Source, closeness: Closeness, protocol: str, texts: list[str]
) -> None:
    outputs = ("probabilities",)
    top = infer(server, protocol, texts, outputs=outputs, class_count=2)["probabilities"]
    for row, expected in zip(top, pytorch_outputs(reference, texts), strict=True):
        best = np.argsort(-expected["probabilities"])[:2]
        found = [entry.decode().split(":") for entry in row]
        assert [(int(index), name) for _, index, name in found] == [
            (index, reference.labels[index]) for index in best
        ]
        scores = [float(score) for score, *_ in found]
        closeness.check(scores, expected["probabilities"][best], TOLERANCE)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_embedding_is_the_normalised_mean(
    server: Server, reference: Source, closeness: Closeness, protocol: str
) -> None:
    texts = corpus.mixed(8, seed=3)
    outputs = ("embedding",)
    answer = infer(server, protocol, texts, model="text_embedding_ensemble", outputs=outputs)
    expected = [outputs["embedding"] for outputs in pytorch_outputs(reference, texts)]
    closeness.check(answer["embedding"], expected, TOLERANCE)
    closeness.check(np.linalg.norm(answer["embedding"], axis=1), np.ones(len(texts)), 1e-5)


def test_requested_outputs_only(server: Server) -> None:
    with tritonclient.http.InferenceServerClient(server.http_url) as client:
        tensor = tritonclient.http.InferInput("text", [1, 1], "BYTES")
        tensor.set_data_from_numpy(column(["a"]))
        requested = [tritonclient.http.InferRequestedOutput("labels")]
        result = client.infer("text_pipeline_ensemble", [tensor], outputs=requested)
    assert [output["name"] for output in result.get_response()["outputs"]] == ["labels"]
