"""The limit of a served graph: the same graph on the same cores, with nothing around it."""

import math
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from text_pipeline.contract import CLASSIFIER, TOKENIZER
from text_pipeline.measure.measurement import Measurement

OUTPUTS = ("labels", "scores", "probabilities", "logits")


def run(
    repository: Path,
    texts: Sequence[str],
    *,
    processes: int,
    threads: int,
    batch_size: int,
    seconds: float,
) -> Measurement:
    """Runs version 1 of `repository` in batches, tokenized beforehand, in arrival order.

    Each of the processes has `threads` threads and all texts; `seconds` are rounded up to whole
    passes.
    """
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    barrier = context.Barrier(processes)
    arguments = (repository, texts, threads, batch_size, seconds, barrier, queue)
    workers = [context.Process(target=_work, args=arguments) for _ in range(processes)]
    for worker in workers:
        worker.start()
    spans = [span for _ in workers for span in queue.get()]
    for worker in workers:
        worker.join()
    spans.sort()
    return Measurement(
        tuple(text for _, _, batch in spans for text in batch),
        np.array([start for start, _, batch in spans for _ in batch]),
        np.array([end for _, end, batch in spans for _ in batch]),
    )


def _work(
    repository: Path,
    texts: Sequence[str],
    threads: int,
    batch_size: int,
    seconds: float,
    barrier: Barrier,
    queue: multiprocessing.Queue,
) -> None:
    """Puts the start, the end and the texts of every batch into `queue`."""
    from transformers import AutoTokenizer, TokenizersBackend

    from text_pipeline.export.gate import ragged_feed
    from text_pipeline.onnx_backend.session import open_session

    config = {"parameters": {"intra_op_thread_count": {"string_value": str(threads)}}}
    session = open_session(config, repository / CLASSIFIER / "1" / "model.onnx", "CPU", 0)
    tokenizer = AutoTokenizer.from_pretrained(repository / TOKENIZER / "1" / "tokenizer")
    assert isinstance(tokenizer, TokenizersBackend)
    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    feeds = [ragged_feed(tokenizer, batch, tokenizer.model_max_length) for batch in batches]
    start = time.time()
    for feed in feeds:
        session.run(OUTPUTS, feed)
    passes = math.ceil(seconds / (time.time() - start))
    spans = []
    barrier.wait()
    for _ in range(passes):
        for batch, feed in zip(batches, feeds, strict=True):
            start = time.time()
            session.run(OUTPUTS, feed)
            spans.append((start, time.time(), batch))
    queue.put(spans)
