"""Whether the first requests after a start are as fast as later ones."""

import time
from typing import Protocol

from load.gpu_check.claims import number
from load.gpu_check.record import Record
from text_pipeline.client.pipeline import PipelineClient
from text_pipeline.contract import MAX_TEXTS
from text_pipeline.default_model import corpus

SIZES = (1, 8, 64)
"""Texts a request; as model_warmup in config.pbtxt."""
HUNDREDTH = 100


class Server(Protocol):
    """`host:port` of the gRPC endpoint."""

    @property
    def grpc_url(self) -> str: ...


def measure(server: Server, record: Record) -> None:
    """Sends a hundred requests of each size, one by one, to a server that is just ready."""
    rows, worst = [], float("-inf")
    with PipelineClient(server.grpc_url, chunk_size=MAX_TEXTS) as client:
        for size in SIZES:
            texts = corpus.short(size)
            times = [_ms(client, texts) for _ in range(HUNDREDTH)]
            worst = max(worst, times[0] - times[-1])
            rows.append([str(size), *(number(ms) for ms in (times[0], times[1], times[-1]))])
    record.figure("first over hundredth ms", worst)
    record.table("After the start: how long a request takes",
                 ["texts a request", "first, ms", "second, ms", "hundredth, ms"], rows)  # fmt: skip


def _ms(client: PipelineClient, texts: list[str]) -> float:
    began = time.perf_counter()
    for _ in client.classify(texts):
        pass
    return (time.perf_counter() - began) * 1000
