"""The classifier that does nothing has the contract of one that does something."""

from pathlib import Path

import numpy as np
import onnxruntime

from load import idle
from text_pipeline.contract import TENSOR_OUTPUTS, TOKEN_INPUTS
from text_pipeline.export import configured, graph
from text_pipeline.repository.versions import STATIC_REPOSITORY


def test_it_fits_every_configuration_and_answers_zero_for_each_item(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph.save(idle.graph(), path)
    configured.check(STATIC_REPOSITORY, path)
    session = onnxruntime.InferenceSession(path)
    feed = {name: np.ones(7, np.int64) for name in TOKEN_INPUTS}
    feed["item_length"] = np.array([4, 2, 1], np.int32)
    labels, *tensors = session.run(["labels", *TENSOR_OUTPUTS], feed)
    assert labels.tolist() == [[idle.LABELS[0]] * 5] * 3
    assert [tensor.shape for tensor in tensors] == [(3, 5), (3, 5), (3, 5), (3, idle.HIDDEN)]
    assert not any(tensor.any() for tensor in tensors)
