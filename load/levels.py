"""One level of load on one server: what requests, server and metrics say of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from load import processors
from text_pipeline.contract import CLASSIFIER, ENSEMBLE, TOKENIZER
from text_pipeline.measure import perf_analyzer
from text_pipeline.measure.measurement import TOLERANCE, Measurement
from text_pipeline.measure.perf_analyzer import Load, Server
from text_pipeline.measure.statistics import ModelStatistics
from text_pipeline.measure.workload import Workload

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Level:
    """A row of the report; times are milliseconds, those of the server means over requests."""

    workload: str
    protocol: str
    concurrency: int | None
    """Requests in flight, or None for an open loop."""
    rate: float | None
    """Requests a second of an open loop, Poisson arrivals."""
    requests: int
    texts_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_ms: float
    spread: float
    """How far apart the throughput of the measurement's thirds is."""
    stable: bool
    server_requests: int
    """How many requests the ensemble answered meanwhile, by the server's own count."""
    failures: int
    mean_batch_size: float
    tokenizer_ms: float
    """Its queue and its work."""
    queue_ms: float
    """In the classifier's queue."""
    compute_ms: float
    """In the classifier, tensors in and out included."""
    ensemble_ms: float
    """The rest of the ensemble's time."""
    network_ms: float
    """Client and protocol: what the caller waits beyond the server's time."""
    texts_a_request: int = 1

    @property
    def load(self) -> str:
        """The load in words."""
        return f"{self.concurrency} in flight" if self.rate is None else f"{self.rate:g} a second"


@dataclass(frozen=True)
class Measured:
    """A level and what it was made of."""

    level: Level
    measurement: Measurement
    batch_sizes: Mapping[int, int]
    """How many of the classifier's batches had each size."""


def measure(
    server: Server,
    workload: Workload,
    *,
    concurrency: int | None = None,
    rate: float | None = None,
    seconds: float,
    protocol: str = "grpc",
    texts_a_request: int = 1,
    commands: list[str] | None = None,
) -> Measured:
    """Loads `server` for about `seconds`.

    In the closed loop with whole passes over the workload, so that every run does the same work; in
    the open loop with requests at `rate`.
    """
    if rate is not None:
        # perf_analyzer sends for a second at least.
        load = Load(math.ceil(rate * max(seconds, 1)), rate=rate)
    else:
        assert concurrency is not None
        # Warms the server up, and says how much it answers.
        probe = Load(max(2 * concurrency, 20), concurrency=concurrency)
        warm = perf_analyzer.run(
            workload.texts, probe, server, protocol=protocol, texts_a_request=texts_a_request
        )
        per_s = warm.requests.throughput
        load = Load(workload.requests(per_s, seconds, concurrency), concurrency=concurrency)
    before = processors.seconds(server)
    run = perf_analyzer.run(
        workload.texts, load, server, protocol=protocol, texts_a_request=texts_a_request,
        commands=commands,
    )  # fmt: skip
    spent = {name: s - before.get(name, 0) for name, s in processors.seconds(server).items()}
    level = _level(workload, protocol, concurrency, rate, texts_a_request, run.requests, run.models)
    measurement = replace(run.requests, processor_s=spent)
    return Measured(level, measurement, run.models[CLASSIFIER].batch_sizes)


def _level(
    workload: Workload,
    protocol: str,
    concurrency: int | None,
    rate: float | None,
    texts_a_request: int,
    found: Measurement,
    models: Mapping[str, ModelStatistics],
) -> Level:
    ensemble, tokenizer, classifier = (models[name] for name in (ENSEMBLE, TOKENIZER, CLASSIFIER))
    p50, p95, p99 = (found.latency_ms(percentile, workload.reported) for percentile in PERCENTILES)
    mean = float(found.latencies.mean()) * 1000
    return Level(
        workload=workload.name,
        protocol=protocol,
        concurrency=concurrency,
        rate=rate,
        requests=found.count,
        texts_per_s=found.throughput * texts_a_request,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        mean_ms=mean,
        spread=found.spread,
        # Arrivals of an open loop are random; it is unstable when its queue grows.
        stable=(found.spread if rate is None else found.growth) <= TOLERANCE,
        server_requests=ensemble.requests,
        failures=ensemble.failures,
        mean_batch_size=classifier.mean_batch_size,
        tokenizer_ms=tokenizer.total_ms,
        queue_ms=classifier.queue_ms,
        compute_ms=classifier.total_ms - classifier.queue_ms,
        ensemble_ms=max(0.0, ensemble.total_ms - tokenizer.total_ms - classifier.total_ms),
        network_ms=max(0.0, mean - ensemble.total_ms),
        texts_a_request=texts_a_request,
    )
