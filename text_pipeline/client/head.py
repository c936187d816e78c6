"""What kind of answers a model gives, found in the answers themselves."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SINGLE_LABEL = "single-label"
MULTI_LABEL = "multi-label"
REGRESSION = "regression"


@dataclass(frozen=True)
class Head:
    """The last layer of a classifier."""

    kind: str
    """SINGLE_LABEL (softmax), MULTI_LABEL (sigmoid) or REGRESSION (the logits themselves)."""
    labels: tuple[str, ...]
    """In class order."""

    @classmethod
    def of(
        cls,
        ranked_labels: tuple[str, ...],
        probabilities: NDArray[np.float32],
        logits: NDArray[np.float32],
    ) -> "Head":
        """From one text's answer: the labels best first, the others in class order."""
        labels = [""] * len(ranked_labels)
        # The graph ranks equal probabilities in class order, too.
        for index, label in zip(
            np.argsort(-probabilities, kind="stable"), ranked_labels, strict=True
        ):
            labels[index] = label
        # In fp64, so that the formula that was used comes closest.
        wide = logits.astype(np.float64)
        softmax = np.exp(wide - wide.max())
        formulas = {
            REGRESSION: wide,
            MULTI_LABEL: np.exp(-np.logaddexp(0, -wide)),
            SINGLE_LABEL: softmax / softmax.sum(),
        }
        if len(labels) == 1:
            del formulas[SINGLE_LABEL]  # one output is no choice between classes
        kind = min(formulas, key=lambda kind: float(np.abs(formulas[kind] - probabilities).max()))
        return cls(kind, tuple(labels))
