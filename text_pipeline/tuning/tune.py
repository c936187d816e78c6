"""`text-pipeline tune`: measures configurations on servers of its own and writes the best one."""

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from text_pipeline.client import rest
from text_pipeline.contract import CLASSIFIER
from text_pipeline.measure import perf_analyzer
from text_pipeline.measure.measurement import TOLERANCE
from text_pipeline.measure.perf_analyzer import Load
from text_pipeline.measure.workload import Workload
from text_pipeline.repository import configuration
from text_pipeline.repository.configuration import Settings
from text_pipeline.repository.versions import Repository
from text_pipeline.server import probe
from text_pipeline.server.cores import usable_cores
from text_pipeline.server.tritonserver import EmbeddedServer
from text_pipeline.tuning.search import CONCURRENCIES, Point, Trial, search

NAME = "tuned"
FREE_GPU_MEMORY = 0.2
"""Share of a GPU's memory that a configuration must leave free, at its highest load."""
_WARM_UP = 40
# nv_gpu_memory_used_bytes{gpu_uuid="…"} 123
_METRIC = re.compile(r"^(nv_gpu_memory_(?:used|total)_bytes)\{gpu_uuid=\"([^\"]+)\"\} (\S+)$", re.M)


def tune(
    repository: Repository,
    workload: Workload,
    *,
    p99_ms: float,
    base: str,
    minutes: float,
    level_seconds: float,
    triton: Path | None,
    progress: Callable[[str], None],
) -> tuple[Point, list[Trial]]:
    """Finds the best configuration and writes it as `configs/tuned.pbtxt`.

    `base` is the configuration that is varied: "cpu", or "gpu" for config.pbtxt. Each level of load
    takes about `level_seconds`. The repository is measured as a copy; only the result is written to
    it. Raises TextPipelineError when no configuration meets the target.
    """
    repository.check()
    on_gpu = any(
        group.kind == group.KIND_GPU
        for group in configuration.read(repository.path, CLASSIFIER, base).instance_group
    )
    with tempfile.TemporaryDirectory(prefix="text-pipeline-tune-") as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(repository.path, copy)

        def measure(settings: Settings) -> Trial | None:
            configuration.write(copy, NAME, settings, base=base)
            with EmbeddedServer(copy, model_config_name=NAME, triton=triton) as server:
                return _trial(server, settings, workload, p99_ms, level_seconds, progress)

        best, trials = search(
            measure,
            p99_ms=p99_ms,
            versions=repository.versions(),
            cores=None if on_gpu else usable_cores(),
            seconds=minutes * 60,
        )
    comment = (
        f"Written by text-pipeline tune on {time.strftime('%Y-%m-%d')} for a p99 of {p99_ms:g} ms: "
        f"{best.texts_per_s:.0f} texts/s\nof the workload {workload.name} with {best.concurrency} "
        f"requests in flight, p99 {best.p99_ms:.1f} ms. Base: {base}; changed: {best.settings}.\n"
        f"Load it with --model-config-name={NAME}."
    )
    configuration.write(repository.path, NAME, best.settings, base=base, comment=comment)
    return best, trials


def _trial(
    server: EmbeddedServer,
    settings: Settings,
    workload: Workload,
    p99_ms: float,
    level_seconds: float,
    progress: Callable[[str], None],
) -> Trial | None:
    """Raises the load until the p99 misses the target or throughput no longer grows."""
    points: list[Point] = []
    warm = perf_analyzer.run(workload.texts, Load(_WARM_UP, concurrency=1), server)
    per_s = warm.requests.throughput
    for concurrency in CONCURRENCIES:
        requests = workload.requests(per_s, level_seconds, concurrency)
        load = Load(requests, concurrency=concurrency)
        found = perf_analyzer.run(workload.texts, load, server).requests
        per_s = found.throughput
        p99 = found.latency_ms(99, workload.reported)
        points.append(Point(settings, concurrency, per_s, p99, found.spread <= TOLERANCE))
        progress(f"{settings}: {concurrency} in flight, {per_s:.1f} texts/s, p99 {p99:.1f} ms")
        if not leaves_memory(server):
            progress(f"{settings}: less than {FREE_GPU_MEMORY:.0%} of a GPU's memory is free")
            return None
        # A last level beside the target shows the frontier.
        if p99 > p99_ms or (len(points) > 1 and per_s < 0.95 * points[-2].texts_per_s):
            break
    return Trial(settings, tuple(points))


def leaves_memory(server: EmbeddedServer) -> bool:
    """Whether every GPU that the server's metrics show has FREE_GPU_MEMORY left."""
    _, metrics = rest.request(server.metrics_url, probe.TIMEOUT_S, "GET", "/metrics")
    return memory_is_free(metrics)


def memory_is_free(metrics: str) -> bool:
    """The same for the text of Triton's metrics; without a GPU there is nothing to fill."""
    gpus: dict[str, dict[str, float]] = {}
    for name, gpu, value in _METRIC.findall(metrics):
        gpus.setdefault(gpu, {})[name] = float(value)
    return all(
        memory["nv_gpu_memory_used_bytes"]
        <= (1 - FREE_GPU_MEMORY) * memory["nv_gpu_memory_total_bytes"]
        for memory in gpus.values()
    )


def frontier(trials: Sequence[Trial]) -> list[Point]:
    """The points that no other one beats in both throughput and p99, by rising p99."""
    points = sorted((p for t in trials for p in t.points), key=lambda p: (p.p99_ms, -p.texts_per_s))
    best: list[Point] = []
    for point in points:
        if not best or point.texts_per_s > best[-1].texts_per_s:
            best.append(point)
    return best
