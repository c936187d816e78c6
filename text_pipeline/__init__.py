"""Serve Hugging Face text classifiers on Triton Inference Server."""

import os

# Every command works offline unless the user asks for a hub model; ONNX Runtime 1.29 and later
# would otherwise send telemetry from Linux.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"
