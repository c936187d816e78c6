"""Classifies and embeds texts through a running server, over gRPC."""

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from text_pipeline.errors import RequestRejectedError, ServerUnreachableError, TextPipelineError
from text_pipeline.repository import EMBEDDING_ENSEMBLE, ENSEMBLE

DEFAULT_URL = "127.0.0.1:8001"
MAX_BATCH_SIZE = 64
"""Texts in one request; the ensembles' max_batch_size."""

Text = str | tuple[str, str]
"""A text, or a sentence pair."""

# The tokenizer names the row within its request: text[3] or text_pair[3].
_ROW = re.compile(r"\b(text(?:_pair)?)\[(\d+)\]")
_ENSEMBLE_PREFIX = re.compile(r"^in ensemble '[^']*', ")


@dataclass(frozen=True)
class Classification:
    """The answer for one text."""

    labels: list[str]
    """All classes, best first."""
    scores: list[float]
    """In the order of `labels`."""
    token_count: int
    """Tokens the model saw, special tokens included."""
    truncated: bool
    """Whether the text was cut to fit."""


class PipelineClient:
    """A connection to the server at `url` (host:port of its gRPC endpoint); a context manager.

    Texts are read only as far ahead as requests are in flight, so inputs of any length stream;
    results come in the order of the texts. Raises ServerUnreachableError, RequestRejectedError
    (which names the text, counted from 1) or TextPipelineError for everything else.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        chunk_size: int = 32,
        in_flight: int = 8,
        timeout_s: float = 120,
    ) -> None:
        """`chunk_size` texts a request (1 to 64), `in_flight` requests at a time."""
        if not 1 <= chunk_size <= MAX_BATCH_SIZE:
            raise TextPipelineError(
                f"chunk size: expected 1 to {MAX_BATCH_SIZE} texts a request, got {chunk_size}"
            )
        self.url = url
        self.chunk_size = chunk_size
        self.in_flight = in_flight
        self.timeout_s = timeout_s
        self._client = tritonclient.grpc.InferenceServerClient(url)

    def __enter__(self) -> "PipelineClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; requests in flight are given up."""
        self._client.close()

    def classify(
        self, texts: Iterable[Text], *, max_tokens: int | None = None, overflow: str | None = None
    ) -> Iterator[Classification]:
        """Yields one Classification per text.

        `max_tokens` cuts texts earlier than the model's limit; `overflow` is "truncate" (the
        default) or "error", which rejects texts that would be cut.
        """
        outputs = ["labels", "scores", "token_count", "truncated"]
        for chunk in self._stream(ENSEMBLE, outputs, texts, max_tokens, overflow):
            for labels, scores, count, truncated in zip(*chunk, strict=True):
                names = [label.decode() for label in labels]
                yield Classification(names, scores.tolist(), int(count[0]), bool(truncated[0]))

    def embed(
        self, texts: Iterable[Text], *, max_tokens: int | None = None, overflow: str | None = None
    ) -> Iterator[np.ndarray]:
        """Yields one embedding per text, FP32 [hidden size], of length 1."""
        for (embeddings,) in self._stream(
            EMBEDDING_ENSEMBLE, ["embedding"], texts, max_tokens, overflow
        ):
            yield from embeddings

    def _stream(
        self,
        model: str,
        outputs: Sequence[str],
        texts: Iterable[Text],
        max_tokens: int | None,
        overflow: str | None,
    ) -> Iterator[list[np.ndarray]]:
        """The outputs of every chunk in order, `in_flight` requests ahead of the consumer."""
        parameters: dict[str, Any] = {"max_tokens": max_tokens, "overflow": overflow}
        parameters = {name: value for name, value in parameters.items() if value is not None}
        pending: deque[Future[list[np.ndarray]]] = deque()
        executor = ThreadPoolExecutor(self.in_flight, thread_name_prefix="classify")
        try:
            for start, chunk in _chunks(texts, self.chunk_size):
                if len(pending) == self.in_flight:
                    yield pending.popleft().result()
                pending.append(
                    executor.submit(self._infer, model, outputs, chunk, start, parameters)
                )
            while pending:
                yield pending.popleft().result()
        finally:
            # The consumer may have stopped early: what has not been sent never will be.
            executor.shutdown(wait=False, cancel_futures=True)

    def _infer(
        self,
        model: str,
        outputs: Sequence[str],
        chunk: Sequence[Text],
        start: int,
        parameters: dict[str, Any],
    ) -> list[np.ndarray]:
        try:
            result = self._client.infer(
                model,
                _inputs(chunk),
                outputs=[tritonclient.grpc.InferRequestedOutput(name) for name in outputs],
                parameters=parameters,
                client_timeout=self.timeout_s,
            )
        except InferenceServerException as error:
            raise self._explain(error, model, start) from error
        return [result.as_numpy(name) for name in outputs]

    def _explain(
        self, error: InferenceServerException, model: str, start: int
    ) -> TextPipelineError:
        message = _ENSEMBLE_PREFIX.sub("", " ".join((error.message() or "").split()))
        match error.status():
            case "StatusCode.UNAVAILABLE" if "unknown model" in message or "not ready" in message:
                return TextPipelineError(f"{model} is not ready at {self.url}: {message}")
            case "StatusCode.UNAVAILABLE":
                return ServerUnreachableError(
                    f"no Triton gRPC endpoint answers at {self.url}: start a server with "
                    f"`make serve`, or name its gRPC port with --url HOST:PORT ({message})"
                )
            case "StatusCode.INVALID_ARGUMENT":
                numbered = _ROW.sub(lambda row: f"{row[1]} {start + int(row[2]) + 1}", message)
                return RequestRejectedError(numbered)
            case "StatusCode.DEADLINE_EXCEEDED":
                return ServerUnreachableError(
                    f"{self.url} did not answer within {self.timeout_s:g} s"
                )
        return TextPipelineError(f"{self.url} answered {error.status()}: {message}")


def _chunks(texts: Iterable[Text], size: int) -> Iterator[tuple[int, list[Text]]]:
    """Chunks with the index of their first text; texts and pairs never share one."""
    start = 0
    for _, alike in itertools.groupby(texts, key=lambda text: isinstance(text, tuple)):
        while chunk := list(itertools.islice(alike, size)):
            yield start, chunk
            start += len(chunk)


def _inputs(chunk: Sequence[Text]) -> list[tritonclient.grpc.InferInput]:
    """BYTES tensors [texts, 1]: `text`, and `text_pair` for sentence pairs."""
    columns = list(zip(*chunk, strict=True)) if isinstance(chunk[0], tuple) else [chunk]
    inputs = []
    for name, column in zip(("text", "text_pair"), columns, strict=False):
        tensor = tritonclient.grpc.InferInput(name, [len(chunk), 1], "BYTES")
        # surrogateescape brings back bytes of the command line that are not UTF-8: the server
        # rejects them by name.
        encoded = [[text.encode("utf-8", "surrogateescape")] for text in column]
        tensor.set_data_from_numpy(np.array(encoded, dtype=np.object_))
        inputs.append(tensor)
    return inputs
