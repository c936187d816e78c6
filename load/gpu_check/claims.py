"""What this project says of GPUs, as data: each claim, how it is measured, and its limit.

Steps measure *figures*, numbers with a name; a claim is about one figure or the ratio of two.
"""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass

from text_pipeline.contract import DEFAULT_MIN_AGREEMENT, DEFAULT_TOLERANCES

AT_MOST, AT_LEAST = "at most", "at least"
_HOLDS = {AT_MOST: operator.le, AT_LEAST: operator.ge}
PASS, FAIL, NOT_RUN = "pass", "fail", "not run"

TINY_TOLERANCE = {"fp32": 1e-4, "fp16": 0.05}
"""Of tiny models, whose weights are large on purpose: as in tests/unit/export/test_gpu_graph.py."""


@dataclass(frozen=True)
class Claim:
    """One sentence that holds or does not."""

    name: str
    text: str
    how: str
    """How it is measured, for someone who was not there."""
    source: str
    """Where the project says so."""
    figure: str
    bound: str
    limit: float
    unit: str = ""
    over: str | None = None
    """The figure that `figure` is divided by; `unit` is then "x"."""

    @property
    def figures(self) -> tuple[str, ...]:
        """What has to be measured."""
        return (self.figure,) if self.over is None else (self.figure, self.over)

    @property
    def limit_in_words(self) -> str:
        """For example "at most 20 ms"."""
        return f"{self.bound} {number(self.limit)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Verdict:
    """A claim and what was found."""

    claim: Claim
    outcome: str
    """PASS, FAIL or NOT_RUN."""
    measured: float | None = None
    because: str = ""
    """Why it was not run, or the two figures of a ratio."""

    @property
    def measured_in_words(self) -> str:
        """With its unit, or why there is nothing."""
        if self.measured is None:
            return self.because
        words = f"{number(self.measured)} {self.claim.unit}".rstrip()
        return f"{words} ({self.because})" if self.because else words


def judge(claim: Claim, figures: Mapping[str, float], missing: Mapping[str, str]) -> Verdict:
    """The verdict by what was measured; `missing` says of figures why they were not."""
    for name in claim.figures:
        if name not in figures:
            return Verdict(claim, NOT_RUN, because=missing.get(name, "nothing here measures it"))
    measured, because = figures[claim.figure], ""
    if claim.over is not None:
        because = f"{number(measured)} against {number(figures[claim.over])}"
        if figures[claim.over] == 0:
            return Verdict(claim, NOT_RUN, because=f"{because}: no ratio")
        measured /= figures[claim.over]
    # NaN holds to no limit.
    outcome = PASS if _HOLDS[claim.bound](measured, claim.limit) else FAIL
    return Verdict(claim, outcome, measured, because)


def number(value: float) -> str:
    """Three digits, or all of an integer: 1250, 0.0034, 18.2."""
    is_whole = math.isfinite(value) and (abs(value) >= 100 or value == int(value))
    return f"{value:.0f}" if is_whole else f"{value:.3g}"


_AGREES = "README, Your own model: --min-agreement and --tolerance (text_pipeline/export/gate.py)"
_NODES = "text_pipeline/export: what the packed graph for GPU is built for"
_PROFILE = (
    "ONNX Runtime's profile of one run of 64 mixed texts, after others: {}. Copies of the graph's "
    "inputs and outputs are no nodes and not counted"
)
_BEGAN = (
    "what this project began with: batching took a T4 from 180 to 1,250 requests/s, p99 < 20 ms"
)
_CONFIG = "model_repository/text_classifier_onnx/config.pbtxt"
_LEVEL = "perf_analyzer over gRPC, short texts, one a request, 64 in flight: {}"


def _of_graph(layout: str, precision: str) -> list[Claim]:
    graph = f"{layout} {precision}"
    return [
        Claim(
            f"{graph}: difference",
            f"the {layout} graph in {precision} answers as PyTorch does in fp32",
            "the default model on mixed BBC news and odd texts, in batches of 16 and alone: the "
            "largest difference of any output (logits relative to the largest above 1)",
            _AGREES, f"{graph} difference", AT_MOST, DEFAULT_TOLERANCES[precision],
        ),
        Claim(
            f"{graph}: labels",
            f"the {layout} graph in {precision} gives PyTorch's labels",
            "the same texts: share whose best label is the same, in a batch and alone",
            _AGREES, f"{graph} agreement", AT_LEAST, DEFAULT_MIN_AGREEMENT,
        ),
    ]  # fmt: skip


def _of_placement(precision: str) -> list[Claim]:
    graph = f"packed {precision}"
    return [
        Claim(
            f"{graph}: nodes on the CPU",
            f"of the packed graph in {precision} only the labels' lookup runs on the CPU",
            _PROFILE.format("nodes of CPUExecutionProvider, without those that only compute shapes "
                            "(integers of at most 8 elements)"),
            _NODES, f"{graph} nodes on the CPU", AT_MOST, 1,
        ),
        Claim(
            f"{graph}: waits",
            f"a run of the packed graph in {precision} waits for the device twice at most",
            _PROFILE.format("nodes after which the host knows a value of the device (MemcpyToHost, "
                            "NonZero, Compress)"),
            _NODES, f"{graph} waits", AT_MOST, 2,
        ),
    ]  # fmt: skip


