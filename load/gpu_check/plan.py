"""The steps of the check, and which of them this machine can run."""

from collections.abc import Sequence
from functools import partial

from load.gpu_check import graph_steps, served_steps, suite
from load.gpu_check.found import DOCKER, GRAPHS, Found
from load.gpu_check.graph_steps import Graphs
from load.gpu_check.runner import Step
from load.gpu_check.served_steps import Served
from text_pipeline.repository.configuration import Settings

_GRAPHS = (("packed", "fp16"), ("packed", "fp32"), ("padded", "fp16"), ("padded", "fp32"))
_EXPORTS = (("packed", "fp16"), ("packed", "fp32"), ("padded", "fp16"))
# Beside the default: name, layout, precision (None: the default's), what is different.
_VARIANTS: tuple[tuple[str, str, str | None, Settings | str], ...] = (
    ("no batching", "packed", None, Settings(batching=False)),
    ("one instance", "packed", None, Settings(instances=1)),
    ("padded", "padded", None, Settings()),
    ("latency", "packed", None, "latency"),
    ("fp32", "packed", "fp32", Settings()),
)
_VARIANT_FIGURES = ("short requests/s", "mixed requests/s", "lone p50 ms")
_OF_DEFAULT = ("requests/s below 20 ms", "failures at 512", "first over hundredth ms",
               "GPU memory", "GPU memory by formula")  # fmt: skip


def steps(graphs: Graphs | None = None, served: Served | None = None) -> list[Step]:
    """All of them, those of the graphs first: what is wrong there explains much of the rest."""
    graphs, served = graphs or Graphs(), served or Served()
    return [*_graph_steps(graphs), *_served_steps(served)]


def _graph_steps(graphs: Graphs) -> list[Step]:
    found = [
        Step(
            f"graph {layout} {precision}",
            f"export the default model {layout} in {precision}, compare it with PyTorch, time it "
            f"in batches of {', '.join(map(str, graphs.sizes))}, and profile it",
            0.4, 180, partial(graph_steps.check, layout, precision, graphs), GRAPHS,
            graph_steps.figures(layout, precision),
        )
        for layout, precision in _GRAPHS
    ]  # fmt: skip
    return found + [
        Step(
            f"architectures in {precision}",
            f"packed graphs of tiny models against PyTorch: {', '.join(graphs.architectures)}",
            0.4, 180, partial(graph_steps.check_architectures, precision, graphs), GRAPHS,
            (f"architectures packed {precision} difference",),
        )
        for precision in ("fp16", "fp32")
    ]  # fmt: skip


def _served_steps(served: Served) -> list[Step]:
    found = [
        Step(
            f"export {layout} {precision}",
            f"export the default model {layout} in {precision} to a repository of its own",
            0.4, 240, partial(served_steps.export, layout, precision, served), DOCKER,
        )
        for layout, precision in _EXPORTS
    ]  # fmt: skip
    found += [
        Step(
            "image",
            "build the GPU image; where NVIDIA's is not there yet, it is pulled first, which takes "
            "as long as 10 GB take",
            0.8, 1200, partial(served_steps.image, served), DOCKER,
        ),
        Step(
            "default configuration",
            "start the server, send the first requests, then load: short and mixed texts, 1, 8 and "
            "64 a request, 1 to 512 requests in flight; GPU memory meanwhile",
            2.5, 480, partial(served_steps.measure_default, served), DOCKER,
            (*_OF_DEFAULT, *(f"default {figure}" for figure in _VARIANT_FIGURES)),
        ),
    ]  # fmt: skip
    found += [
        Step(
            f"variant {name}", f"the same server, changed: {name}; 1 and 64 requests in flight",
            0.4, 240,
            partial(served_steps.variant, name, layout, precision, change, served), DOCKER,
            tuple(f"{name} {figure}" for figure in _VARIANT_FIGURES),
        )
        for name, layout, precision, change in _VARIANTS
    ]  # fmt: skip
    found.append(
        Step(
            "integration suite",
            f"pytest --server {suite.SERVERS[served.device]} tests/integration, in a copy of this "
            "project with the exported model",
            2.5, 600, partial(suite.run, served.device, served.precision), DOCKER,
            ("suite failed", "suite passed"),
        )
    )  # fmt: skip
    return found


def possible(all_steps: Sequence[Step], found: Found) -> list[Step]:
    """Those for which nothing is missing."""
    return [step for step in all_steps if found.gpus and step.needs not in found.missing]


def lines(all_steps: Sequence[Step], found: Found) -> list[str]:
    """What would run here, and what is missing for the rest."""
    chosen = possible(all_steps, found)
    said = [f"GPU: {', '.join(found.gpus) or 'none'}"]
    if chosen:
        minutes = sum(step.minutes for step in chosen)
        said.append(f"form {found.form}; about {minutes:.0f} minutes:")
        said += [f"  {step.minutes:g} min  {step.name}: {step.shows}" for step in chosen]
    else:
        said.append("nothing would run here")
    for name, what in found.missing.items():
        names = ", ".join(step.name for step in all_steps if step.needs == name)
        said += [f"missing: {what}", f"  without it not: {names}"]
    return said
