"""ONNX Runtime's profile: of a real run on CPU, and one in its format as CUDA would write it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from load import idle
from load.gpu_check import profile
from text_pipeline.contract import TOKEN_INPUTS
from text_pipeline.export.graph import save

CUDA = "CUDAExecutionProvider"


def node(ts: int, name: str, operator: str, provider: str, inputs: list, outputs: list) -> dict:
    """As ONNX Runtime 1.32 writes it, but for arguments that are not read."""
    return {
        "cat": "Node", "pid": 1, "tid": 1, "dur": 10, "ts": ts, "ph": "X",
        "name": f"{name}_kernel_time",
        "args": {
            "op_name": operator, "provider": provider, "node_index": "3",
            "input_type_shape": inputs, "output_type_shape": outputs,
        },
    }  # fmt: skip


def event(cat: str, ts: int, dur: int, name: str) -> dict[str, Any]:
    return {"cat": cat, "pid": 1, "tid": 1, "dur": dur, "ts": ts, "ph": "X", "name": name,
            "args": {}}  # fmt: skip


TOKENS, IDS = [{"float16": [900, 384]}], [{"int64": [900]}]
RUN = [
    node(1010, "Memcpy", "MemcpyFromHost", CUDA, IDS, IDS),
    node(1030, "keep", "NonZero", CUDA, IDS, IDS),
    node(1050, "attention", "PackedMultiHeadAttention", CUDA, TOKENS, TOKENS),
    node(1070, "rows", "Shape", CUDA, TOKENS, [{"int64": [2]}]),
    node(1080, "more", "Concat", profile.CPU, [{"int64": [1]}, {"int64": [1]}], [{"int64": [2]}]),
    node(1090, "Memcpy_token_1", "MemcpyToHost", CUDA, [{"int64": [64, 5]}], [{"int64": [64, 5]}]),
    node(1110, "names", "Gather", profile.CPU, [{"string": [5]}, {"int64": [64, 5]}],
         [{"string": [64, 5]}]),
    # Between the shapes on purpose and those of 64 items: too many to be a shape.
    node(1130, "lengths", "Unique", profile.CPU, [{"int64": [64]}], [{"int64": [12]}]),
]  # fmt: skip


def written(folder: Path, events: list[dict]) -> Path:
    (folder / "profile.json").write_text(json.dumps(events))
    return folder / "profile.json"


def test_nodes_copies_and_waits_of_the_last_run(tmp_path: Path) -> None:
    before = [node(20, "keep", "NonZero", CUDA, IDS, IDS), event("Session", 10, 90, "model_run")]
    loading = event("Session", 0, 5, "session_initialization")
    kernel = event("Kernel", 1060, 30, "void flash_fwd_kernel")
    after = event("Session", 1000, 500, "model_run")
    found = profile.read(written(tmp_path, [loading, *before, *RUN, kernel, after]))
    assert found.by_provider == {CUDA: 5, profile.CPU: 3}
    assert [n.name for n in found.on_cpu] == ["names", "lengths"]
    assert [n.operator for n in found.waits] == ["NonZero", "MemcpyToHost"]
    assert found.copies == {"MemcpyToHost": (1, 10), "MemcpyFromHost": (1, 10)}
    assert (found.run_us, found.kernels_us) == (500, 30)
    rows = profile.rows(found)
    assert ["on the CPU: Gather", "1", "0.01"] in rows
    assert ["copies: MemcpyToHost", "1", "0.01"] in rows
    assert ["kernels on the device", "", "0.03"] in rows


def test_what_waits_on_the_cpu_itself_waits_for_no_device(tmp_path: Path) -> None:
    run = [node(10, "keep", "NonZero", profile.CPU, IDS, IDS), event("Session", 0, 90, "model_run")]
    assert profile.read(written(tmp_path, run)).waits == []


def test_a_session_that_ran_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the profile of a run"):
        profile.read(written(tmp_path, [event("Session", 0, 5, "session_initialization")]))


def test_the_format_is_that_of_the_installed_onnxruntime(tmp_path: Path) -> None:
    save(idle.graph(), tmp_path / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options)
    feed = {name: np.zeros(5, np.int64) for name in TOKEN_INPUTS}
    for _ in range(2):
        session.run(None, feed | {"item_length": np.array([2, 3], np.int32)})
    found = profile.read(Path(session.end_profiling()))
    assert found.run_us > 0
    # Each node once, though two runs are in the file; names and shapes of tensors were understood.
    assert len({node.name for node in found.nodes}) == len(found.nodes) > 5
    assert found.by_provider == {profile.CPU: len(found.nodes)}
    operators = {node.operator: node.is_shape for node in found.nodes}
    assert operators["Shape"] and not operators["Gather"]
    assert "Gather" in {node.operator for node in found.on_cpu}
    assert found.waits == [] and found.copies["MemcpyToHost"] == (0, 0)
