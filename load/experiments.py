"""The comparisons people ask for, each within one run.

Every variant gets a server of its own. Rounds are interleaved, every second one in reverse order,
so that the machine's slow phases meet all alike; a figure is the median of the rounds.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from load import offline, servers
from load.levels import measure
from load.repositories import Repositories
from text_pipeline.measure import perf_analyzer
from text_pipeline.measure.measurement import Measurement
from text_pipeline.measure.perf_analyzer import Load
from text_pipeline.measure.workload import WITH_ARTICLES, Workload
from text_pipeline.repository.configuration import Settings

Run = Callable[[Workload, int, float], Measurement]
"""Measures a workload with so many requests in flight for about so many seconds."""
OFFLINE_BATCH = 32
ONE = Settings(instances=1, threads=1)
TWO = Settings(instances=2, threads=1)


@dataclass(frozen=True)
class Variant:
    """One of the things compared; `start` is given the folder with all repositories."""

    name: str
    start: Callable[[Repositories], AbstractContextManager[Run]]


@dataclass(frozen=True)
class Experiment:
    """Variants, of which the first is what the others' ratios refer to."""

    title: str
    variants: Sequence[Variant]
    workloads: Sequence[str] = ("mixed", "short")
    concurrencies: Sequence[int] = (64,)
    note: str = ""
    shows_processor_time: bool = False
    """Of each of the server's processes, a text."""


def served(
    name: str,
    settings: Settings = TWO,
    *,
    layout: str = "packed",
    precision: str = "fp32",
    protocol: str = "grpc",
    idle: bool = False,
    environment: dict[str, str] | None = None,
) -> Variant:
    """Triton; `idle` is a classifier that does nothing."""

    @contextmanager
    def start(repositories: Repositories) -> Iterator[Run]:
        repository = repositories.idle() if idle else repositories.get(layout, precision)
        with servers.triton(repository, settings, environment) as server:
            yield (
                lambda workload, concurrency, seconds: (
                    measure(
                        server,
                        workload,
                        concurrency=concurrency,
                        seconds=seconds,
                        protocol=protocol,
                    ).measurement
                )
            )

    return Variant(name, start)


def _endpoint(
    name: str,
    serve: Callable[[Path, Path], AbstractContextManager[str]],
    payload: Callable[[str, Path], dict],
) -> Variant:
    """A server that is not Triton, asked over HTTP JSON."""

    @contextmanager
    def start(repositories: Repositories) -> Iterator[Run]:
        with serve(repositories.model, repositories.venvs) as url:

            def run(workload: Workload, concurrency: int, seconds: float) -> Measurement:
                payloads = [payload(text, repositories.model) for text in workload.texts]
                warm = Load(concurrency, concurrency=concurrency)
                per_s = perf_analyzer.run_endpoint(payloads, warm, url, "classify").requests
                requests = workload.requests(per_s.throughput, seconds, concurrency)
                load = Load(requests, concurrency=concurrency)
                return perf_analyzer.run_endpoint(payloads, load, url, "classify").requests

            yield run

    return Variant(name, start)


def _offline(name: str, precision: str, processes: int, threads: int) -> Variant:
    """The graph alone, one text at a time for one request in flight, else in batches."""

    @contextmanager
    def start(repositories: Repositories) -> Iterator[Run]:
        repository = repositories.get("packed", precision)
        yield lambda workload, concurrency, seconds: offline.run(
            repository, workload.texts, processes=processes, threads=threads,
            batch_size=min(concurrency, OFFLINE_BATCH), seconds=seconds,
        )  # fmt: skip

    return Variant(name, start)


def _limit(precision: str) -> Experiment:
    return Experiment(
        f"Served against the graph alone, {precision}",
        [
            _offline("graph alone, one process of two threads", precision, 1, 2),
            _offline("graph alone, two processes of one thread", precision, 2, 1),
            served("served, one instance of two threads", Settings(1, 2), precision=precision),
            served("served, two instances of one thread", precision=precision),
        ],
        concurrencies=(1, 64),
        note=f"The graph alone runs batches of {OFFLINE_BATCH}, or single texts beside one request "
        "in flight. The load generator runs on the same cores as the server.",
    )


FASTAPI = _endpoint(
    "FastAPI, transformers pipeline", servers.fastapi, lambda text, _: {"text": text}
)
INFINITY = _endpoint(
    "infinity-emb", servers.infinity, lambda text, model: {"model": str(model), "input": [text]}
)

