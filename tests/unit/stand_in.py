"""A gRPC server that speaks Triton's protocol and fails on demand; what it says is made up."""

import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from text_pipeline.contract import EMBEDDING_ENSEMBLE, ENSEMBLE

Failure = tuple[grpc.StatusCode, str]


class StandIn(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Calls a text `x` "label of x", and a pair "label of x|y".

    `fails` gets a request's texts and its number, from 0, and names the failure, if any;
    `before_answer` runs before each answer, on the request's own thread.
    """

    def __init__(self) -> None:
        self.url = ""
        self.sizes: list[int] = []
        self.parameters: list[dict[str, int | str]] = []
        self.cancelled = threading.Event()
        self.fails: Callable[[list[str], int], Failure | None] = lambda *_: None
        self.before_answer: Callable[[list[str]], None] = lambda _: None

    def ModelInfer(self, request, context):  # noqa: N802 - the protocol's name
        """Answers one request as the ensembles do."""
        columns = [_strings(raw) for raw in request.raw_input_contents]
        texts = ["|".join(row) for row in zip(*columns, strict=True)]
        number = len(self.sizes)
        self.sizes.append(len(texts))
        self.parameters.append(
            {k: v.string_param or v.int64_param for k, v in request.parameters.items()}
        )
        context.add_callback(lambda: None if context.code() else self.cancelled.set())
        if request.model_name not in (ENSEMBLE, EMBEDDING_ENSEMBLE):
            context.abort(grpc.StatusCode.NOT_FOUND, "Request for unknown model: it is not found")
        if failure := self.fails(texts, number):
            context.abort(*failure)
        self.before_answer(texts)
        context.set_code(grpc.StatusCode.OK)
        return _answer([output.name for output in request.outputs], texts)


@contextmanager
def serving(servicer: StandIn, url: str = "127.0.0.1:0") -> Iterator[grpc.Server]:
    """A running server with 16 threads; what is unanswered at the block's end is dropped."""
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    servicer.url = f"127.0.0.1:{server.add_insecure_port(url)}"
    server.start()
    try:
        yield server
    finally:
        server.stop(None).wait()


def _answer(outputs: list[str], texts: list[str]) -> service_pb2.ModelInferResponse:
    count = len(texts)
    labels = [name for text in texts for name in (f"label of {text}", "another")]
    tensors = {
        "labels": ("BYTES", 2, b"".join(_packed(label) for label in labels)),
        "scores": ("FP32", 2, np.tile(np.float32([0.75, 0.25]), count).tobytes()),
        "token_count": ("INT32", 1, np.int32([len(text) + 2 for text in texts]).tobytes()),
        "truncated": ("BOOL", 1, np.array([len(text) > 100 for text in texts]).tobytes()),
        "embedding": ("FP32", 3, np.repeat(np.float32([*map(len, texts)]), 3).tobytes()),
    }
    response = service_pb2.ModelInferResponse()
    for name in outputs:
        datatype, width, raw = tensors[name]
        response.outputs.add(name=name, datatype=datatype, shape=[count, width])
        response.raw_output_contents.append(raw)
    return response


def _packed(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw


def _strings(raw: bytes) -> list[str]:
    texts = []
    while raw:
        (length,) = struct.unpack_from("<I", raw)
        texts.append(raw[4 : 4 + length].decode())
        raw = raw[4 + length :]
    return texts
