"""The GPU image under load: exported models, a server by `docker compose`, and perf_analyzer."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from load import levels, watch
from load.gpu_check import compose, memory, warm_up
from load.gpu_check.claims import number
from load.gpu_check.record import Point, Record
from load.levels import Level
from text_pipeline.contract import CLASSIFIER, DEFAULT_MODEL, ENSEMBLE, MAX_TEXTS
from text_pipeline.default_model import corpus
from text_pipeline.errors import TextPipelineError
from text_pipeline.export.exporter import export_model
from text_pipeline.measure import workload
from text_pipeline.measure.statistics import ServerStatistics
from text_pipeline.repository import configuration
from text_pipeline.repository.configuration import Settings
from text_pipeline.repository.versions import Repository

LONE, BUSY, MOST = 1, 64, 512
"""Requests in flight."""
P99_MS = 20.0
COMPARED = 64
"""News texts that an export is checked with: whether the graph is right, its own step shows."""
NAMES = ["workload", "texts a request", "in flight", "texts/s", "p50 ms", "p95 ms", "p99 ms",
         "texts in a batch"]  # fmt: skip


class Watched(Protocol):
    """A running server: `host:port` of each endpoint."""

    @property
    def http_url(self) -> str: ...
    @property
    def grpc_url(self) -> str: ...
    @property
    def metrics_url(self) -> str | None: ...


@dataclass(frozen=True)
class Served:
    """What is served, and how it is measured."""

    device: str = "gpu"
    """compose.yaml's profile, the device of the export, and the configuration's name."""
    precision: str = "fp16"
    seconds: float = 1.5
    """Of each level."""
    concurrencies: Sequence[int] = (1, 4, 16, 64, 256, 512)
    start: Callable[[Path, str, str], AbstractContextManager[Watched]] = compose.ComposeServer


def repository_of(work: Path, layout: str, precision: str) -> Path:
    """Where a model that was exported lies for the steps after it."""
    return work / f"{layout}-{precision}"


def export(layout: str, precision: str, settings: Served, record: Record, work: Path) -> None:
    """Exports the default model for the device, for any user to read."""
    repository = repository_of(work, layout, precision)
    export_model(
        DEFAULT_MODEL, Repository(repository), layout=layout, device=settings.device,
        precision=precision, texts=corpus.mixed(COMPARED),
    )  # fmt: skip
    for path in (repository, *repository.rglob("*")):
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
    record.save()


def image(settings: Served, record: Record, _: Path) -> None:
    """Builds the image."""
    compose.build(settings.device)
    record.save()


def measure_default(settings: Served, record: Record, work: Path) -> None:
    """The configuration as it is: warm-up, levels of load, memory."""
    repository = repository_of(work, "packed", settings.precision)
    before = memory.in_use() if settings.device == "gpu" else {}
    with settings.start(repository, settings.device, settings.device) as server:
        warm_up.measure(server, record)
        with watch.watching(server.metrics_url) as samples:
            found = _sweep(server, settings, record)
            _figures("default", found, record)
            fast = [x.texts_per_s for x in found if _is(x, "short") and x.p99_ms <= P99_MS]
            record.figure("requests/s below 20 ms", max(fast, default=0))
            _level(server, "long", BUSY, 1, settings.seconds)  # the largest batches
    if settings.device == "gpu":
        record.figure("GPU memory", memory.growth_bytes(samples, before))
        record.figure("GPU memory by formula", _formula(repository, work))


def variant(
    name: str, layout: str, precision: str | None, change: Settings | str, settings: Served,
    record: Record, work: Path,
) -> None:  # fmt: skip
    """Another graph, or the configuration changed by Settings, or another one by its name."""
    repository = repository_of(work, layout, precision or settings.precision)
    if isinstance(change, str):
        chosen = change
        if not (repository / CLASSIFIER / "configs" / f"{change}.pbtxt").is_file():
            raise TextPipelineError(f"there is no configuration {change!r}")
    else:
        chosen = f"check-{name.replace(' ', '-')}"
        configuration.write(repository, chosen, change, base=settings.device)
    with settings.start(repository, chosen, settings.device) as server:
        found = []
        for texts, concurrency in (("short", LONE), ("short", BUSY), ("mixed", BUSY)):
            found.append(_level(server, texts, concurrency, 1, settings.seconds))
            record.table(f"Served: {name}", NAMES, [_row(level) for level in found])
            _figures(name, found, record)


def _sweep(server: Watched, settings: Served, record: Record) -> list[Level]:
    """All levels; one that fails becomes a row that says why."""
    found: list[Level] = []
    rows: list[list[str]] = []
    plan = [(name, c, 1) for name in ("short", "mixed") for c in settings.concurrencies]
    plan += [(name, c, n) for name in ("short", "mixed") for n in (8, 64)
             for c in (LONE, 8, BUSY) if c <= max(settings.concurrencies)]  # fmt: skip
    for name, concurrency, texts in plan:
        before = ServerStatistics.read(server.grpc_url)
        try:
            level = _level(server, name, concurrency, texts, settings.seconds)
        except TextPipelineError as error:
            rows.append([name, str(texts), str(concurrency), *[""] * 4, f"failed: {error}"])
        else:
            found.append(level)
            rows.append(_row(level))
            each = "text" if texts == 1 else "texts"
            record.point(Point("served", f"{name}, {texts} {each} a request", concurrency,
                               level.texts_per_s, level.p99_ms))  # fmt: skip
        if concurrency == MOST:
            failures = ServerStatistics.read(server.grpc_url).since(before)[ENSEMBLE].failures
            record.figure("failures at 512", record.figures.get("failures at 512", 0) + failures)
        record.table("Served: the default configuration", NAMES, rows)
    return found


def _level(server: Watched, name: str, concurrency: int, texts: int, seconds: float) -> Level:
    return levels.measure(
        server, _texts(name), concurrency=concurrency, seconds=seconds, texts_a_request=texts
    ).level


def _formula(repository: Path, work: Path) -> float:
    groups = configuration.read(repository, CLASSIFIER, "gpu").instance_group
    instances = sum(group.count for group in groups)
    return memory.formula_bytes(memory.default_model(work), MAX_TEXTS, instances)


@functools.cache
def _texts(name: str) -> workload.Workload:
    return workload.find(name)


def _row(level: Level) -> list[str]:
    return [
        level.workload, str(level.texts_a_request), str(level.concurrency),
        *(number(value) for value in (
            level.texts_per_s, level.p50_ms, level.p95_ms, level.p99_ms, level.mean_batch_size,
        )),
    ]  # fmt: skip


def _figures(name: str, found: Sequence[Level], record: Record) -> None:
    """What claims compare: requests of one text."""
    for level in found:
        for texts in ("short", "mixed"):
            if _is(level, texts) and level.concurrency == BUSY:
                record.figure(f"{name} {texts} requests/s", level.texts_per_s)
        if _is(level, "short") and level.concurrency == LONE:
            record.figure(f"{name} lone p50 ms", level.p50_ms)


def _is(level: Level, name: str) -> bool:
    return level.workload == name and level.texts_a_request == 1
