"""The gate: an exported graph is published only if it answers real texts as PyTorch does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from text_pipeline.contract import TENSOR_OUTPUTS, TOKEN_INPUTS
from text_pipeline.errors import ExportRejectedError, TextPipelineError
from text_pipeline.export.heads import PaddedClassifier
from text_pipeline.export.progress import Track
from text_pipeline.export.session import open_session
from text_pipeline.export.source import Source

if TYPE_CHECKING:
    import onnxruntime
    from transformers import PreTrainedTokenizerFast

# A rounding error shows in a few texts; how many labels it turns, only in many: of 300 texts, each
# is a third of the 1 % that may be turned.
REAL_TEXTS = {"fp32": 64, "fp16": 300, "int8": 1000}
# What real news does not hold: the shortest inputs, symbols, other scripts, typed special tokens.
ODD_TEXTS = (
    "",
    "a",
    "🙂🙃 ok",
    "Ünïcödé — naïve façade",
    "שלום עולם",
    "新闻 分类",
    "[SEP] [PAD] </s> <pad>",
)
BATCH_SIZE = 16
ALONE = 64
"""Texts, or a few more, that are compared alone, too: whether neighbours matter shows in a few."""
ASKED = 16
"""Texts, or a few more, that show whether a model answers at all."""
REFERENCE_TOLERANCE = 0.01
"""How far a reference graph may be from PyTorch, as a part of the tolerance of what it checks."""
CONSTANT = 1e-6
"""Logits that differ by less, as a part of the largest, are the same: fp32's rounding."""

Text = str | tuple[str, str]
Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class GateReport:
    """How far the graph is from PyTorch in fp32 over all texts in mixed batches, and some alone."""

    texts: int
    label_agreement: float
    """Share of texts whose best label is the same."""
    max_difference: dict[str, float]
    """Largest absolute difference of each output; logits relative to the largest if above 1."""
    tolerance: float
    min_agreement: float
    worst_text: str

    @property
    def passed(self) -> bool:
        """Enough labels the same and no output further away than the tolerance."""
        return (
            self.label_agreement >= self.min_agreement
            and max(self.max_difference.values()) <= self.tolerance
        )

    def __str__(self) -> str:
        differences = ", ".join(f"{n} {d:.2g}" for n, d in self.max_difference.items())
        return (
            f"{self.label_agreement:.1%} of {self.texts} labels agree; "
            f"largest differences: {differences}"
        )


