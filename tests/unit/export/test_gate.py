"""The parity check: what it compares, and what it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_models
from text_pipeline.default_model import corpus
from text_pipeline.errors import ExportRejectedError
from text_pipeline.export import gate, graph, source
from text_pipeline.export.source import Source

TEXTS = corpus.short(6)


def untracked(items, total):  # type: ignore[no-untyped-def]  # a gate's `track`
    found = list(items)
    assert len(found) == total
    return iter(found)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Source, Path]]:
    """A model and its graph, another one for every name."""

    def build(name: str) -> tuple[Source, Path]:
        folder = tmp_path_factory.mktemp(name)
        loaded = source.load(str(tiny_models.architecture(folder, name)))
        graph.save(graph.build(loaded, "packed"), folder / "model.onnx")
        return loaded, folder / "model.onnx"

    return build


def test_texts_alone_are_of_all_lengths_with_the_shortest() -> None:
    texts = ["word " * (n * 7 % 1000 + 1) for n in range(1000)]
    chosen = gate.spread(texts)
    assert gate.ALONE <= len(chosen) <= 2 * gate.ALONE
    assert chosen[0] == 0
    counts = [texts[index].count(" ") for index in chosen]
    assert max(b - a for a, b in zip(counts, [*counts[1:], 1000], strict=True)) <= 16
    assert sorted(gate.spread(texts[: gate.ALONE])) == list(range(gate.ALONE))


def test_reference_graph_must_itself_answer_as_pytorch(models) -> None:
    loaded, path = models("bert")
    _, of_another_model = models("roberta")
    report = gate.check(loaded, path, TEXTS, 0.02, 0.99, untracked, path)
    assert report.texts == len(TEXTS) and report.label_agreement == 1
    with pytest.raises(ExportRejectedError, match=r"before it is quantized.* difference 0\.0002\)"):
        gate.check(loaded, path, TEXTS, 0.02, 0.99, untracked, of_another_model)


def test_graph_is_compared_with_the_reference_graph(models) -> None:
    loaded, path = models("bert")
    _, of_another_model = models("roberta")
    with pytest.raises(ExportRejectedError, match=r"^the graph differs from PyTorch.*0\.02\)"):
        gate.check(loaded, of_another_model, TEXTS, 0.02, 0.99, untracked, path)