def _of_architectures(precision: str) -> Claim:
    return Claim(
        f"architectures: packed {precision}",
        f"packed graphs of other architectures answer as PyTorch does, in {precision}",
        "tiny random models (tests/tiny_models.py) of several architectures: largest difference",
        "README, How it works: the architectures that are packed",
        f"architectures packed {precision} difference", AT_MOST, TINY_TOLERANCE[precision],
    )  # fmt: skip


_SPEED = "the graph alone, tokenized beforehand, batches of 64 mixed BBC texts: texts/s, {}"

CLAIMS: tuple[Claim, ...] = (
    *(c for layout in ("packed", "padded") for p in ("fp16", "fp32") for c in _of_graph(layout, p)),
    *(_of_architectures(precision) for precision in ("fp16", "fp32")),
    *(claim for precision in ("fp16", "fp32") for claim in _of_placement(precision)),
    Claim(
        "packing is faster", "a batch of mixed lengths is faster packed than padded",
        _SPEED.format("packed over padded, fp16"),
        "README, How it works: a batch of mixed lengths costs what its tokens cost",
        "packed fp16 mixed by 64", AT_LEAST, 1, "x", over="padded fp16 mixed by 64",
    ),
    Claim(
        "fp16 is faster", "fp16, the default on GPU, is faster than fp32",
        _SPEED.format("packed fp16 over packed fp32"), "README, Device and precision",
        "packed fp16 mixed by 64", AT_LEAST, 1, "x", over="packed fp32 mixed by 64",
    ),
    Claim(
        "suite: failed", "the integration suite passes against the GPU image",
        "pytest --server gpu tests/integration, with the default model in fp16: tests that failed",
        "README, What is tested", "suite failed", AT_MOST, 0,
    ),
    Claim(
        "suite: passed", "the integration suite ran", "the same: tests that passed",
        "README, What is tested", "suite passed", AT_LEAST, 1,
    ),
    Claim(
        "requests/s below 20 ms",
        "the service answers 1,250 requests a second with a p99 below 20 ms",
        "perf_analyzer over gRPC, short texts, one a request, 1 to 512 in flight, the default "
        "configuration in fp16: most requests/s of a level whose p99 is at most 20 ms",
        _BEGAN, "requests/s below 20 ms", AT_LEAST, 1250, "requests/s",
    ),
    Claim(
        "batching is faster", "dynamic batching answers more requests a second than none",
        _LEVEL.format("the default configuration over the same without dynamic_batching"),
        _BEGAN, "default short requests/s", AT_LEAST, 1, "x",
        over="no batching short requests/s",
    ),
    Claim(
        "two instances", "two instances answer as many requests a second as one, or more",
        _LEVEL.format("the default configuration over the same with one instance"),
        f"{_CONFIG}: one copies tensors in and out while the other computes",
        "default short requests/s", AT_LEAST, 1, "x", over="one instance short requests/s",
    ),
    Claim(
        "packing serves more", "packed, the service answers more mixed texts than padded",
        "perf_analyzer over gRPC, mixed texts, one a request, 64 in flight, fp16: requests/s",
        "README, How it works: a batch of mixed lengths costs what its tokens cost",
        "default mixed requests/s", AT_LEAST, 1, "x", over="padded mixed requests/s",
    ),
    Claim(
        "latency configuration", "the configuration `latency` answers a lone request sooner",
        "perf_analyzer over gRPC, short texts, 1 in flight: p50 of `latency` over the default's",
        "configs/latency.pbtxt: no delay", "latency lone p50 ms", AT_MOST, 1, "x",
        over="default lone p50 ms",
    ),
    Claim(
        "nothing is refused", "1,024 requests may wait: of 512 in flight none is refused",
        "the same levels with 512 in flight: requests that the server refused or failed",
        "README, The protocol: on GPU 1024 wait", "failures at 512", AT_MOST, 0,
    ),
    Claim(
        "GPU memory", "the manual's formula is an upper estimate of the GPU memory",
        "nv_gpu_memory_used_bytes at its highest under long texts, 64 in flight, less what was in "
        "use before the server started, over the formula for the default model and two instances",
        "README, GPUs and memory", "GPU memory", AT_MOST, 1, "x", over="GPU memory by formula",
    ),
    Claim(
        "warm-up", "the first request after ready is as fast as later ones",
        "requests of 1, 8 and 64 texts: how much longer the first takes than the hundredth, the "
        "worst of the three; the limit is the p99 that is asked for",
        f"{_CONFIG}: model_warmup", "first over hundredth ms", AT_MOST, 20, "ms",
    ),
)  # fmt: skip
"""In the order of the report."""
