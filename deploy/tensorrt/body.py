"""Writes the graph for `trtexec`: a model alone, in fp16, on padded tokens.

python -m deploy.tensorrt.body MODEL body.onnx
"""

import sys
from pathlib import Path

from text_pipeline.export import graph, source
from text_pipeline.export.exporter import quiet_libraries


def main(model: str, path: str) -> None:
    """`model` is a Hugging Face directory, `path` the file to write."""
    with quiet_libraries():
        graph.save(graph.build_body(source.load(model), "fp16"), Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
