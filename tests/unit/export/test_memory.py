"""The largest batch, 64 texts of 512 tokens, fits into memory and leaves nothing of it taken."""

import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import pytest

from text_pipeline.default_model import corpus
from text_pipeline.export import gate, graph, int8, source

PEAK_LIMIT_MIB = 1536
HELD_LIMIT_MIB = 200
"""20 were measured; 1500 with ONNX Runtime's arena."""

# Apart, for a peak can only be read of a whole process.
SCRIPT = """
import re, sys
from pathlib import Path
import numpy as np
from google.protobuf import json_format
from text_pipeline.repository import configuration, versions
from text_pipeline.onnx_backend.session import open_session

def mib(name):
    # Of this program: getrusage's peak begins with what the parent had when it forked.
    status = Path("/proc/self/status").read_text()
    return int(re.search(name + r":\\s+(\\d+)", status)[1]) / 1024

config = configuration.read(versions.STATIC_REPOSITORY, versions.CLASSIFIER, "cpu")
config = json_format.MessageToDict(config, preserving_proto_field_name=True)
session = open_session(config, Path(sys.argv[1]), "CPU", 0)
def run(items, tokens):
    ids = np.full(items * tokens, 2000, np.int64)
    session.run(None, {
        "input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids),
        "item_length": np.full(items, tokens, np.int32),
    })
run(1, 8)
loaded = mib("VmRSS")
run(64, 512)
print(mib("VmHWM") - loaded, mib("VmRSS") - loaded)
"""


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_largest_batch_fits_and_leaves_no_memory_taken(
    reference: source.Source, tmp_path: Path, precision: str
) -> None:
    model = graph.build(reference, "packed")
    if precision == "int8":
        texts = corpus.mixed(8, seed=1)
        int8.quantize(model, gate.single_feeds(reference, texts))
    ir.save(model, tmp_path / "model.onnx")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "model.onnx")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    peak, held = map(float, output.split())
    assert 0 < peak < PEAK_LIMIT_MIB
    assert held < HELD_LIMIT_MIB