def check_model(source: Source, texts: Sequence[str]) -> None:
    """Raises TextPipelineError if PyTorch itself answers nothing, or everything the same."""
    asked = texts[:: max(1, len(texts) // ASKED)]
    logits = np.stack([outputs["logits"] for outputs in pytorch_outputs(source, asked)])
    if not np.isfinite(logits).all():
        raise TextPipelineError(
            "the model's logits are not numbers (NaN or infinite), in PyTorch, too: its weights "
            "are broken; train it or download it again"
        )
    spread = np.ptp(logits, axis=0).max()
    if len(asked) > 1 and spread <= CONSTANT * max(1.0, np.abs(logits).max()):
        raise TextPipelineError(
            f"the model's logits are the same for {len(asked)} texts, in PyTorch, too: it has "
            "learnt nothing, or its weights are lost; train it or download it again"
        )


def check(
    source: Source,
    graph: Path,
    texts: Sequence[str],
    tolerance: float,
    min_agreement: float,
    track: Track,
    reference: Path | None = None,
    device: str = "cpu",
) -> GateReport:
    """Compares a graph with PyTorch; raises ExportRejectedError with the worst text.

    `device` is what the graph runs on, "cpu" or "gpu". `reference` is the same graph in fp32, for
    CPU. If it is given, a few texts are compared between it and PyTorch, and all between the two
    graphs: it gives PyTorch's answers in 0.6 of the time.
    """
    if reference is not None:
        few = [texts[index] for index in spread(texts)]
        limit = REFERENCE_TOLERANCE * tolerance
        of_reference = compare(source, reference, few, limit, min_agreement, track)
        _require(of_reference, "before it is quantized, the graph differs from PyTorch")
    report = compare(source, graph, texts, tolerance, min_agreement, track, reference, device)
    return _require(report, "the graph differs from PyTorch")


def _require(report: GateReport, otherwise: str) -> GateReport:
    if not report.passed:
        raise ExportRejectedError(
            f"{otherwise}: {report} (limits: agreement {report.min_agreement:.1%}, "
            f"difference {report.tolerance:g}), worst for the text {report.worst_text[:80]!r}"
        )
    return report


def compare(
    source: Source,
    graph: Path,
    texts: Sequence[str],
    tolerance: float,
    min_agreement: float,
    track: Track,
    reference: Path | None = None,
    device: str = "cpu",
) -> GateReport:
    """The report over `texts`, as they come; passes or fails, never raises."""
    alone = spread(texts)
    session = open_session(graph, device)
    of_reference = (
        pytorch_outputs(source, texts)
        if reference is None
        else graph_outputs(open_session(reference), source, texts, BATCH_SIZE)
    )
    of_graph = (
        graph_outputs(session, source, texts, BATCH_SIZE),
        graph_outputs(session, source, [texts[index] for index in alone], 1),
    )
    answers = track(chain(of_reference, *of_graph), 2 * len(texts) + len(alone))
    expected = list(islice(answers, len(texts)))
    worst = dict.fromkeys(TENSOR_OUTPUTS, 0.0)
    worst_text, worst_badness = "", -1.0
    agreed = [True] * len(texts)
    for index, found in zip(chain(range(len(texts)), alone), answers, strict=True):
        same_label = _same_best_label(source, expected[index], found)
        agreed[index] &= same_label
        distances = {name: _distance(expected[index][name], found[name]) for name in TENSOR_OUTPUTS}
        worst = {name: max(worst[name], distances[name]) for name in TENSOR_OUTPUTS}
        badness = max(distances.values()) + (not same_label)
        if badness > worst_badness:
            worst_text, worst_badness = texts[index], badness
    agreement = float(np.mean(agreed))
    return GateReport(len(texts), agreement, worst, tolerance, min_agreement, worst_text)


def spread(texts: Sequence[str]) -> list[int]:
    """Indices of about ALONE texts of all lengths, the shortest among them."""
    by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    return by_length[:: max(1, len(texts) // ALONE)]


def gate_texts(source: Source, real_texts: Sequence[str]) -> list[str]:
    """Real texts and odd ones, without those of no tokens."""
    texts = [*real_texts, *ODD_TEXTS]
    return [text for text in texts if source.tokenizer(text)["input_ids"]]


def pytorch_outputs(source: Source, texts: Sequence[Text]) -> Iterator[Outputs]:
    """What PyTorch answers to every text or sentence pair alone, without padding."""
    heads = PaddedClassifier(source).eval()
    for text in texts:
        encoded = source.tokenizer(
            *columns([text]), truncation=True, max_length=source.max_tokens, return_tensors="pt"
        )
        mask = encoded["attention_mask"]
        types = encoded.get("token_type_ids", torch.zeros_like(mask))
        with torch.inference_mode():
            outputs = heads(encoded["input_ids"], mask, types)
        yield {n: o[0].numpy() for n, o in zip(TENSOR_OUTPUTS, outputs, strict=False)}


def graph_outputs(
    session: "onnxruntime.InferenceSession", source: Source, texts: Sequence[str], batch_size: int
) -> Iterator[Outputs]:
    """What the graph answers to every text, `batch_size` texts at a time in the given order."""
    names = ["labels", *TENSOR_OUTPUTS]
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        feed = ragged_feed(source.tokenizer, batch, source.max_tokens)
        try:
            outputs = session.run(names, feed)
        except Exception as error:  # ONNX Runtime's have no class of their own in common
            lengths = feed["item_length"]
            raise ExportRejectedError(
                f"the graph cannot run {len(batch)} texts of {lengths.min()} to {lengths.max()} "
                f"tokens; has its exporter fixed a dimension? ({error})"
            ) from error
        for row in range(len(batch)):
            yield {name: output[row] for name, output in zip(names, outputs, strict=True)}


def ragged_feed(
    tokenizer: "PreTrainedTokenizerFast", texts: Sequence[str], max_tokens: int
) -> dict[str, np.ndarray]:
    """The graph's inputs as Triton makes them of single-text requests: flat, and every length."""
    encoded = tokenizer(list(texts), truncation=True, max_length=max_tokens)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    zeros = [[0] * length for length in lengths]
    feed = {
        name: np.concatenate([np.asarray(row, np.int64) for row in encoded.get(name, zeros)])
        for name in TOKEN_INPUTS
    }
    return feed | {"item_length": np.array(lengths, np.int32)}


def single_feeds(source: Source, texts: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
    """The graph's inputs for every text alone."""
    for text in texts:
        yield ragged_feed(source.tokenizer, [text], source.max_tokens)


def columns(texts: Sequence[Text]) -> list[list[str]]:
    """Texts, or first and second segments, as a tokenizer takes a batch.

    Given one by one, transformers takes a pair with an empty second segment for a single text.
    """
    rows = [(text,) if isinstance(text, str) else text for text in texts]
    return [list(column) for column in zip(*rows, strict=True)]


def _same_best_label(source: Source, expected: Mapping, found: Mapping) -> bool:
    return found["labels"][0] == source.labels[int(np.argmax(expected["logits"]))]


def _distance(expected: np.ndarray, found: np.ndarray) -> float:
    """Largest absolute difference, relative to the largest expected value where that exceeds 1."""
    distance = float(np.abs(expected - found).max() / max(1.0, np.abs(expected).max()))
    # NaN would be no larger than any limit.
    return distance if np.isfinite(distance) else float("inf")
