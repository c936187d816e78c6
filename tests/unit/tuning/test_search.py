"""Which configuration is found, and what is never tried."""

import itertools

import pytest

from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.configuration import Settings
from text_pipeline.tuning.search import Point, Trial, layouts, search
from text_pipeline.tuning.tune import frontier, memory_is_free


def machine(settings: Settings) -> Trial:
    """A machine that likes two instances, small batches and no delay; p99 grows with the load."""
    rate = 100.0 * (1.5 if settings.instances == 2 else 1) * (2 if settings.version == 2 else 1)
    batch = settings.max_batch_items or 64
    delay = settings.queue_delay_us or 0
    points = (
        Point(settings, n, rate * min(n, 8) / 8 - delay / 100, n * (1 + batch / 64), True)
        for n in (1, 2, 4, 8, 16)
    )
    return Trial(settings, tuple(points))


def test_the_best_throughput_within_the_target_is_found() -> None:
    best, trials = search(machine, p99_ms=9.0, versions=[1, 2], cores=2, seconds=60)
    assert (best.settings.version, best.settings.instances, best.settings.threads) == (2, 2, 1)
    assert best.p99_ms <= 9.0
    met = [p for trial in trials for p in trial.points if p.p99_ms <= 9.0]
    assert best.texts_per_s == max(point.texts_per_s for point in met)


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 12, 64])
def test_the_cores_are_never_oversubscribed(cores: int) -> None:
    tried = []

    def record(settings: Settings) -> Trial:
        tried.append(settings)
        return machine(settings)

    search(record, p99_ms=100, versions=[1], cores=cores, seconds=60)
    assert all(s.instances * s.threads <= cores for s in tried)
    assert all((s.tokenizer_instances or 1) <= cores for s in tried)
    assert len(tried) == len(set(tried)), "nothing is measured twice"
    assert {instances for instances, _ in layouts(cores)} >= {1, cores}


def test_a_configuration_that_the_machine_cannot_hold_is_not_chosen() -> None:
    def small(settings: Settings) -> Trial | None:
        return machine(settings) if settings.instances == 1 else None

    best, trials = search(small, p99_ms=100, versions=[1], cores=2, seconds=60)
    assert best.settings.instances == 1
    assert {trial.settings.instances for trial in trials} == {1}


def test_no_configuration_is_begun_when_the_time_is_over() -> None:
    _, trials = search(machine, p99_ms=100, versions=[1, 2], cores=2, seconds=0)
    assert len(trials) == 1


def test_a_target_that_nothing_meets_is_an_error_with_the_best_that_there_was() -> None:
    with pytest.raises(TextPipelineError, match=r"p99 of 0\.5 ms.*lowest was 1\.1"):
        search(machine, p99_ms=0.5, versions=[1], cores=2, seconds=60)


def test_the_frontier_holds_what_nothing_beats() -> None:
    rates_and_p99s = [(10, 5.0), (20, 8.0), (15, 9.0), (30, 20.0), (30, 21.0)]
    points = tuple(Point(Settings(), 1, rate, p99, True) for rate, p99 in rates_and_p99s)
    found = [(p.texts_per_s, p.p99_ms) for p in frontier([Trial(Settings(), points)])]
    assert found == [(10, 5.0), (20, 8.0), (30, 20.0)]
    for one, other in itertools.pairwise(found):
        assert other > one


def test_a_fifth_of_every_gpu_stays_free() -> None:
    def metrics(*used: float) -> str:
        return "# TYPE nv_gpu_memory_used_bytes gauge\n" + "".join(
            f'nv_gpu_memory_used_bytes{{gpu_uuid="GPU-{n}"}} {value}\n'
            f'nv_gpu_memory_total_bytes{{gpu_uuid="GPU-{n}"}} 100.000000\n'
            for n, value in enumerate(used)
        )

    assert memory_is_free(metrics(10, 80))
    assert not memory_is_free(metrics(10, 80.5))
    assert memory_is_free("")
