"""A load run as a folder: Markdown, CSV and plots, with the machine and the exact commands."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from load.experiments import Experiment, Outcome
from load.levels import Level, Measured
from text_pipeline.files import markdown
from text_pipeline.measure.measurement import TOLERANCE

UNSTABLE = " (unstable)"
_SHARES = {
    "tokenizer": "tokenizer_ms",
    "queue": "queue_ms",
    "classifier": "compute_ms",
    "ensemble": "ensemble_ms",
    "client and protocol": "network_ms",
}


def write_sweep(
    folder: Path,
    measured: Sequence[Measured],
    skipped: Sequence[str],
    machine: Mapping[str, str],
    commands: Sequence[str],
) -> str:
    """Writes levels.csv, report.md, commands.txt and plots; returns the Markdown."""
    levels = [m.level for m in measured]
    _write_csv(folder / "levels.csv", [asdict(level) for level in levels])
    (folder / "commands.txt").write_text("\n".join(commands) + "\n", encoding="utf-8")
    plots = _sweep_plots(folder, measured)
    text = _document(
        "Load run",
        machine,
        [_level_table(levels), *(f"Not measured: {line}" for line in skipped), *plots],
    )
    (folder / "report.md").write_text(text, encoding="utf-8")
    return text


def write_experiment(
    folder: Path, name: str, experiment: Experiment, outcomes: Sequence[Outcome],
    machine: Mapping[str, str], rounds: int,
) -> str:  # fmt: skip
    """Writes NAME.csv, NAME.md and NAME.png; returns the Markdown."""
    rows = [
        {
            "variant": outcome.variant,
            "workload": outcome.workload.name,
            "concurrency": outcome.concurrency,
            "round": number,
            "requests": found.count,
            "texts_per_s": found.throughput,
            **{f"p{p}_ms": found.latency_ms(p, outcome.workload.reported) for p in (50, 95, 99)},
            **{f"{name}_processor_s": s for name, s in found.processor_s.items()},
        }
        for outcome in outcomes
        for number, found in enumerate(outcome.rounds, start=1)
    ]
    _write_csv(folder / f"{name}.csv", rows)
    _bars(outcomes).savefig(folder / f"{name}.png", dpi=110)
    note = (
        f"{experiment.note} Medians of {rounds} interleaved rounds; ratios are to the first row of "
        "each group."
    ).strip()
    table = _outcome_table(outcomes, experiment.shows_processor_time)
    plot = f"![{experiment.title}]({name}.png)"
    text = _document(experiment.title, machine, [note, table, plot])
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return text


def _document(title: str, machine: Mapping[str, str], parts: Sequence[str]) -> str:
    named = ", ".join(f"{name} {value}" for name, value in machine.items())
    return "\n\n".join([f"# {title}", *parts, f"Machine: {named}."]) + "\n"


def _level_table(levels: Sequence[Level]) -> str:
    rows = [
        [
            f"{level.workload}, {level.protocol}",
            level.load,
            f"{level.texts_per_s:.1f}{'' if level.stable else UNSTABLE}",
            *(f"{ms:.1f}" for ms in (level.p50_ms, level.p95_ms, level.p99_ms)),
            f"{level.mean_batch_size:.1f}",
            *(f"{getattr(level, field):.1f}" for field in _SHARES.values()),
        ]
        for level in levels
    ]
    names = ["workload", "load", "texts/s", "p50 ms", "p95 ms", "p99 ms", "texts in a batch"]
    return markdown.table([*names, *(f"{share} ms" for share in _SHARES)], rows, words=2)


def _outcome_table(outcomes: Sequence[Outcome], shows_processor_time: bool) -> str:
    rows = []
    first: dict[tuple[str, int], Outcome] = {}
    for outcome in outcomes:
        base = first.setdefault((outcome.workload.name, outcome.concurrency), outcome)
        rate, p99 = outcome.throughput, outcome.latency_ms(99)
        rows.append([
            f"{outcome.workload.name}, {outcome.concurrency} in flight",
            outcome.variant,
            f"{rate:.1f}{UNSTABLE if outcome.spread > TOLERANCE else ''}",
            f"{rate / base.throughput:.2f}",
            *(f"{outcome.latency_ms(percentile):.1f}" for percentile in (50, 95)),
            f"{p99:.1f}",
            f"{p99 / base.latency_ms(99):.2f}",
            *(f"{us:.0f}" for us in outcome.processor_us().values() if shows_processor_time),
        ])  # fmt: skip
    names = ["workload", "variant", "texts/s", "ratio", "p50 ms", "p95 ms", "p99 ms", "ratio"]
    if shows_processor_time:
        names += [f"{name} us" for name in outcomes[0].processor_us()]
    return markdown.table(names, rows, words=2)


def _write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _sweep_plots(folder: Path, measured: Sequence[Measured]) -> list[str]:
    """Draws what there is data for; returns the Markdown that shows the plots."""
    groups: dict[str, list[Measured]] = {}
    for m in measured:
        kind = "" if m.level.rate is None else ", open loop"
        groups.setdefault(f"{m.level.workload}, {m.level.protocol}{kind}", []).append(m)
    closed = {name: ms for name, ms in groups.items() if ms[0].level.rate is None}
    plots: dict[str, Callable[[Axes], None]] = {}
    if closed:
        plots["throughput"] = lambda axes: _throughput_plot(axes, closed)
    plots["latency"] = lambda axes: _latency_plot(axes, groups)
    plots["batches"] = lambda axes: _batch_plot(axes, groups)
    plots["time"] = lambda axes: _time_plot(axes, measured)
    figure = Figure(figsize=(11, 8), layout="constrained")
    for axes, draw in zip(figure.subplots(2, 2).flat, plots.values(), strict=False):
        draw(axes)
    for axes in list(figure.axes)[len(plots) :]:
        axes.remove()
    figure.savefig(folder / "report.png", dpi=110)
    return ["![throughput, latency, batch sizes, and where the time goes](report.png)"]


def _throughput_plot(axes: Axes, groups: Mapping[str, Sequence[Measured]]) -> None:
    for name, ms in groups.items():
        axes.plot(
            [m.level.concurrency or 0 for m in ms],
            [m.level.texts_per_s for m in ms],
            "o-",
            label=name,
        )
    axes.set(xlabel="requests in flight", ylabel="texts/s", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.get_xaxis().set_major_formatter("{x:.0f}")
    _finish(axes, "Throughput")


def _latency_plot(axes: Axes, groups: Mapping[str, Sequence[Measured]]) -> None:
    for number, (name, ms) in enumerate(groups.items()):
        for percentile, style in (("p50", ":"), ("p95", "--"), ("p99", "-")):
            axes.plot(
                [m.level.texts_per_s for m in ms],
                [getattr(m.level, f"{percentile}_ms") for m in ms],
                style, marker=".", color=f"C{number}",
                label=name if percentile == "p99" else None,
            )  # fmt: skip
    axes.set(xlabel="texts/s", ylabel="ms (p50 dotted, p95 dashed, p99 solid)", yscale="log")
    _finish(axes, "Latency over throughput")


def _batch_plot(axes: Axes, groups: Mapping[str, Sequence[Measured]]) -> None:
    """How many of the texts ran in batches of each size or smaller, at the group's highest load."""
    for name, ms in groups.items():
        sizes = Counter(ms[-1].batch_sizes)
        texts = sum(size * count for size, count in sizes.items())
        ordered = sorted(sizes)
        shares = [sum(s * sizes[s] for s in ordered if s <= size) / texts for size in ordered]
        axes.step(ordered, shares, where="post", label=name)
    axes.set(xlabel="texts in the batch", ylabel="share of texts", ylim=(0, 1.02))
    _finish(axes, "Batch sizes at the highest load")


