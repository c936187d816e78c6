"""Vectors in NumPy's file format, written while they arrive, however many."""

import struct
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from text_pipeline.errors import TextPipelineError

_HEADER_SIZE = 128
"""Bytes before the data: room for any number of rows, which is known only at the end."""


def write_npy(vectors: Iterable[NDArray[np.float32]], file: BinaryIO) -> None:
    """Writes vectors of one size as the rows of a .npy file, FP32 [rows, size]; none: [0, 0].

    Raises TextPipelineError if the file cannot be written out of order, as a pipe.
    """
    if not file.seekable():
        raise TextPipelineError("--output: expected a file, got a pipe or a terminal")
    rows = size = 0
    _write_header(file, rows, size)
    for vector in vectors:
        file.write(vector.astype("<f4", copy=False).tobytes())
        rows, size = rows + 1, len(vector)
    file.seek(0)
    _write_header(file, rows, size)


def _write_header(file: BinaryIO, rows: int, size: int) -> None:
    """Version 1.0 of the format: a magic string, the length of a Python dict, and that dict."""
    start = np.lib.format.magic(1, 0)
    length = _HEADER_SIZE - len(start) - 2
    array = {"descr": "<f4", "fortran_order": False, "shape": (rows, size)}
    text = repr(array).ljust(length - 1) + "\n"
    file.write(start + struct.pack("<H", length) + text.encode("ascii"))
