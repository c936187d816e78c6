"""Texts as requests: up to so many of one kind, as the tensors of the ensembles."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import InferInput

from text_pipeline.errors import RequestRejectedError
from text_pipeline.files.records import Text


@dataclass(frozen=True)
class Chunk:
    """The texts of one request; `first` is the number of its first text, the input's being 1."""

    first: int
    texts: list[bytes]
    pairs: list[bytes]
    """Second segments, one for each text, or none at all."""

    def inputs(self) -> list[InferInput]:
        """The request's tensors: STRING [texts, 1] each."""
        tensors = []
        for name, values in (("text", self.texts), ("text_pair", self.pairs)):
            if values:
                tensor = InferInput(name, [len(values), 1], "BYTES")
                tensor.set_data_from_numpy(np.array(values, dtype=object).reshape(-1, 1))
                tensors.append(tensor)
        return tensors


def chunks(texts: Iterable[Text], size: int) -> Iterator[Chunk]:
    """Requests' worth of texts; single texts and pairs never share a request."""
    if isinstance(texts, str):
        raise TypeError("texts: expected an iterable of texts, got a single str")
    return _split(enumerate(texts, start=1), size)


def _split(numbered: Iterator[tuple[int, Text]], size: int) -> Iterator[Chunk]:
    chunk = Chunk(1, [], [])
    for number, text in numbered:
        first, second = (text, None) if isinstance(text, str) else text
        is_other_kind = bool(chunk.pairs) == (second is None)
        if chunk.texts and (is_other_kind or len(chunk.texts) == size):
            yield chunk
            chunk = Chunk(number, [], [])
        chunk.texts.append(_utf8(first, number, "text"))
        if second is not None:
            chunk.pairs.append(_utf8(second, number, "text_pair"))
    if chunk.texts:
        yield chunk


def _utf8(text: str, number: int, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise RequestRejectedError(
            f"{field} {number}: not valid Unicode: a lone surrogate (U+{code:04X}) "
            f"is its character {error.start + 1}"
        ) from None
