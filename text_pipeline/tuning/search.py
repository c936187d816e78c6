"""Which configurations are tried, and in which order.

One setting after the other, in the order of their effect: precision, instances and threads, batch
size, queue delay, tokenizer instances. While one is varied, the others stay as they are in the best
configuration so far.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.configuration import Settings

BATCH_ITEMS = (4, 8, 12, 32, 64)
QUEUE_DELAYS_US = (0, 500, 2000)
GPU_INSTANCES = (1, 2, 3)
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)
"""More than 64 waiting requests are refused (text_tokenizer/configs/cpu.pbtxt)."""


@dataclass(frozen=True)
class Point:
    """What a configuration did with so many requests in flight."""

    settings: Settings
    concurrency: int
    texts_per_s: float
    p99_ms: float
    stable: bool


@dataclass(frozen=True)
class Trial:
    """One configuration at rising load, until its p99 missed the target."""

    settings: Settings
    points: tuple[Point, ...]

    def best(self, p99_ms: float) -> Point | None:
        """The most throughput whose p99 meets the target."""
        met = [point for point in self.points if point.p99_ms <= p99_ms]
        return max(met, key=lambda point: point.texts_per_s, default=None)


def layouts(cores: int) -> list[tuple[int, int]]:
    """(instances, threads) that use all cores, or nearly, and never more threads than cores."""
    powers_of_two = {2**n for n in range(cores.bit_length())}
    return [(instances, cores // instances) for instances in sorted(powers_of_two | {cores})]


def search(
    try_settings: Callable[[Settings], Trial | None],
    *,
    p99_ms: float,
    versions: Sequence[int],
    cores: int | None,
    seconds: float,
) -> tuple[Point, list[Trial]]:
    """The best point, and everything that was tried.

    `try_settings` measures a configuration, or returns None for one that this machine cannot hold.
    `cores` is None for a GPU. No new configuration is begun after `seconds`. Raises
    TextPipelineError when none meets the target.
    """
    deadline = time.monotonic() + seconds
    trials: list[Trial] = []
    best: Point | None = None
    tried: set[Settings] = set()
    for step in _steps(versions, cores):
        current = best.settings if best else _start(versions, cores)
        for settings in dict.fromkeys([current, *step(current)]):
            if settings in tried or (trials and time.monotonic() > deadline):
                continue
            tried.add(settings)
            trial = try_settings(settings)
            if trial is None:
                continue
            trials.append(trial)
            found = trial.best(p99_ms)
            if found and (best is None or found.texts_per_s > best.texts_per_s):
                best = found
    if best is None:
        lowest = min((point.p99_ms for trial in trials for point in trial.points), default=None)
        reached = "nothing could be measured" if lowest is None else f"the lowest was {lowest:.1f}"
        raise TextPipelineError(
            f"no configuration has a p99 of {p99_ms:g} ms or less with this workload, {reached}: "
            "allow more (--p99-ms), or cut texts earlier (max_tokens)"
        )
    return best, trials


Step = Callable[[Settings], Iterator[Settings]]


def _start(versions: Sequence[int], cores: int | None) -> Settings:
    if cores is None:
        return Settings(instances=2, version=versions[-1])
    instances, threads = layouts(cores)[-1]
    return Settings(instances=instances, threads=threads, version=versions[-1])


def _steps(versions: Sequence[int], cores: int | None) -> list[Step]:
    """What is varied, one after the other."""

    def version(current: Settings) -> Iterator[Settings]:
        return (replace(current, version=number) for number in versions)

    def instances(current: Settings) -> Iterator[Settings]:
        if cores is None:
            return (replace(current, instances=count) for count in GPU_INSTANCES)
        return (replace(current, instances=i, threads=t) for i, t in layouts(cores))

    def batch_items(current: Settings) -> Iterator[Settings]:
        return (replace(current, max_batch_items=items) for items in BATCH_ITEMS)

    def queue_delay(current: Settings) -> Iterator[Settings]:
        return (replace(current, queue_delay_us=us) for us in QUEUE_DELAYS_US)

    def tokenizers(current: Settings) -> Iterator[Settings]:
        return (replace(current, tokenizer_instances=n) for n in (1, 2) if n <= (cores or 2))

    return [version, instances, batch_items, queue_delay, tokenizers]
