"""What the backend does around a batch, against the semantics of Triton's C++ collector."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from text_pipeline.onnx_backend import batching

# Two requests: two items of 3 elements, one item of 5.
TENSORS = [np.arange(6).reshape(2, 3), np.arange(5).reshape(1, 5)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BATCH_ELEMENT_COUNT", [6, 5]),  # per request, as the C++ collector counts, not per item
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", [6, 11]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 6, 11]),
        ("BATCH_ITEM_SHAPE", [[3], [3], [5]]),
        ("BATCH_ITEM_SHAPE_FLATTEN", [3, 3, 5]),
    ],
)
def test_batch_inputs_have_the_values_of_the_cpp_collector(kind: str, expected: list) -> None:
    assert batching.BATCH_INPUTS[kind](TENSORS).tolist() == expected


def test_max_element_count_is_carried_by_the_shape() -> None:
    assert batching.BATCH_INPUTS["BATCH_MAX_ELEMENT_COUNT_AS_SHAPE"](TENSORS).shape == (6,)


def test_item_shapes_of_two_dimensions_are_flattened_item_by_item() -> None:
    tensors = [np.zeros((2, 3, 4)), np.zeros((1, 5, 6))]
    assert batching.BATCH_INPUTS["BATCH_ITEM_SHAPE"](tensors).tolist() == [[3, 4], [3, 4], [5, 6]]
    flat = batching.BATCH_INPUTS["BATCH_ITEM_SHAPE_FLATTEN"](tensors)
    assert flat.tolist() == [3, 4, 3, 4, 5, 6]


def test_every_kind_of_the_protocol_is_served() -> None:
    assert set(batching.BATCH_INPUTS) == set(model_config_pb2.BatchInput.Kind.keys())


def test_ragged_inputs_become_one_row_in_the_order_of_requests_and_items() -> None:
    assert batching.gather(TENSORS, ragged=True).tolist() == [*range(6), *range(5)]


def test_other_inputs_are_stacked_by_item() -> None:
    gathered = batching.gather([np.zeros((2, 3)), np.ones((1, 3))], ragged=False)
    assert gathered.tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]


def test_inputs_of_unequal_length_do_not_stack_unless_ragged() -> None:
    with pytest.raises(ValueError, match="dimension"):
        batching.gather(TENSORS, ragged=False)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_split_gives_every_request_its_own_rows(items: list[int]) -> None:
    owners = np.repeat(np.arange(len(items)), items)
    parts = batching.split(owners, items)
    assert [part.tolist() for part in parts] == [[i] * n for i, n in enumerate(items)]


@pytest.mark.parametrize("output", [np.zeros((2, 1)), np.zeros(())], ids=["too few", "scalar"])
def test_an_output_without_a_row_per_item_is_an_error(output: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected 3 rows"):
        batching.split(output, [2, 1])


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1)
)
def test_strings_survive_the_way_to_the_graph_and_back(texts: list[str]) -> None:
    encoded = np.array([text.encode() for text in texts], np.object_).reshape(-1, 1)
    decoded = batching.decode_strings(encoded)
    assert decoded.reshape(-1).tolist() == texts
    assert decoded.shape == encoded.shape
    assert (batching.encode_strings(decoded) == encoded).all()
