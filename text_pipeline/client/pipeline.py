"""Classify and embed any number of texts through a running server, over gRPC."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
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

from text_pipeline.client import addresses, proxies
from text_pipeline.client.chunks import Chunk, Text, chunks
from text_pipeline.client.failures import explain, is_unavailable, is_unconnected
from text_pipeline.client.head import Head
from text_pipeline.contract import (
    CLASSIFIER,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_IN_FLIGHT,
    DEFAULT_TIMEOUT_S,
    DEFAULT_URL,
    EMBEDDING_ENSEMBLE,
    ENSEMBLE,
    MAX_TEXTS,
    TEXT_COUNTS,
    TOKENIZER,
    WINDOW_CHUNK_SIZE,
)
from text_pipeline.errors import TextPipelineError

_CLASSIFICATION = ("labels", "scores", *TEXT_COUNTS)
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


_Arrays = dict[str, NDArray[Any]]
"""The tensors of an answer, by their names."""

_Send = Callable[[Sequence[InferResult], Callable[..., None]], Any]
"""Sends one request, given the answers so far and who is to be called with its own."""


class _Reply:
    """The answer to one request that was sent, or to several that need each other's answers."""

    def __init__(self, *steps: _Send) -> None:
        self._future: Future[list[InferResult]] = Future()
        self._steps = deque(steps)
        self._results: list[InferResult] = []
        self._send_next()

    def _send_next(self) -> None:
        self._call = self._steps.popleft()(self._results, self._receive)

    def _receive(self, result: InferResult, error: InferenceServerException | None) -> None:
        if error is not None:
            self._future.set_exception(error)
            return
        self._results.append(result)
        if not self._steps:
            self._future.set_result(self._results)
            return
        try:
            self._send_next()
        except ValueError as closed:  # the connection, meanwhile
            self._future.set_exception(closed)

    def wait(self) -> _Arrays:
        """Blocks until the answer is here; raises InferenceServerException."""
        return {
            output.name: result.as_numpy(output.name)
            for result in self._future.result()
            for output in result.get_response().outputs
        }

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
        version: int | None = None,
    ) -> None:
        """`chunk_size` texts a request, `in_flight` requests sent and not yet answered.

        `timeout_s` is what one request may take, waiting in the server's queue included. `version`
        asks a version that the server has loaded, not the one in use: its tokenizer, and then its
        classifier, for the ensembles answer with the version in use only.
        """
        addresses.split(url, "gRPC")
        if not 1 <= chunk_size <= MAX_TEXTS:
            raise ValueError(f"chunk_size: expected 1 to {MAX_TEXTS}, got {chunk_size}")
        if in_flight < 1:
            raise ValueError(f"in_flight: expected at least 1, got {in_flight}")
        self.url = url
        self.chunk_size = chunk_size
        self.in_flight = in_flight
        self.timeout_s = timeout_s
        self.version = version
        options = [*_CHANNEL_OPTIONS, *proxies.grpc_options(url)]
        self._client = InferenceServerClient(url, channel_args=options)
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
        threshold: float | None = None,
    ) -> Generator[Classification, None, None]:
        """Yields one classification for each text.

        `max_tokens` cuts texts earlier than the model's limit; `overflow` is `"truncate"` (the
        default), `"error"`, which rejects texts that would be cut, or `"window"`, which takes the
        mean of windows that share `stride` tokens with the next; `top_k` keeps the best labels
        only, `threshold` those with at least this score, perhaps none. Closing the generator, like
        any error, cancels the requests in flight.
        """
        parameters = _given(max_tokens=max_tokens, overflow=overflow, stride=stride)
        replies = self._infer(ENSEMBLE, _CLASSIFICATION, texts, parameters)
        return (item for reply in replies for item in _classifications(reply, top_k, threshold))

    def embed(
        self,
        texts: Iterable[Text],
        *,
        max_tokens: int | None = None,
        overflow: str | None = None,
        stride: int | None = None,
    ) -> Generator[NDArray[np.float32], None, None]:
        """Yields one embedding for each text: FP32 [hidden size]; parameters as for `classify`."""
        parameters = _given(max_tokens=max_tokens, overflow=overflow, stride=stride)
        replies = self._infer(EMBEDDING_ENSEMBLE, ("embedding",), texts, parameters)
        return (row for reply in replies for row in reply["embedding"])

    def head(self) -> Head:
        """What kind of model answers, and its labels; asks about a text that no metric counts."""
        outputs = ("labels", "probabilities", "logits")
        (reply,) = self._infer(ENSEMBLE, outputs, ["a"], {"health_check": True})
        labels, probabilities, logits = (reply[name][0] for name in outputs)
        return Head.of(tuple(label.decode() for label in labels), probabilities, logits)

    def version_asked(self) -> int:
        """The version whose answers come: `version`, if the server has loaded it, or that in use.

        Raises TextPipelineError with those that are loaded.
        """
        try:
            limit = {"client_timeout": self.timeout_s}
            metadata = self._client.get_model_metadata(CLASSIFIER, **limit)
            ensemble = self._client.get_model_config(ENSEMBLE, **limit).config.ensemble_scheduling
        except InferenceServerException as error:
            raise self._explained(error, CLASSIFIER, first=1) from None
        loaded = sorted(map(int, metadata.versions))
        in_use = ensemble.step[0].model_version
        if self.version is None:
            return in_use if in_use > 0 else loaded[-1]
        if self.version not in loaded:
            raise TextPipelineError(
                f"the server at {self.url} has not loaded version {self.version}, only "
                f"{' and '.join(map(str, loaded))}: it loads a new one and the one before"
            )
        return self.version

    def _infer(
        self,
        model: str,
        outputs: Sequence[str],
        texts: Iterable[Text],
        parameters: Mapping[str, Any],
    ) -> Generator[_Arrays, None, None]:
        """Keeps up to `in_flight` requests under way and yields their answers in order."""

        def ask(name: str, inputs: list[InferInput], wanted: Sequence[str], callback: Any) -> Any:
            return self._client.async_infer(
                name,
                inputs,
                callback,
                model_version=str(self.version or ""),
                outputs=[InferRequestedOutput(output) for output in wanted],
                parameters=parameters,
                client_timeout=self.timeout_s,
            )

        def send(chunk: Chunk) -> _Reply:
            if self.version is None:
                return _Reply(lambda _, callback: ask(model, chunk.inputs(), outputs, callback))
            return _Reply(
                lambda _, callback: ask(TOKENIZER, chunk.inputs(), (), callback),
                lambda results, callback: ask(
                    CLASSIFIER,
                    _token_inputs(results[0]),
                    [name for name in outputs if name not in TEXT_COUNTS],
                    callback,
                ),
            )

        is_windowed = parameters.get("overflow") == "window"
        chunk_size = min(self.chunk_size, WINDOW_CHUNK_SIZE) if is_windowed else self.chunk_size
        waiting = chunks(texts, chunk_size)
        pending: deque[tuple[Chunk, _Reply]] = deque()
        try:
            while True:
                free = self.in_flight - len(pending)
                pending.extend((chunk, send(chunk)) for chunk in islice(waiting, free))
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
        self, chunk: Chunk, reply: _Reply, send: Callable[[Chunk], _Reply], model: str
    ) -> _Arrays:
        """The answer for `chunk`, after repeating the request while that may help."""
        delays = iter(_RETRY_DELAYS_S)
        while True:
            try:
                result = reply.wait()
            except InferenceServerException as error:
                delay = next(delays, None) if self._may_repeat(error) else None
                if delay is None:
                    raise self._explained(error, model, chunk.first) from None
                time.sleep(delay)
                reply = send(chunk)
            else:
                self._was_answered = True
                return result

    def _explained(
        self, error: InferenceServerException, model: str, first: int
    ) -> TextPipelineError:
        return explain(
            error,
            url=self.url,
            model=model,
            first=first,
            timeout_s=self.timeout_s,
            was_answered=self._was_answered,
        )

    def _may_repeat(self, error: InferenceServerException) -> bool:
        # An address where nobody ever answered is most likely mistyped: say so at once.
        return is_unavailable(error) and (self._was_answered or not is_unconnected(error))


def _given(**parameters: Any) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _token_inputs(result: InferResult) -> list[InferInput]:
    """The tokenizer's answer as the classifier's inputs."""
    tensors = []
    for output in result.get_response().outputs:
        if output.name not in TEXT_COUNTS:
            tensors.append(InferInput(output.name, list(output.shape), output.datatype))
            tensors[-1].set_data_from_numpy(result.as_numpy(output.name))
    return tensors


def _classifications(
    reply: _Arrays, top_k: int | None, threshold: float | None
) -> Iterator[Classification]:
    columns = (reply[name] for name in _CLASSIFICATION)
    for labels, scores, token_count, truncated in zip(*columns, strict=True):
        if threshold is not None:
            # As the scores: 0.7 in FP32 is less than 0.7.
            scores = scores[scores >= np.float32(threshold)]
        kept = scores[:top_k].tolist()
        yield Classification(
            tuple(label.decode() for label in labels[: len(kept)]),
            tuple(kept),
            int(token_count[0]),
            bool(truncated[0]),
        )
