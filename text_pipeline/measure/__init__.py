"""Load on a running server, made by NVIDIA's perf_analyzer, and what it and the server say of it."""
