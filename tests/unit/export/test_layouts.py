"""Both layouts of every architecture answer as PyTorch does, alone, mixed and padded."""

import copy
import json
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from tests import tiny_models, windowed
from tests.unit.export.invariance import assert_batch_invariant
from text_pipeline.contract import CLASSIFIER, TENSOR_OUTPUTS, TOKEN_INPUTS
from text_pipeline.default_model import corpus
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import configured, exporter, gate, graph, source
from text_pipeline.onnx_backend import load_checks
from text_pipeline.repository import configuration
from text_pipeline.repository.versions import STATIC_REPOSITORY, Repository

PADDED_ONLY = ("big_bird", "deberta", "deberta-conv", "mbart", "rembert")
PACKED = [name for name in tiny_models.ARCHITECTURES if name not in PADDED_ONLY]
# Decoders are padded all alike.
PACKED_ONLY = ("llama", "longformer", "mistral", "qwen2", "qwen3")
GRAPHS = [(name, "packed") for name in PACKED] + [
    (name, "padded") for name in tiny_models.ARCHITECTURES if name not in PACKED_ONLY
]
TEXTS = corpus.mixed(24, seed=6)
INVARIANCE = 1e-5


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, exported):
    """The model and the session of an architecture's graph, each built once."""

    @cache
    def build(name: str, layout: str) -> tuple[source.Source, onnxruntime.InferenceSession]:
        if (layout == "packed") == (name in PACKED):
            published = exported(name)
            return published.source, onnxruntime.InferenceSession(published.graph)
        folder = tmp_path_factory.mktemp(name)
        loaded = source.load(str(tiny_models.architecture(folder, name)))
        before = copy.deepcopy(loaded.model.state_dict())
        ir.save(graph.build(loaded, layout), folder / "model.onnx")
        assert all((before[key] == value).all() for key, value in loaded.model.state_dict().items())
        return loaded, onnxruntime.InferenceSession(folder / "model.onnx")

    return build


@pytest.mark.parametrize(("name", "layout"), GRAPHS)
def test_graph_equals_pytorch(built, name: str, layout: str) -> None:
    loaded, session = built(name, layout)
    texts = gate.gate_texts(loaded, ["word " * 300, *TEXTS, "it ends <|endoftext|>"])
    reference = list(gate.pytorch_outputs(loaded, texts))
    assert np.ptp([outputs["logits"] for outputs in reference], axis=0).min() > 0.01
    for batch_size in (1, 7, len(texts)):
        answers = gate.graph_outputs(session, loaded, texts, batch_size)
        for expected, found in zip(reference, answers, strict=True):
            for output in TENSOR_OUTPUTS:
                np.testing.assert_allclose(found[output], expected[output], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("name", "layout"), GRAPHS)
def test_graph_fits_every_configuration(built, name: str, layout: str) -> None:
    """By the rules of Triton's C++ backend, after what ONNX Runtime infers of the graph."""
    _, session = built(name, layout)
    configured.check_signature(STATIC_REPOSITORY, load_checks.Signature.of(session))


@pytest.mark.parametrize("name", ["bert", "big_bird"], ids=["packed", "padded"])
def test_sizes_are_open_whatever_is_optimized(exported, name: str) -> None:
    options = onnxruntime.SessionOptions()
    for level in onnxruntime.GraphOptimizationLevel.__members__.values():
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(exported(name).graph, options)
        outputs = load_checks.Signature.of(session).outputs
        assert {tuple(tensor.dims) for tensor in outputs.values()} == {(-1, -1)}


@pytest.mark.parametrize(("name", "layout"), [g for g in GRAPHS if g[0] in ("bert", "roberta")])
def test_sentence_pairs_equal_pytorch(built, name: str, layout: str) -> None:
    """BERT tells the segments apart by token_type_ids, RoBERTa has none."""
    loaded, session = built(name, layout)
    pairs = [("a question", "an answer"), ("short", ""), ("one", "many words " * 9)]
    for pair, expected in zip(pairs, gate.pytorch_outputs(loaded, pairs), strict=True):
        encoded = loaded.tokenizer(*gate.columns([pair]))
        length = len(encoded["input_ids"][0])
        feed = {
            name: np.array(encoded.get(name, [[0] * length])[0], np.int64) for name in TOKEN_INPUTS
        }
        feed["item_length"] = np.array([length], np.int32)
        (logits,) = session.run(["logits"], feed)
        np.testing.assert_allclose(logits[0], expected["logits"], atol=1e-4)


