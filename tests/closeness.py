"""How near an answer has to be to another one, by the precision of the graph that gave it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from text_pipeline.contract import DEFAULT_TOLERANCES


@dataclass(frozen=True)
class Closeness:
    """What rounding may do to the logits, probabilities, scores and embeddings of one text."""

    rounding: float | None
    """Largest difference, relative to the largest number if that is above 1. None: what a test
    asks for, because fp32 rounds less than that."""

    @classmethod
    def of(cls, precision: str) -> "Closeness":
        """For a graph of this precision, as export.json names it.

        In fp16 rounding shows, also between two answers to one text: a batch of another size may
        get another kernel. In fp32, and in the integers of int8, only the order of sums differs.
        """
        return cls(DEFAULT_TOLERANCES[precision] if precision == "fp16" else None)

    def check(self, found: object, expected: object, exact: float, rtol: float = 1e-7) -> None:
        """Fails if arrays differ by more than `exact`, or by more than rounding where that is seen.

        `rtol` is numpy's, and holds together with `exact`.
        """
        if self.rounding is not None:
            exact, rtol = self.rounding * max(1.0, float(np.abs(expected).max())), 0
        np.testing.assert_allclose(found, expected, atol=exact, rtol=rtol)

    def check_order(
        self, found: Sequence[str], labels: Sequence[str], probabilities: np.ndarray
    ) -> None:
        """Fails unless `found` are the labels, best first, by their expected probabilities.

        Classes may be swapped that rounding may swap.
        """
        assert sorted(found) == sorted(labels)
        if self.rounding is None:
            order = np.argsort(-probabilities, kind="stable")
            assert list(found) == [labels[index] for index in order]
            return
        ordered = [probabilities[labels.index(label)] for label in found]
        assert np.diff(ordered).max(initial=-1) <= 2 * self.rounding, (found, ordered)
