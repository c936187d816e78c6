"""The kind of a model and its class order, from one answer of the graph's own head."""

import pytest
import torch
from transformers import BertConfig

from text_pipeline.client.head import Head
from text_pipeline.export.heads import activation, ranked

LABELS = tuple("edcba")


@pytest.mark.parametrize(
    ("problem_type", "kind"),
    [
        (None, "single-label"),
        ("multi_label_classification", "multi-label"),
        ("regression", "regression"),
    ],
)
@pytest.mark.parametrize("scale", [0.1, 1, 10])
@pytest.mark.parametrize("classes", [1, 2, 5])
def test_kind_and_class_order_are_found(
    problem_type: str | None, kind: str, scale: float, classes: int
) -> None:
    config = BertConfig(problem_type=problem_type, num_labels=classes)
    logits = scale * torch.randn(20, classes, generator=torch.Generator().manual_seed(0))
    _, probabilities, _, _, order = ranked(logits, activation(config), torch.ones(20, 4))
    # One output is no choice between classes.
    if classes == 1 and kind == "single-label":
        kind = "regression"
    for row in range(20):
        ranked_labels = tuple(LABELS[index] for index in order[row])
        found = Head.of(ranked_labels, probabilities[row].numpy(), logits[row].numpy())
        assert found == Head(kind, LABELS[:classes])
