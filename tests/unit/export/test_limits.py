"""How many tokens a model takes: as its files state and its tables hold, or which file is wrong."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny_models
from tests.tiny_models import SIZES
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import source
from text_pipeline.export.limits import NO_LIMIT, position_rows, stated_limit, usable_tokens

T5 = {
    "vocab_size": 600, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
XLNET = {"vocab_size": 600, "d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 48}
OPT = {
    "vocab_size": 600, "hidden_size": 32, "num_hidden_layers": 1, "ffn_dim": 48,
    "num_attention_heads": 4, "max_position_embeddings": 128, "word_embed_proj_dim": 32,
}  # fmt: skip
BEHIND_PADDING = SIZES | {"pad_token_id": 1}
# What the configuration calls 128 positions, and how many of them a text may have.
TABLES = [
    (transformers.BertConfig(**SIZES), 128),
    (transformers.GPT2Config(vocab_size=600, n_embd=32, n_layer=1, n_head=4, n_positions=128), 128),
    (tiny_models.encoder_decoder(transformers.BartConfig), 128),
    (tiny_models.encoder_decoder(transformers.MBartConfig), 128),
    (transformers.OPTConfig(**OPT), 128),
    (transformers.RobertaConfig(**BEHIND_PADDING), 126),
    (transformers.IBertConfig(**BEHIND_PADDING), 126),
    (transformers.EsmConfig(**BEHIND_PADDING, mask_token_id=4), 126),
    (transformers.XLMRobertaXLConfig(**BEHIND_PADDING), 126),
    (transformers.RobertaConfig(**SIZES | {"pad_token_id": 20}), 107),
    # Filled up to whole windows; beside a table of distances.
    (transformers.LongformerConfig(**BEHIND_PADDING, attention_window=[4, 8]), 126),
    (transformers.MPNetConfig(**BEHIND_PADDING), 126),
    # Distances or rotations alone.
    (transformers.T5Config(**T5), None),
    (transformers.XLNetConfig(**XLNET), None),
    (transformers.LlamaConfig(**SIZES), None),
]


@pytest.mark.parametrize(
    ("config", "rows"), TABLES, ids=lambda value: getattr(value, "model_type", str(value))
)
def test_positions_are_counted_where_the_model_reads_them(
    config: transformers.PretrainedConfig, rows: int | None
) -> None:
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    assert position_rows(model, 600) == rows


def edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> source.Source:
    """Of 128 positions, with two special tokens."""
    directory = tiny_models.bert(tmp_path_factory.mktemp("model"), num_hidden_layers=1)
    return source.load(str(directory))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, r"model_max_length in tokenizer_config\.json is 0, expected at least 3: 2 special"),
        (2, r"is 2, expected at least 3"),
        (-2, r"is -2, expected at least 3"),
        ("512", r'model_max_length in tokenizer_config\.json is "512", expected a whole number'),
        (True, r"is true, expected a whole number"),
        (99.5, r"is 99\.5, expected a whole number"),
        ([5], r"is \[5\], expected a whole number"),
        (64.0, 64),
        (3, 3),
        (512, 128),
        (-1, 128),
        (None, 128),
        (1e30, 128),
        (math.inf, 128),
    ],
)
def test_a_tokenizers_limit_is_used_or_named(tmp_path: Path, value: Any, expected: Any) -> None:
    directory = tiny_models.bert(tmp_path, num_hidden_layers=1)
    edited(directory / "tokenizer_config.json", model_max_length=value)
    if isinstance(expected, int):
        limit = source.load(str(directory)).max_tokens
        assert (type(limit), limit) == (int, expected)
    else:
        with pytest.raises(TextPipelineError, match=expected) as error:
            source.load(str(directory))
        assert str(error.value).startswith(str(directory))


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        (1, r"--max-tokens is 1, expected at least 3"),
        (2, r"--max-tokens is 2, expected at least 3"),
        (129, r"--max-tokens 129 exceeds max_position_embeddings in config\.json, 128"),
    ],
)
def test_a_requested_limit_that_cannot_be_is_refused(
    model: source.Source, requested: int, reason: str
) -> None:
    with pytest.raises(TextPipelineError, match=reason):
        usable_tokens(model.model, model.tokenizer, requested)


def test_a_request_beyond_the_table_is_refused_although_the_files_state_it(tmp_path: Path) -> None:
    directory = tiny_models.roberta(tmp_path)
    assert source.load(str(directory), 126).max_tokens == 126
    with pytest.raises(TextPipelineError, match=r"127 exceeds the number of positions .*, 126"):
        source.load(str(directory), 127)


def test_no_limit_at_all_must_be_given(tmp_path: Path) -> None:
    """XLNet's configuration says -1."""
    directory = tiny_models.save(
        tmp_path, transformers.XLNetConfig(**XLNET), tiny_models.word_piece()
    )
    with pytest.raises(TextPipelineError, match=r"states a limit: give --max-tokens N"):
        source.load(str(directory))
    assert source.load(str(directory), 64).max_tokens == 64


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=JSON | st.integers(-3, 12).map(float) | st.integers(-3, 12), special=st.integers(0, 9))
def test_any_value_is_a_number_of_tokens_with_room_for_text_or_named(
    value: Any, special: int
) -> None:
    try:
        limit = stated_limit("limit in file.json", value, special)
    except TextPipelineError as error:
        assert str(error).startswith("limit in file.json is ")
        assert "expected" in str(error)
        return
    if limit is None:
        assert value is None or value == -1 or value >= NO_LIMIT
    else:
        assert type(limit) is int
        assert limit == value
        assert special < limit < NO_LIMIT
