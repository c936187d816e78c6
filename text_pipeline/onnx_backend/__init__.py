"""The Python-based backend `onnxruntime`, which stands in for Triton's own; see BACKEND.md."""
