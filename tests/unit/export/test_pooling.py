"""Embeddings are made as the model's sentence-transformers files say."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from tests import tiny_models, windowed
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import graph, source
from text_pipeline.export.exporter import export_model
from text_pipeline.export.pooling import Pooling, find
from text_pipeline.repository.versions import Repository

FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}


def configure(model: Path, modules: list[str], pooling: dict) -> Path:
    """Adds the files that sentence-transformers writes beside a model."""
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": f"st.models.{name}"}
        for i, name in enumerate(modules)
    ]
    (model / "modules.json").write_text(json.dumps(entries))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return model


def flags(*chosen: str) -> dict[str, bool]:
    """A pooling configuration as earlier versions write it."""
    names = ("cls_token", "mean_tokens", "max_tokens", "weightedmean_tokens", "lasttoken")
    return {f"pooling_mode_{name}": name in chosen for name in names} | {"include_prompt": True}


@pytest.mark.parametrize(
    ("mode", "modules", "layout"),
    [
        ("cls", ["Transformer", "Pooling", "Normalize"], "packed"),
        ("last", ["Transformer", "Pooling"], "packed"),
        ("last", ["Transformer", "Pooling", "Normalize"], "padded"),
        ("cls", ["Transformer", "Pooling"], "padded"),
    ],
)
def test_embedding_is_as_configured(
    tmp_path: Path, mode: str, modules: list[str], layout: str
) -> None:
    model = configure(tiny_models.bert(tmp_path), modules, flags(FLAGS[mode]))
    loaded = replace(source.load(str(model)), pooling=find(str(model), None))
    assert loaded.pooling == Pooling(mode, normalize="Normalize" in modules)
    ir.save(graph.build(loaded, layout), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    items = [windowed.reference(loaded, text, 16, 3) for text in ("a", "goal " * 30, "two words")]
    for batch in (items, items[2:]):
        (found,) = session.run(["embedding"], windowed.ragged_feed(batch, is_one_request=True))
        expected = np.stack([item.embedding for item in batch])
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


def test_what_was_chosen_is_reported(tmp_path: Path) -> None:
    model = configure(tiny_models.bert(tmp_path / "model"), ["Transformer", "Pooling"], flags())
    repository = Repository(tmp_path / "repository")
    export_model(str(model), repository, pooling="last", progress=lambda _: None)
    report = json.loads((repository.path / "text_classifier_onnx/1/export.json").read_text())
    assert report["pooling"] == {"mode": "last", "normalize": True}


def test_without_configuration_it_is_the_normalised_mean(tmp_path: Path) -> None:
    assert find(str(tmp_path), None) == Pooling("mean", normalize=True)
    configure(tmp_path, ["Transformer"], {})
    assert find(str(tmp_path), None) == Pooling("mean", normalize=True)


@pytest.mark.parametrize("settings", [{"pooling_mode": "lasttoken"}, {"pooling_mode": ["cls"]}])
def test_names_of_later_versions_are_known(tmp_path: Path, settings: dict) -> None:
    configure(tmp_path, ["Transformer", "Pooling"], settings | {"embedding_dimension": 32})
    assert find(str(tmp_path), None).mode in ("last", "cls")


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        (
            ["Transformer", "Pooling", "Dense"],
            flags("cls_token"),
            r"modules\.json: has Transformer, Pooling, Dense, expected .*--pooling",
        ),
        (
            ["Transformer", "Pooling"],
            flags("max_tokens"),
            r"1_Pooling/config\.json: pools by pooling_mode_max_tokens, expected one of mean, cls",
        ),
        (
            ["Transformer", "Pooling"],
            flags("cls_token", "mean_tokens"),
            "pools by pooling_mode_cls_token and pooling_mode_mean_tokens",
        ),
        (["Transformer", "Pooling"], {}, "pools by nothing"),
    ],
)
def test_what_the_graph_cannot_do_is_refused(
    tmp_path: Path, modules: list[str], pooling: dict, message: str
) -> None:
    configure(tmp_path, modules, pooling)
    with pytest.raises(TextPipelineError, match=message):
        find(str(tmp_path), None)
    assert find(str(tmp_path), "mean") == Pooling()
