"""Load on a running server by NVIDIA's perf_analyzer, and what callers and server say of it."""
