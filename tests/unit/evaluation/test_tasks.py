"""Labels in the data: what each kind of model takes, and what it says about others."""

from typing import Any

import pytest

from text_pipeline.client.head import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Head
from text_pipeline.client.pipeline import Classification
from text_pipeline.errors import TextPipelineError
from text_pipeline.evaluation.tasks import task_of

FEW = ("sport", "tech", "a:b")
MANY = tuple(f"intent_{number}" for number in range(1000))


@pytest.mark.parametrize(
    ("kind", "labels", "value", "message"),
    [
        (SINGLE_LABEL, FEW, "x", "expected one of the model's labels (sport, tech, a:b), got 'x'"),
        (SINGLE_LABEL, FEW, None, "(sport, tech, a:b), got None"),
        (SINGLE_LABEL, FEW, 1, "(sport, tech, a:b), got 1"),
        (SINGLE_LABEL, FEW, ["sport"], "(sport, tech, a:b), got ['sport']"),
        (SINGLE_LABEL, FEW, "x" * 999, "got '" + "x" * 59),
        (SINGLE_LABEL, MANY, "Intent 7", "(intent_7, "),
        (SINGLE_LABEL, MANY, "Intent 7", " and 995 more), got 'Intent 7'"),
        (MULTI_LABEL, FEW, "sport", "expected a list of labels"),
        (MULTI_LABEL, FEW, ["sport", "x"], "(sport, tech, a:b), got 'x'"),
        (REGRESSION, ("score",), "4", "expected a number, for the model is a regression, got '4'"),
        (REGRESSION, ("score",), True, "expected a number"),
        (REGRESSION, ("score",), float("nan"), "expected a number"),
        (REGRESSION, ("score",), -(10**400), "expected a number"),
    ],
)  # fmt: skip
def test_a_label_the_model_cannot_give_is_refused(
    kind: str, labels: tuple[str, ...], value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=r"^field label: ") as raised:
        task_of([Head(kind, labels)]).target(value)
    assert message in str(raised.value)


def test_labels_are_found_by_their_names() -> None:
    answer = Classification(("tech", "a:b", "sport"), (0.8, 0.6, 0.1), 4, False)
    single = task_of([Head(SINGLE_LABEL, FEW)])
    assert (single.target("tech"), single.answer(answer)) == (1, (1, 0.8))
    multi = task_of([Head(MULTI_LABEL, FEW)])
    assert multi.target(["a:b", "sport"]).tolist() == [True, False, True]
    assert multi.target([]).tolist() == [False, False, False]
    assert multi.answer(answer).tolist() == pytest.approx([0.1, 0.8, 0.6])
    assert multi.shown(multi.answer(answer))["labels"] == ["tech", "a:b"]


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([Head(SINGLE_LABEL, FEW), Head(MULTI_LABEL, FEW)], "single-label and multi-label"),
        ([Head(SINGLE_LABEL, FEW), Head(SINGLE_LABEL, FEW[:2])], "only one of them has a:b"),
        ([Head(REGRESSION, FEW)], "a regression with 3 values: expected one"),
    ],
)
def test_models_that_cannot_be_compared_are_refused(heads: list[Head], message: str) -> None:
    with pytest.raises(TextPipelineError, match=message):
        task_of(heads)


def test_classes_in_another_order_are_the_same_classes() -> None:
    task = task_of([Head(SINGLE_LABEL, FEW), Head(SINGLE_LABEL, FEW[::-1])])
    assert task.target("tech") == 1
