"""Joining records with their answers."""

import json

import pytest

from text_pipeline.client.pipeline import Classification
from text_pipeline.client.records import answered
from text_pipeline.files import json_lines

ANSWER = Classification(("sport", "tech"), (0.75, 0.25), 4, False)


def test_answer_that_is_no_number_is_null_in_json() -> None:
    answer = Classification(("a", "b"), (float("nan"), float("inf")), 1, False)
    row = json.loads(json_lines.dump(answered({"text": "a"}, answer)), parse_constant=pytest.fail)
    assert (row["score"], row["scores"]) == (None, [None, None])


def test_fields_of_the_input_survive_an_answer_with_the_same_names() -> None:
    record = {"text": "a", "label": "gold", "input_label": "older", "id": 1}
    joined = answered(record, ANSWER)
    assert (joined["text"], joined["id"], joined["label"]) == ("a", 1, "sport")
    assert (joined["input_label"], joined["input_input_label"]) == ("gold", "older")
