"""The names of the classes: kept as they are, or refused with what is wrong in config.json."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny_models
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import source
from text_pipeline.export.labels import label_line, labels_in_order

WRONG = {
    "null": ({"0": None, "1": "b"}, r"names class 0 null, expected a name"),
    "a list": ({"0": "a", "1": ["b"]}, r'names class 1 \["b"\], expected a name'),
    "empty": ({"0": "a", "1": ""}, r'names class 1 "", expected a name'),
    "blank": ({"0": " \n", "1": "b"}, r"names class 0 .*, expected a name"),
    "half a character": ({"0": "a", "1": "\ud800"}, r"class 1 .*is not Unicode text"),
    "names as keys": ({"a": 0, "b": 1}, r'the key "a", expected the number of a class.*exchanged'),
    "fractions as keys": ({"0.0": "a", "1.0": "b"}, r'the key "0\.0", expected the number'),
    "a class twice": ({"0": "a", "00": "b", "1": "c"}, r"names class 0 twice"),
    "two of one name": (
        {"0": "a", "1": "b", "2": "a"}, r'classes 0 and 2 both "a".*its own name in config\.json'
    ),
    "two of one line": ({"0": "a b", "1": "a\nb"}, r"classes 0 and 1 both"),
    "numbers like text": ({"0": "1", "1": 1}, r'classes 0 and 1 both "1"'),
    "none": ({}, r"0 labels"),
    "a gap": ({"0": "a", "9999999999": "b"}, r"keys up to 9999999999: missing 1, 2, 3, 4, 5"),
    "no object": (["a", "b"], r'id2label in config\.json is \["a", "b"\], expected an object'),
    "text": ("a", r'id2label in config\.json is "a", expected an object'),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.bert(tmp_path_factory.mktemp("model"), num_hidden_layers=1)


def with_labels(model: Path, id2label: Any) -> str:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": id2label}))
    return str(model)


@pytest.mark.parametrize("kind", WRONG)
def test_labels_that_name_nothing_are_refused(model: Path, kind: str) -> None:
    id2label, reason = WRONG[kind]
    with pytest.raises(TextPipelineError, match=reason) as error:
        source.load(with_labels(model, id2label))
    assert str(error.value).startswith(str(model))


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1, 5], ["1", "5"]),
        ([True, False], ["true", "false"]),
        ([0.5, "half"], ["0.5", "half"]),
        (tiny_models.ODD_LABELS[:2], tiny_models.ODD_LABELS[:2]),
    ],
)
def test_numbers_and_booleans_are_names_as_json_writes_them(
    model: Path, values: list, labels: list[str]
) -> None:
    assert source.load(with_labels(model, dict(enumerate(values)))).labels == labels


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["0", "2", "3"], "3 labels with keys up to 3: missing 1"),
        (["1", "2"], "2 labels with keys up to 2: missing 0"),
    ],
)
def test_gap_in_the_labels_is_an_error(keys: list[str], message: str) -> None:
    with pytest.raises(TextPipelineError, match=message):
        labels_in_order({key: f"label {key}" for key in keys})


def test_labels_are_sorted_as_numbers() -> None:
    labels = labels_in_order({str(n): f"label {n}" for n in reversed(range(12))})
    assert labels == [f"label {n}" for n in range(12)]


@given(
    st.dictionaries(
        st.integers(0, 4).map(str) | st.text(max_size=2),
        st.none() | st.booleans() | st.integers(-1, 3) | st.floats() | st.text() | st.just([1]),
        max_size=5,
    )
)
def test_any_labels_are_distinct_lines_in_class_order_or_refused(id2label: dict) -> None:
    try:
        labels = labels_in_order(id2label)
    except TextPipelineError as error:
        assert "id2label" in str(error)
        return
    assert len(labels) == len(id2label) == len({label_line(label) for label in labels})
    for number, label in enumerate(labels):
        value = next(v for k, v in id2label.items() if int(k) == number)
        assert label == (value if isinstance(value, str) else json.dumps(value))
        assert label_line(label).strip()
        assert len(label_line(label).splitlines()) == 1
        label.encode()