EXPERIMENTS = {
    "batching": Experiment(
        "Dynamic batching and instances",
        [
            served("one instance, no batching", Settings(instances=1, threads=1, batching=False)),
            served("one instance, batching", ONE),
            served("two instances, no batching", Settings(instances=2, threads=1, batching=False)),
            served("two instances, batching", TWO),
        ],
        note="Every instance has one thread.",
    ),
    "layout": Experiment(
        "Padded against packed, fp32 against int8",
        [
            served("padded, batching", layout="padded"),
            served("padded, no batching", Settings(2, 1, batching=False), layout="padded"),
            served("packed"),
            served("packed int8", precision="int8"),
        ],
        concurrencies=(1, 64),
        note="Two instances of one thread each; all graphs have the same operators fused.",
    ),
    "protocols": Experiment(
        "Protocols",
        [served(name, precision="int8", protocol=name) for name in perf_analyzer.PROTOCOLS],
        workloads=("short",),
        concurrencies=(1, 64),
        note="int8, for the protocol's share is largest there.",
    ),
    "queue delay": Experiment(
        "Queue delay and batch sizes",
        [
            *(
                served(f"delay {us} us", Settings(2, 1, queue_delay_us=us))
                for us in (0, 500, 2000, 5000)
            ),
            *(
                served(f"batches up to {size}", Settings(2, 1, max_batch_items=size))
                for size in (8, 16, 32)
            ),
        ],
        concurrencies=(1, 8, 64),
    ),
    "tokenizers": Experiment(
        "Tokenizer instances and TOKENIZERS_PARALLELISM",
        [
            served(
                f"{count} tokenizer{'s' if count > 1 else ''}, TOKENIZERS_PARALLELISM={value}",
                Settings(1, 1, tokenizer_instances=count),
                idle=True,
                environment={"TOKENIZERS_PARALLELISM": value},
            )
            for count in (1, 2, 4)
            for value in ("true", "false")
        ],
        shows_processor_time=True,
        note="The classifier does nothing: what is left is what the pipeline carries on this "
        "machine, and so the most that a GPU would be given.",
    ),
    "limit": _limit("fp32"),
    "limit int8": _limit("int8"),
    "long texts": Experiment(
        "Short texts among articles",
        [
            served("batches as they come", Settings(2, 1, max_batch_items=64, max_run_tokens=0)),
            served("short ones first", Settings(2, 1, max_batch_items=64)),
            served("short ones first, small batches"),
        ],
        workloads=("short", WITH_ARTICLES, "mixed"),
        note="Of the workload with articles, the latencies are those of the titles.",
    ),
    "alternatives": Experiment(
        "Against what people would use otherwise",
        [FASTAPI, INFINITY, served("packed"), served("packed int8", precision="int8")],
    ),
}


@dataclass
class Outcome:
    """All rounds of one variant on one workload with so many requests in flight."""

    variant: str
    workload: Workload
    concurrency: int
    rounds: list[Measurement] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """Texts/s, the median of the rounds."""
        return float(np.median([measurement.throughput for measurement in self.rounds]))

    def latency_ms(self, percentile: float) -> float:
        """A percentile of the latencies that the workload reports, the median of the rounds."""
        return float(
            np.median([m.latency_ms(percentile, self.workload.reported) for m in self.rounds])
        )

    def processor_us(self) -> dict[str, float]:
        """Microseconds of processor time a text, by process, the median of the rounds."""
        return {
            name: float(np.median([m.processor_s[name] / m.count for m in self.rounds])) * 1e6
            for name in self.rounds[0].processor_s
        }

    @property
    def spread(self) -> float:
        """The fastest round's throughput over the slowest one's, minus 1."""
        rates = [measurement.throughput for measurement in self.rounds]
        return max(rates) / min(rates) - 1


def run(
    experiment: Experiment,
    repositories: Repositories,
    workloads: Sequence[Workload],
    *,
    rounds: int,
    seconds: float,
    progress: Callable[[str], None],
) -> list[Outcome]:
    """Runs all variants `rounds` times."""
    outcomes = {
        (variant.name, texts.name, concurrency): Outcome(variant.name, texts, concurrency)
        for texts in workloads
        for concurrency in experiment.concurrencies
        for variant in experiment.variants
    }
    for number in range(rounds):
        for variant in experiment.variants[:: 1 if number % 2 == 0 else -1]:
            with variant.start(repositories) as measure_with:
                for texts in workloads:
                    for concurrency in experiment.concurrencies:
                        found = measure_with(texts, concurrency, seconds)
                        outcomes[variant.name, texts.name, concurrency].rounds.append(found)
                        progress(
                            f"round {number + 1} of {rounds}, {variant.name}, {texts.name}, "
                            f"{concurrency} in flight: {found.throughput:.1f} texts/s, "
                            f"p99 {found.latency_ms(99, texts.reported):.0f} ms"
                        )
    return list(outcomes.values())
