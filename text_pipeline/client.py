"""Classify and embed any number of texts through a running server, over gRPC."""

import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import (
    InferenceServerClient,
    InferInput,
    InferRequestedOutput,
    InferResult,
)
from tritonclient.utils import InferenceServerException

from text_pipeline.errors import RequestRejectedError, TextPipelineError
from text_pipeline.failures import explain, is_unavailable, is_unconnected
from text_pipeline.repository import EMBEDDING_ENSEMBLE, ENSEMBLE

Text = str | tuple[str, str]
"""A text, or a sentence pair."""

DEFAULT_URL = "127.0.0.1:8001"
MAX_CHUNK_SIZE = 64
"""Texts in a request: `max_batch_size` of the ensembles."""
DEFAULT_CHUNK_SIZE = 32
WINDOW_CHUNK_SIZE = 2
"""A request may hold 64 windows, a text 32."""
DEFAULT_IN_FLIGHT = 8
"""Requests sent and not yet answered; the server batches them together."""
DEFAULT_TIMEOUT_S = 300.0
"""8 requests of 64 long articles take about a minute on two cores."""

_RETRY_DELAYS_S = (0.1, 0.2, 0.4, 0.8, 1.6)
_CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # gRPC waits 1 s before it connects again; a retry before that would fail without trying.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@dataclass(frozen=True, slots=True)
class Classification:
    """What the server says about one text."""

    labels: tuple[str, ...]
    """Best first."""
    scores: tuple[float, ...]
    """In the order of `labels`; FP32 values."""
    token_count: int
    """Tokens the model saw, special ones included."""
    truncated: bool
    """Whether the text was longer than the limit and was cut."""


@dataclass(frozen=True)
class _Chunk:
    """The texts of one request; `first` is the number of its first text, the input's being 1."""

    first: int
    texts: list[bytes]
    pairs: list[bytes]
    """Second segments, one for each text, or none at all."""


class _Reply:
    """The answer to one request that was sent."""

    def __init__(self, send: Callable[[Callable[..., None]], Any]) -> None:
        self._future: Future[InferResult] = Future()
        self._call = send(self._receive)

    def _receive(self, result: InferResult, error: InferenceServerException | None) -> None:
        if error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)

    def wait(self) -> InferResult:
        """Blocks until the answer is here; raises InferenceServerException."""
        return self._future.result()

    def cancel(self) -> None:
        """Tells the server to forget the request, unless it has been answered."""
        self._call.cancel()


