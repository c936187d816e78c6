"""Models that bring their own code, and those that cannot be exported as they are."""

import json
from pathlib import Path

import pytest
import transformers
from click.testing import CliRunner

from tests import tiny_models
from text_pipeline import cli
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import source
from text_pipeline.export.exporter import export_model
from text_pipeline.repository.versions import Repository

MODEL_CODE = """
from transformers import BertForSequenceClassification


class OwnClassifier(BertForSequenceClassification):
    def forward(self, *arguments, **settings):
        output = super().forward(*arguments, **settings)
        output.logits = output.logits * 2
        return output
"""
TOKENIZER_CODE = """
from transformers import BertTokenizer


class OwnTokenizer(BertTokenizer):
    pass
"""


def change(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def own_code(tmp_path: Path) -> Path:
    """A BERT with a class of its own, for the model and the tokenizer."""
    model = tiny_models.bert(tmp_path / "model")
    (model / "modeling_own.py").write_text(MODEL_CODE)
    (model / "tokenization_own.py").write_text(TOKENIZER_CODE)
    change(
        model / "config.json",
        architectures=["OwnClassifier"],
        auto_map={"AutoModelForSequenceClassification": "modeling_own.OwnClassifier"},
    )
    change(
        model / "tokenizer_config.json",
        tokenizer_class="OwnTokenizer",
        auto_map={"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]},
    )
    return model


def test_own_code_runs_only_when_it_is_trusted(own_code: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    command = ["export", "--model", str(own_code), "--repository", str(repository)]
    refused = CliRunner().invoke(cli.commands, command)
    assert refused.exit_code != 0
    assert "modeling_own.py, tokenization_own.py" in refused.output
    assert "--trust-remote-code" in refused.output
    assert not repository.exists()

    done = CliRunner().invoke(cli.commands, [*command, "--trust-remote-code"])
    assert done.exit_code == 0, done.output
    assert "padded graph of OwnClassifier (it brings its own code)" in done.output
    # Where it is served nobody trusts any code.
    served = repository / "text_tokenizer/1/tokenizer"
    assert {path.name for path in served.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(served, trust_remote_code=False)
    original = source.load(str(own_code), trust_remote_code=True).tokenizer
    assert type(original).__name__ == "OwnTokenizer"
    for text in ("Some [SEP] text, Ünïcödé.", ""):
        assert tokenizer(text).input_ids == original(text).input_ids
    assert tokenizer.model_max_length == 128


def test_code_of_the_tokenizer_alone_is_named(own_code: Path) -> None:
    transformers.BertConfig.from_pretrained(own_code)
    change(own_code / "config.json", auto_map=None)
    with pytest.raises(TextPipelineError, match=r"own \(tokenization_own\.py, auto_map"):
        source.load(str(own_code))


def test_bigbird_is_limited_to_what_it_attends_to_in_full(tmp_path: Path) -> None:
    """(5 + 2 x 3 random blocks) x 8 tokens."""
    config = transformers.BigBirdConfig(**tiny_models.SIZES, block_size=8)
    _, tokenizer = tiny_models.ARCHITECTURES["big_bird"]()
    model = tiny_models.save(tmp_path, config, tokenizer)
    with pytest.raises(TextPipelineError, match=r"more than 88 tokens in random blocks.*tokens 88"):
        source.load(str(model))
    limited = source.load(str(model), max_tokens=88).model.base_model
    assert limited.attention_type == "original_full"
    change(model / "config.json", attention_type="original_full")
    assert source.load(str(model)).max_tokens == 128


def test_what_torch_cannot_export_is_one_line_with_a_way_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tiny_models.architecture(tmp_path / "model", "longformer")
    capfd.readouterr()
    with pytest.raises(TextPipelineError, match=r"data-dependent .*: try the other --layout") as e:
        export_model(
            str(model), Repository(tmp_path / "new"), layout="padded", progress=lambda _: None
        )
    assert "\n" not in str(e.value)
    assert not capfd.readouterr().err


def test_tokenizer_that_cuts_the_beginning_is_refused(tmp_path: Path) -> None:
    model = tiny_models.bert(tmp_path)
    change(model / "tokenizer_config.json", truncation_side="left")
    with pytest.raises(TextPipelineError, match='"truncation_side": "right" into'):
        source.load(str(model))
