"""The largest batch the server makes, 64 texts of 512 tokens, fits into memory."""

import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import pytest

from text_pipeline import corpus
from text_pipeline.export import gate, graph, int8, source

LIMIT_MIB = 1536

# Apart, for a peak can only be read of a whole process.
SCRIPT = """
import re, sys
from pathlib import Path
import numpy as np, onnxruntime

def peak_mib():
    # Of this program: getrusage's peak begins with what the parent had when it forked.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024

session = onnxruntime.InferenceSession(sys.argv[1])
def run(items, tokens):
    ids = np.full(items * tokens, 2000, np.int64)
    session.run(None, {
        "input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids),
        "item_length": np.full(items, tokens, np.int32),
    })
run(1, 8)
loaded = peak_mib()
run(64, 512)
print(peak_mib() - loaded)
"""


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_largest_batch_needs_less_than_the_limit(
    reference: source.Source, tmp_path: Path, precision: str
) -> None:
    model = graph.build(reference, "packed")
    if precision == "int8":
        texts = corpus.mixed(8, seed=1)
        int8.quantize(model, gate.single_feeds(reference, texts))
    ir.save(model, tmp_path / "model.onnx")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "model.onnx")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert 0 < float(output) < LIMIT_MIB