class PipelineClient:
    """A connection to the server at `url` (`HOST:PORT` of its gRPC endpoint); a context manager.

    Results come in the order of the texts. At most `chunk_size * in_flight` texts are read ahead
    of what the caller has taken, so input of any length, even endless, streams. Errors are
    `TextPipelineError`s of one line: `ServerUnreachableError`, or `RequestRejectedError`, which
    names the text counted from 1. Once the server has answered, a request that finds no
    connection or a full queue is repeated for about three seconds: classifying twice is harmless.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        chunk_size: int = DEFAULT_CHUNK_SIZE,
        in_flight: int = DEFAULT_IN_FLIGHT,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """`chunk_size` texts a request, `in_flight` requests sent and not yet answered.

        `timeout_s` is what one request may take, waiting in the server's queue included.
        """
        if not re.fullmatch(r"[^\s/]+:\d+", url):
            raise TextPipelineError(f"url: expected HOST:PORT of the gRPC endpoint, got {url!r}")
        if not 1 <= chunk_size <= MAX_CHUNK_SIZE:
            raise ValueError(f"chunk_size: expected 1 to {MAX_CHUNK_SIZE}, got {chunk_size}")
        if in_flight < 1:
            raise ValueError(f"in_flight: expected at least 1, got {in_flight}")
        self.url = url
        self.chunk_size = chunk_size
        self.in_flight = in_flight
        self.timeout_s = timeout_s
        self._client = InferenceServerClient(url, channel_args=_CHANNEL_OPTIONS)
        self._was_answered = False

    def __enter__(self) -> "PipelineClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; requests in flight are cancelled."""
        self._client.close()

    def classify(
        self,
        texts: Iterable[Text],
        *,
        max_tokens: int | None = None,
        overflow: str | None = None,
        stride: int | None = None,
        top_k: int | None = None,
    ) -> Generator[Classification, None, None]:
        """Yields one classification for each text.

        `max_tokens` cuts texts earlier than the model's limit; `overflow` is `"truncate"` (the
        default), `"error"`, which rejects texts that would be cut, or `"window"`, which takes the
        mean of windows that share `stride` tokens with the next; `top_k` keeps the best labels
        only. Closing the generator, like any error, cancels the requests in flight.
        """
        outputs = ("labels", "scores", "token_count", "truncated")
        given = {"max_tokens": max_tokens, "overflow": overflow, "stride": stride}
        replies = self._infer(ENSEMBLE, outputs, texts, given)
        return (item for reply in replies for item in _classifications(reply, top_k))

    def embed(
        self,
        texts: Iterable[Text],
        *,
        max_tokens: int | None = None,
        overflow: str | None = None,
        stride: int | None = None,
    ) -> Generator[NDArray[np.float32], None, None]:
        """Yields one embedding for each text: FP32 [hidden size]; parameters as for `classify`."""
        given = {"max_tokens": max_tokens, "overflow": overflow, "stride": stride}
        replies = self._infer(EMBEDDING_ENSEMBLE, ("embedding",), texts, given)
        return (row for reply in replies for row in reply.as_numpy("embedding"))

    def _infer(
        self,
        model: str,
        outputs: tuple[str, ...],
        texts: Iterable[Text],
        given: Mapping[str, int | str | None],
    ) -> Generator[InferResult, None, None]:
        """Keeps up to `in_flight` requests under way and yields their answers in order."""
        parameters = {name: value for name, value in given.items() if value is not None}

        def send(chunk: _Chunk) -> _Reply:
            return _Reply(
                lambda callback: self._client.async_infer(
                    model,
                    _inputs(chunk),
                    callback,
                    outputs=[InferRequestedOutput(name) for name in outputs],
                    parameters=parameters,
                    client_timeout=self.timeout_s,
                )
            )

        is_windowed = parameters.get("overflow") == "window"
        chunk_size = min(self.chunk_size, WINDOW_CHUNK_SIZE) if is_windowed else self.chunk_size
        chunks = _chunks(texts, chunk_size)
        pending: deque[tuple[_Chunk, _Reply]] = deque()
        try:
            while True:
                free = self.in_flight - len(pending)
                pending.extend((chunk, send(chunk)) for chunk in islice(chunks, free))
                if not pending:
                    return
                chunk, reply = pending[0]
                result = self._await(chunk, reply, send, model)
                pending.popleft()
                yield result
        finally:
            for _, reply in pending:
                reply.cancel()

    def _await(
        self, chunk: _Chunk, reply: _Reply, send: Callable[[_Chunk], _Reply], model: str
    ) -> InferResult:
        """The answer for `chunk`, after repeating the request while that may help."""
        delays = iter(_RETRY_DELAYS_S)
        while True:
            try:
                result = reply.wait()
            except InferenceServerException as error:
                delay = next(delays, None) if self._may_repeat(error) else None
                if delay is None:
                    raise explain(
                        error,
                        url=self.url,
                        model=model,
                        first=chunk.first,
                        timeout_s=self.timeout_s,
                        was_answered=self._was_answered,
                    ) from None
                time.sleep(delay)
                reply = send(chunk)
            else:
                self._was_answered = True
                return result

    def _may_repeat(self, error: InferenceServerException) -> bool:
        # An address where nobody ever answered is most likely mistyped: say so at once.
        return is_unavailable(error) and (self._was_answered or not is_unconnected(error))


def _chunks(texts: Iterable[Text], size: int) -> Iterator[_Chunk]:
    """Requests' worth of texts; single texts and pairs never share a request."""
    if isinstance(texts, str):
        raise TypeError("texts: expected an iterable of texts, got a single str")
    return _split(enumerate(texts, start=1), size)


def _split(numbered: Iterator[tuple[int, Text]], size: int) -> Iterator[_Chunk]:
    chunk = _Chunk(1, [], [])
    for number, text in numbered:
        first, second = (text, None) if isinstance(text, str) else text
        is_other_kind = bool(chunk.pairs) == (second is None)
        if chunk.texts and (is_other_kind or len(chunk.texts) == size):
            yield chunk
            chunk = _Chunk(number, [], [])
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


def _inputs(chunk: _Chunk) -> list[InferInput]:
    """The request's tensors: STRING [texts, 1] each."""
    tensors = []
    for name, values in (("text", chunk.texts), ("text_pair", chunk.pairs)):
        if values:
            tensor = InferInput(name, [len(values), 1], "BYTES")
            tensor.set_data_from_numpy(np.array(values, dtype=object).reshape(-1, 1))
            tensors.append(tensor)
    return tensors


def _classifications(reply: InferResult, top_k: int | None) -> Iterator[Classification]:
    columns = (reply.as_numpy(n) for n in ("labels", "scores", "token_count", "truncated"))
    for labels, scores, token_count, truncated in zip(*columns, strict=True):
        yield Classification(
            tuple(label.decode() for label in labels[:top_k]),
            tuple(scores[:top_k].tolist()),
            int(token_count[0]),
            bool(truncated[0]),
        )
