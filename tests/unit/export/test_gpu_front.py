"""The front for GPU against what its docstring says, written down in Python, in ONNX Runtime."""

from itertools import groupby

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text_pipeline.export.gpu_front import packed_gpu_front
from text_pipeline.export.packed import PACKED_INPUTS

# The window of every token, 0 where it is padding: windows of real tokens, some of them with
# padding behind, or nothing but padding.
windows = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3)
items = st.one_of(
    windows.map(
        lambda sizes: [
            number
            for index, (real, padding) in enumerate(sizes, 1)
            for number in [index] * real + [0] * padding
        ]
    ),
    st.integers(1, 3).map(lambda length: [0] * length),
)


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    model = packed_gpu_front.to_model_proto()
    return onnxruntime.InferenceSession(model.SerializeToString())


@given(batch=st.lists(items, min_size=1, max_size=6), multiple=st.sampled_from([1, 8, 16]))
@settings(max_examples=200, deadline=None)
def test_tokens_and_windows_are_where_they_belong(
    session: onnxruntime.InferenceSession, batch: list[list[int]], multiple: int
) -> None:
    mask = np.concatenate([np.array(item, np.int64) for item in batch])
    ids = np.arange(100, 100 + len(mask))
    feed = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": ids % 2,
        "item_length": np.array([len(item) for item in batch], np.int32),
        "multiple": np.array(multiple, np.int64),
    }
    found = dict(zip(PACKED_INPUTS, session.run(None, feed), strict=True))

    expected = list(_windows(batch))
    lengths = [len(tokens) for _, tokens in expected]
    longest = -(-max(lengths) // multiple) * multiple
    first = np.cumsum([0, *lengths])
    tokens = np.concatenate([tokens for _, tokens in expected])
    assert found["packed_input_ids"].tolist() == ids[tokens].tolist()
    assert found["packed_token_type_ids"].tolist() == (ids[tokens] % 2).tolist()
    assert found["token_position"].tolist() == [p for n in lengths for p in range(n)]
    assert found["token_row"].tolist() == [w for w, n in enumerate(lengths) for _ in range(n)]
    assert found["window_first"].tolist() == first[:-1].tolist()
    assert found["window_row"].tolist() == list(range(len(lengths)))
    assert found["window_tokens"].tolist() == lengths
    assert found["window_item"].tolist() == [item for item, _ in expected]
    assert found["position"].tolist() == list(range(longest))
    assert found["cumulative_sequence_length"].tolist() == first.tolist()
    inside = [[w, p] for w, n in enumerate(lengths) for p in range(n)]
    outside = [[w, p] for w, n in enumerate(lengths) for p in range(n, longest)]
    places = [w * longest + p for w, p in [*inside, *outside]]
    assert found["token_offset"].shape == (len(lengths), longest)
    assert found["token_offset"].reshape(-1).tolist() == places


def _windows(batch: list[list[int]]):
    """For every window: its item, and which of all flat tokens it keeps."""
    start = 0
    for item, numbers in enumerate(batch):
        real = [index for index, number in enumerate(numbers) if number]
        for _, group in groupby(real or [0], key=lambda index: numbers[index]):
            yield item, [start + index for index in group]
        start += len(numbers)
