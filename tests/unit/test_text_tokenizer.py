"""The tokenizer model reads of a long text only its beginning, and nobody can tell."""

import copy
import importlib.util
import re
import sys
import types
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import tiny_tokenizers
from text_pipeline.repository.versions import TOKENIZER_CODE

LIMIT = 8
# Pieces that make every kind of text longer than what is read first, 256 characters.
PIECES = st.sampled_from(
    ["word ", "a", "x" * 300, " ", "\n" * 300, ".", "新", "é", "e\u0301", "\u200b", "[SEP]", "</s>",
     "0" * 40, " \t", "🙂", "ß,"]
)  # fmt: skip
TEXTS = st.lists(st.tuples(PIECES, st.integers(1, 120)), max_size=12).map(
    lambda parts: "".join(piece * times for piece, times in parts)
)


class ModelError(Exception):
    """Triton's exception for a model that does not load; only a stub process has the real one."""


@pytest.fixture(scope="module")
def module():
    triton = types.ModuleType("triton_python_backend_utils")
    triton.TritonModelException = ModelError
    triton.MetricFamily = mock.MagicMock()
    sys.modules[triton.__name__] = triton
    [code] = [path for path in TOKENIZER_CODE if path.name == "model.py"]
    spec = importlib.util.spec_from_file_location("text_tokenizer_model", code)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded  # dataclasses look their module up
    sys.path.insert(0, str(code.parent))  # as Triton has it
    spec.loader.exec_module(loaded)
    yield loaded
    sys.path.remove(str(code.parent))
    for name in (triton.__name__, spec.name, "text_metrics", "text_request"):
        del sys.modules[name]


def save(directory: Path, tokenizer) -> Path:
    """Version 1 of a repository's tokenizer."""
    tokenizer = copy.deepcopy(tokenizer)  # which other tests take, too
    tokenizer.model_max_length = LIMIT
    tokenizer.save_pretrained(directory / "text_tokenizer" / "1" / "tokenizer")
    return directory / "text_tokenizer"


def initialized(module, repository: Path):
    model = module.TritonPythonModel()
    model.initialize({"model_repository": str(repository), "model_version": "1"})
    return model


@pytest.fixture(scope="module", params=[tiny_tokenizers.word_piece, tiny_tokenizers.byte_level])
def model(request: pytest.FixtureRequest, module, tmp_path_factory: pytest.TempPathFactory):
    return initialized(module, save(tmp_path_factory.mktemp("repository"), request.param()))


@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
@example(text="0" * 280 + "新")
def test_the_beginning_has_the_tokens_of_the_whole(module, model, text: str) -> None:
    needed = model.reader.needed("truncate", LIMIT)
    try:
        beginning = model.reader.beginning(text, "text[0]", needed)
    except module.InvalidRequestError:
        assert len(text) > needed.reads[-1]
        return
    model.backend.enable_truncation(LIMIT, strategy="longest_first")
    read, whole = model.backend.encode_batch([beginning, text])
    assert read.ids == whole.ids
    assert bool(read.overflowing) == bool(whole.overflowing)


@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
def test_a_text_is_read_as_a_whole_or_has_too_many_windows(module, model, text: str) -> None:
    needed = model.reader.needed("window", LIMIT)
    try:
        beginning = model.reader.beginning(text, "text[0]", needed)
    except module.InvalidRequestError:
        assert len(text) > needed.reads[-1]
        return
    model.backend.enable_truncation(LIMIT, strategy="longest_first")
    read, whole = ([e, *e.overflowing] for e in model.backend.encode_batch([beginning, text]))
    if len(read) <= module.MAX_WINDOWS:
        assert [window.ids for window in read] == [window.ids for window in whole]
    else:
        assert len(whole) > module.MAX_WINDOWS


def test_few_tokens_are_looked_for_in_few_characters(module, tmp_path: Path) -> None:
    reader = initialized(module, save(tmp_path, tiny_tokenizers.word_piece())).reader
    reader.limit = 512
    assert reader.needed("truncate", 3).reads == (2048, 16_384)
    assert reader.needed("truncate", 512).reads == (16_384, 131_072)


def test_no_text_is_read_behind_the_first_that_is_too_much(
    module, model, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    beginning = model.reader.beginning

    def spied(text: str, where: str, needed) -> str:
        read.append(where)
        return beginning(text, where, needed)

    monkeypatch.setattr(model.reader, "beginning", spied)

    def refused(texts: list[str]) -> str:
        needed = model.reader.needed("window", LIMIT)
        request = module.Request(texts, LIMIT, "window", 0, needed, False)
        (found,) = model._encode([request])
        assert isinstance(found, module.InvalidRequestError)
        return str(found)

    most = "word " * 300
    assert "text[1]: at least" in refused(["a", most, *[most] * 62])
    assert read == ["text[0]", "text[1]"]
    found = re.match(r"text\[(\d+)\]: with it the request has", refused(["word " * 40] * 64))
    assert found and 1 < int(found[1]) < 20
    assert read[-1] == f"text[{found[1]}]"


@pytest.mark.parametrize("missing", ["tokenizer.json", "tokenizer_config.json"])
def test_a_missing_file_is_named(module, tmp_path: Path, missing: str) -> None:
    repository = save(tmp_path, tiny_tokenizers.word_piece())
    (repository / "1" / "tokenizer" / missing).unlink()
    with pytest.raises(ModelError, match=f"{repository}.* has no {missing}: run `text-pipeline"):
        initialized(module, repository)


def test_the_tokenizer_of_another_classifier_is_named(module, tmp_path: Path) -> None:
    repository = save(tmp_path, tiny_tokenizers.word_piece())
    report = tmp_path / "text_classifier_onnx" / "1" / "export.json"
    report.parent.mkdir(parents=True)
    report.write_text('{"tokenizer_sha256": "of another file"}')
    with pytest.raises(ModelError, match=r"tokenizer\.json is not the tokenizer that .*onnx/1 was"):
        initialized(module, repository)


def test_a_classifier_of_an_earlier_export_gets_no_windows(module, tmp_path: Path) -> None:
    repository = save(tmp_path, tiny_tokenizers.word_piece())
    report = tmp_path / "text_classifier_onnx" / "1" / "export.json"
    report.parent.mkdir(parents=True)
    report.write_text("{}")
    reader = initialized(module, repository).reader
    with pytest.raises(module.InvalidRequestError, match='"window" needs a newer export'):
        reader.overflow({"overflow": "window"}, False)
