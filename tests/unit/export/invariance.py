"""The property that a text's answer is the same alone and in any batch."""

from collections.abc import Sequence

import numpy as np
import onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st

from text_pipeline.contract import TENSOR_OUTPUTS
from text_pipeline.export import gate, source


def assert_batch_invariant(
    session: onnxruntime.InferenceSession,
    loaded: source.Source,
    texts: Sequence[str],
    limit: float,
    *,
    examples: int,
    largest_batch: int,
) -> None:
    """Random mixes of `texts`; no output moves by more than `limit`, relative to values above 1."""
    alone = list(gate.graph_outputs(session, loaded, texts, 1))

    @settings(max_examples=examples, deadline=None)
    @given(st.lists(st.sampled_from(range(len(texts))), min_size=1, max_size=largest_batch))
    def check(rows: list[int]) -> None:
        batch = [texts[row] for row in rows]
        answers = gate.graph_outputs(session, loaded, batch, len(batch))
        for row, found in zip(rows, answers, strict=True):
            for output in TENSOR_OUTPUTS:
                difference = np.abs(found[output] - alone[row][output]).max()
                assert difference <= limit * max(1, np.abs(alone[row][output]).max())

    check()