@pytest.mark.parametrize(("name", "layout"), GRAPHS)
def test_padding_inside_a_request_changes_nothing(
    built, name: str, layout: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A request of several texts comes padded to its longest, with a mask."""
    loaded, session = built(name, layout)
    capfd.readouterr()
    # By hand: a decoder's tokenizer may have no padding token.
    encoded = loaded.tokenizer(TEXTS, truncation=True, max_length=40)
    length = max(map(len, encoded["input_ids"]))
    padding = {"input_ids": loaded.tokenizer.pad_token_id or 0}
    feed = {}
    for tensor in TOKEN_INPUTS:
        rows = encoded.get(tensor, [[0] * len(ids) for ids in encoded["input_ids"]])
        padded = [[*row, *[padding.get(tensor, 0)] * (length - len(row))] for row in rows]
        feed[tensor] = np.array(padded, np.int64).reshape(-1)
    feed["item_length"] = np.full(len(TEXTS), length, np.int32)
    together = session.run(["logits", "embedding"], feed)
    # ONNX Runtime warns in every run where two dimensions of one name have different sizes.
    assert not capfd.readouterr().err
    alone = gate.ragged_feed(loaded.tokenizer, TEXTS, 40)
    for found, expected in zip(together, session.run(["logits", "embedding"], alone), strict=True):
        np.testing.assert_allclose(found, expected, atol=INVARIANCE)


@pytest.mark.parametrize(("name", "layout"), GRAPHS)
def test_item_masked_altogether_is_finite_and_alone_in_it(built, name: str, layout: str) -> None:
    """No tokenizer sends one, but it must not spoil the others."""
    loaded, session = built(name, layout)
    feed = gate.ragged_feed(loaded.tokenizer, TEXTS[:3], 40)
    outputs = list(TENSOR_OUTPUTS)
    before = session.run(outputs, feed)
    second = slice(feed["item_length"][0], feed["item_length"][:2].sum())
    feed["attention_mask"][second] = 0
    for expected, found in zip(before, session.run(outputs, feed), strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[[0, 2]], expected[[0, 2]], atol=INVARIANCE)


@pytest.mark.parametrize(("name", "layout"), GRAPHS)
def test_warm_up_is_a_batch_that_every_graph_runs(built, name: str, layout: str) -> None:
    """One that fails would keep the model from being loaded."""
    loaded, session = built(name, layout)
    folder = STATIC_REPOSITORY / CLASSIFIER / "warmup"
    for sample in configuration.read(STATIC_REPOSITORY, CLASSIFIER, "gpu").model_warmup:
        # As Triton's core makes them of a sample: `batch_size` requests of one item.
        items = {
            name: np.zeros(given.dims, np.int64)
            if given.zero_data
            else np.fromfile(folder / given.input_data_file, np.int64, np.prod(given.dims))
            for name, given in sample.inputs.items()
        }
        feed = {name: np.tile(item, sample.batch_size) for name, item in items.items()}
        feed["item_length"] = np.full(sample.batch_size, len(items["input_ids"]), np.int32)
        (logits,) = session.run(["logits"], feed)
        assert logits.shape == (sample.batch_size, len(loaded.labels))
        assert np.isfinite(logits).all()


@pytest.mark.parametrize("is_one_request", [False, True], ids=["apart", "one request"])
@pytest.mark.parametrize(("name", "layout"), GRAPHS)
def test_windows_are_joined_to_their_weighted_mean(
    built, name: str, layout: str, is_one_request: bool
) -> None:
    """Texts of one, two and many windows, the last one shorter, some of a few tokens."""
    loaded, session = built(name, layout)
    texts = ["a", "a " * 20, "word " * 90, TEXTS[0]]
    items = [windowed.reference(loaded, text, 16, 5) for text in texts]
    assert [min(len(item.windows), 3) for item in items[:3]] == [1, 2, 3]
    for batch in (items, items[::-1], items[1:2]):
        feed = windowed.ragged_feed(batch, is_one_request)
        outputs = dict(
            zip(windowed.OUTPUTS, session.run(list(windowed.OUTPUTS), feed), strict=True)
        )
        for output, found in outputs.items():
            expected = np.stack([getattr(item, output) for item in batch])
            np.testing.assert_allclose(found, expected, atol=INVARIANCE, rtol=INVARIANCE)


@pytest.mark.parametrize(("name", "layout"), [g for g in GRAPHS if g[0] in ("bert", "roberta")])
def test_masked_item_beside_windows_is_alone_in_it(built, name: str, layout: str) -> None:
    loaded, session = built(name, layout)
    items = [windowed.reference(loaded, text, 16) for text in ("word " * 40, "a", TEXTS[0])]
    feed = windowed.ragged_feed(items, is_one_request=False)
    before = session.run(list(windowed.OUTPUTS), feed)
    start, length = feed["item_length"][:2]
    feed["attention_mask"][start : start + length] = 0
    for expected, found in zip(before, session.run(list(windowed.OUTPUTS), feed), strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[[0, 2]], expected[[0, 2]], atol=INVARIANCE)


@pytest.mark.parametrize(("name", "layout"), [g for g in GRAPHS if g[0] in ("bert", "roberta")])
def test_answer_alone_is_the_answer_in_any_batch(built, name: str, layout: str) -> None:
    loaded, session = built(name, layout)
    assert_batch_invariant(session, loaded, TEXTS, INVARIANCE, examples=40, largest_batch=64)


def test_default_is_packed_where_the_architecture_allows(exported, tmp_path: Path) -> None:
    for name, layout in (("electra", "packed"), ("big_bird", "padded")):
        report = exported(name).graph.with_name("export.json")
        assert json.loads(report.read_text())["layout"] == layout
    model = tiny_models.architecture(tmp_path / "model", "deberta-conv")
    with pytest.raises(
        TextPipelineError,
        match=r"DebertaV2.* cannot be packed \(its convolution would mix the texts of a batch\)",
    ):
        exporter.export_model(
            str(model), Repository(tmp_path / "new"), layout="packed", progress=lambda _: None
        )
