"""What real texts make of a graph's hidden states: the ranges by which int8.py quantizes them."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from text_pipeline.export.graph import save
from text_pipeline.export.session import open_session

Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Range:
    """The smallest, the largest and the mean value of every channel, FP32 [channels].

    Every text has the same weight in the mean: most are short, and most tokens those of long ones.
    """

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray


def ranges_of(
    model: ir.Model, values: Sequence[ir.Value], feeds: Iterable[Feed], folder: Path | None
) -> list[Range]:
    """The range of each value of a graph over all feeds, of a text each.

    The graph lies in `folder` meanwhile, by default that for temporary files.
    """
    outputs = len(model.graph.outputs)
    model.graph.outputs.extend(values)
    # A file, for no message in memory holds more than 2 GB.
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        path = Path(directory) / "calibration.onnx"
        save(model, path)
        session = open_session(path)
    del model.graph.outputs[outputs:]
    names = [value.name for value in values]
    lows = [np.array(np.inf, np.float32)] * len(values)
    highs = [np.array(-np.inf, np.float32)] * len(values)
    means: list[list[np.ndarray]] = [[] for _ in values]
    for feed in feeds:
        for i, found in enumerate(session.run(names, feed)):
            rows = found.reshape(-1, found.shape[-1])
            lows[i] = np.minimum(lows[i], rows.min(axis=0))
            highs[i] = np.maximum(highs[i], rows.max(axis=0))
            means[i].append(rows.mean(axis=0))
    return [
        Range(low, high, np.mean(of_texts, axis=0))
        for low, high, of_texts in zip(lows, highs, means, strict=True)
    ]