def _time_plot(axes: Axes, measured: Sequence[Measured]) -> None:
    names = [
        f"{m.level.workload} {m.level.concurrency or f'{m.level.rate:.0f}/s'}" for m in measured
    ]
    left = [0.0] * len(measured)
    for share, field in _SHARES.items():
        parts = [getattr(m.level, field) / m.level.mean_ms * 100 for m in measured]
        axes.barh(names, parts, left=left, label=share)
        left = [a + b for a, b in zip(left, parts, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel="% of the time a caller waits", xlim=(0, 100))
    _finish(axes, "Where the time goes")


def _bars(outcomes: Sequence[Outcome]) -> Figure:
    """Texts/s of every variant, a panel for each workload and concurrency."""
    panels: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        panels.setdefault(f"{outcome.workload.name}, {outcome.concurrency} in flight", []).append(
            outcome
        )
    height = 0.8 + 0.35 * max(map(len, panels.values()))
    figure = Figure(figsize=(4.5 * len(panels) + 1, height + 0.6), layout="constrained")
    for axes, (title, group) in zip(
        figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels.items(), strict=True
    ):
        rates = [outcome.throughput for outcome in group]
        rounds = [[m.throughput for m in outcome.rounds] for outcome in group]
        low = [rate - min(found) for rate, found in zip(rates, rounds, strict=True)]
        high = [max(found) - rate for rate, found in zip(rates, rounds, strict=True)]
        bars = axes.barh([o.variant for o in group], rates, xerr=[low, high], capsize=3)
        axes.bar_label(bars, fmt="%.0f", padding=6)
        axes.set(title=title, xlabel="texts/s", xlim=(0, max(rates) * 1.25))
    figure.axes[0].invert_yaxis()
    return figure


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def write_machine(folder: Path, machine: Mapping[str, str]) -> None:
    """machine.json."""
    (folder / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
