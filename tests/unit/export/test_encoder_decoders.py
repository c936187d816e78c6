"""BART, mBART and T5 as graphs can hold them answer as transformers' own code does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests import tiny_models
from text_pipeline.contract import TENSOR_OUTPUTS
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import gate, source
from text_pipeline.export.heads import EndTokenClassifier, padded_body

T5 = transformers.T5Config(
    vocab_size=600, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4,
    decoder_start_token_id=1, pad_token_id=1, eos_token_id=2,
)  # fmt: skip
CONFIGURATIONS = [
    tiny_models.encoder_decoder(transformers.BartConfig),
    tiny_models.encoder_decoder(transformers.MBartConfig),
    T5,
]
# The last ends twice, and holds padding.
TEXTS = ["A text.", "Another one, which is much longer than it.", "", "it ends </s> here <pad> ."]


def load(directory: Path, config: Any) -> source.Source:
    tiny_models.save(directory, config, tiny_models.byte_level())
    return source.load(str(directory), max_tokens=64)


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=lambda config: config.model_type)
def test_padded_texts_are_answered_as_each_alone_by_transformers(
    tmp_path: Path, config: Any
) -> None:
    loaded = load(tmp_path, config)
    model: Any = loaded.model
    batch = loaded.tokenizer(TEXTS, padding=True, return_tensors="pt")
    tokens = (batch.input_ids, batch.attention_mask, torch.zeros_like(batch.input_ids))
    expected = list(gate.pytorch_outputs(loaded, TEXTS))
    body = padded_body(loaded, torch.float32).eval()
    assert isinstance(body, EndTokenClassifier)
    with torch.inference_mode():
        found = dict(zip(TENSOR_OUTPUTS, body(*tokens), strict=False))
        for row, text in enumerate(TEXTS):
            alone = loaded.tokenizer(text, return_tensors="pt")
            shifted = {}
            if config.model_type == "t5":
                shifted["decoder_input_ids"] = model._shift_right(alone.input_ids)
            states = model.base_model(input_ids=alone.input_ids, **shifted).last_hidden_state
            mean = torch.nn.functional.normalize(states.mean(1))[0]
            np.testing.assert_allclose(found["embedding"][row], mean, atol=1e-5)
            for output in TENSOR_OUTPUTS:
                values = expected[row][output]
                np.testing.assert_allclose(found[output][row], values, atol=1e-4, rtol=1e-4)


def test_a_model_that_pools_inside_is_refused_in_one_line(tmp_path: Path) -> None:
    config = transformers.FunnelConfig(
        vocab_size=600, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=48
    )
    tiny_models.save(tmp_path, config, tiny_models.word_piece())
    loaded = source.load(str(tmp_path), max_tokens=64)
    with pytest.raises(TextPipelineError, match=r"^Funnel\w+ turns \d+ tokens into \d+ hidden"):
        gate.check_model(loaded, TEXTS)
