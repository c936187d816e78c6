"""Every architecture, tokenizer and kind of head, from its directory to what a server answers."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tritonclient.utils import InferenceServerException

from tests import tiny_models
from tests.conftest import Exported, Server
from tests.integration.protocols import PROTOCOLS, infer, label
from text_pipeline import cli
from text_pipeline.client import control
from text_pipeline.contract import KEY_VARIABLE
from text_pipeline.default_model import corpus
from text_pipeline.export.gate import Text, columns, gate_texts, pytorch_outputs
from text_pipeline.export.source import Source
from text_pipeline.server.tritonserver import EmbeddedServer

# Served they are as others, and their graphs are tested elsewhere.
NOT_SERVED = ("deberta-conv", "deberta-v2", "mistral", "qwen3", "rembert")
SERVED = [name for name in tiny_models.ARCHITECTURES if name not in NOT_SERVED]
# The padding id of qwen2, and so no token that its head would take.
ODD_ENDS = ["it ends <|endoftext|>", "<|endoftext|>"]
PAIRS = [("a question", "an answer"), ("one", "many words " * 70), ("two", "")]
CALLERS = 8
TOLERANCE = 1e-4

SCORES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax": lambda logits: np.exp(logits) / np.exp(logits).sum(),
    "sigmoid": lambda logits: 1 / (1 + np.exp(-logits)),
    "none": lambda logits: logits,
}
SCORES_OF = {
    "electra": "sigmoid", "albert": "sigmoid", "mpnet": "sigmoid",
    "roberta": "none", "camembert": "none",
}  # fmt: skip


@pytest.fixture(scope="module")
def load(exported: Callable[[str], Exported]) -> Iterator[Callable[[Exported], Server]]:
    """Has one server for all load a model in place of the one before."""
    first = exported(SERVED[0])
    control.use(first.repository, first.version, alone=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, "a key of the tests")
        with EmbeddedServer(first.repository.path, model_control="explicit") as server:

            def use(model: Exported) -> Server:
                control.use(model.repository, model.version, alone=True, http_url=server.http_url)
                return Server(server.http_url, server.grpc_url)

            yield use


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, load: Callable[[Exported], Server], exported
) -> tuple[str, Server, Source]:
    """The server with a model, whose name is the parameter; pytest asks once for each."""
    model = exported(request.param)
    return request.param, load(model), model.source


def with_models(*names: str) -> pytest.MarkDecorator:
    """Runs a test with each of these models."""
    return pytest.mark.parametrize("served", names, indirect=True)


def assert_answers(
    name: str, source: Source, logits: Sequence[np.ndarray], answer: dict[str, np.ndarray]
) -> None:
    """Every output of a request, for the logits and the kind of head that its texts have."""
    for row, expected in enumerate(logits):
        probabilities = SCORES[SCORES_OF.get(name, "softmax")](expected.astype(np.float64))
        for output, values in (("logits", expected), ("probabilities", probabilities)):
            found = answer[output][row]
            assert found.shape == (len(source.labels),)
            # Logits of random weights may be large.
            np.testing.assert_allclose(found, values, atol=TOLERANCE, rtol=TOLERANCE)
        order = [source.labels.index(label(name)) for name in answer["labels"][row]]
        assert sorted(order) == list(range(len(source.labels)))
        np.testing.assert_array_equal(answer["scores"][row], answer["probabilities"][row][order])
        assert (np.diff(answer["scores"][row]) <= 0).all()


def logits_of(source: Source, texts: Sequence[Text]) -> list[np.ndarray]:
    return [outputs["logits"] for outputs in pytorch_outputs(source, texts)]


@with_models(*SERVED)
def test_answers_are_those_of_pytorch(served) -> None:
    """All texts in one request, alone, and each in its own beside others; pairs; cut earlier."""
    name, server, source = served
    texts = gate_texts(source, [*corpus.mixed(5, seed=11), "word " * 300, *ODD_ENDS])
    expected = logits_of(source, texts)
    answer = infer(server, "grpc", texts)
    assert_answers(name, source, expected, answer)
    lengths = np.array([[len(source.tokenizer(text)["input_ids"])] for text in texts])
    np.testing.assert_array_equal(answer["token_count"], lengths.clip(max=source.max_tokens))
    np.testing.assert_array_equal(answer["truncated"], lengths > source.max_tokens)
    assert answer["truncated"].any()
    assert_answers(name, source, expected[:1], infer(server, "grpc", texts[:1]))
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = pool.map(lambda text: infer(server, "grpc", [text]), texts)
        for alone, answer in zip(expected, answers, strict=True):
            assert_answers(name, source, [alone], answer)
    pairs = infer(server, "grpc", *columns(PAIRS))
    assert_answers(name, source, logits_of(source, PAIRS), pairs)
    # Room for what a tokenizer appends is left in every cut text.
    cut = infer(server, "grpc", texts, parameters={"max_tokens": 7})
    assert_answers(name, source, logits_of(replace(source, max_tokens=7), texts), cut)
    if not source.tokenizer("")["input_ids"]:
        with pytest.raises(InferenceServerException, match=r"text\[1\]: no tokens"):
            infer(server, "grpc", ["a", ""])


@with_models("bert", "distilbert")
def test_odd_labels_and_a_thousand_are_named_everywhere(served) -> None:
    name, server, source = served
    expected = logits_of(source, ["a text"])
    for protocol in PROTOCOLS:
        assert_answers(name, source, expected, infer(server, protocol, ["a text"]))
    count = len(source.labels)
    listed = infer(server, "grpc", ["a text"], outputs=("probabilities",), class_count=count)
    entries = [entry.decode().split(":", 2) for entry in listed["probabilities"][0]]
    assert int(entries[0][1]) == int(np.argmax(expected[0]))
    # Triton's label file has one label a line.
    assert [(int(index), name) for _, index, name in entries] == [
        (int(index), " ".join(source.labels[int(index)].splitlines())) for _, index, _ in entries
    ]
    assert sorted(int(index) for _, index, _ in entries) == list(range(count))


def classify(server: Server, *arguments: str) -> list[dict]:
    done = CliRunner().invoke(cli.commands, ["classify", "--url", server.grpc_url, *arguments])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@with_models("electra")
def test_threshold_keeps_all_labels_that_fit(served) -> None:
    _, server, source = served
    texts = corpus.short(12, seed=4)
    kept = classify(server, "--threshold", "0.5", *texts)
    for row, logits in zip(kept, logits_of(source, texts), strict=True):
        likely = [source.labels[i] for i in np.flatnonzero(logits >= 0)]
        assert sorted(row["labels"]) == sorted(likely)
        assert row["label"] == (row["labels"] or [None])[0]
        assert len(row["scores"]) == len(row["labels"])
    assert len({len(row["labels"]) for row in kept}) > 1
    (none,) = classify(server, "--threshold", "1.5", texts[0])
    assert (none["label"], none["score"], none["labels"]) == (None, None, [])


@with_models("deberta-v3", "mpnet")
def test_classify_command_takes_pairs(served, tmp_path: Path) -> None:
    """Of an NLI model and of a reranker."""
    _, server, source = served
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"text": a, "text_pair": b}) + "\n" for a, b in PAIRS))
    for row, expected in zip(
        classify(server, "--input", str(path)), pytorch_outputs(source, PAIRS), strict=True
    ):
        assert row["label"] == source.labels[int(np.argmax(expected["logits"]))]
        assert row["score"] == pytest.approx(expected["scores"][0], abs=TOLERANCE)
