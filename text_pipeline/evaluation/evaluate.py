"""One pass through the data: every text goes to all models, and their answers are scored."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import tee
from typing import Any

from text_pipeline.client.head import REGRESSION, Head
from text_pipeline.client.pipeline import Classification, PipelineClient
from text_pipeline.errors import TextPipelineError
from text_pipeline.evaluation.comparison import Comparison, compare
from text_pipeline.evaluation.scores import Scores
from text_pipeline.evaluation.tasks import Task, task_of
from text_pipeline.files.records import Record, RecordFile, text_of

Answers = tuple[Classification, ...]


@dataclass(frozen=True)
class Evaluated:
    """One model's answers."""

    name: str
    """What tells it from the other one."""
    url: str
    version: int
    answers: Sequence[Any]
    """In the task's form."""
    cut: int
    """Texts that were longer than the limit."""
    scores: Scores


@dataclass(frozen=True)
class Evaluation:
    """What came out: one model, or two and how they differ."""

    data: str
    """The file's name."""
    head: Head
    task: Task
    lines: Sequence[int]
    """The line in the data that each target is on."""
    targets: Sequence[Any]
    models: Sequence[Evaluated]
    comparison: Comparison | None

    @property
    def absent_labels(self) -> list[str]:
        """The model's labels that no text of the data has."""
        if self.head.kind == REGRESSION:
            return []
        present = {found.label for found in self.models[0].scores.classes if found.support}
        return [label for label in self.head.labels if label not in present]

    @property
    def changed(self) -> int:
        """Texts that the second model answers otherwise than the first."""
        first, second = (map(self.task.decision, model.answers) for model in self.models)
        return sum(a != b for a, b in zip(first, second, strict=True))


def evaluate(
    source: RecordFile,
    clients: Sequence[PipelineClient],
    *,
    progress: Callable[[Iterable[Answers]], Iterator[Answers]],
    **options: Any,
) -> Evaluation:
    """Asks one model, or two to compare, about the labelled texts of a file.

    `options` are those of `PipelineClient.classify`; `progress` passes on what it gets. Raises
    TextPipelineError with the line's number for a record whose label the model cannot give.
    """
    versions = [client.version_asked() for client in clients]
    heads = [client.head() for client in clients]
    task = task_of(heads)
    lines: list[int] = []
    targets: list[Any] = []
    answers: list[list[Any]] = [[] for _ in clients]
    cut = [0] * len(clients)
    with ExitStack() as stack:
        copies = tee(_labelled(source, task, lines, targets), len(clients))
        streams = [
            stack.enter_context(closing(client.classify(map(text_of, records), **options)))
            for client, records in zip(clients, copies, strict=True)
        ]
        for row in progress(zip(*streams, strict=True)):
            for number, answer in enumerate(row):
                answers[number].append(task.answer(answer))
                cut[number] += answer.truncated
    if not targets:
        raise TextPipelineError(f"{source.path}: no texts; expected lines with text and label")
    scores = [task.scores(targets, found) for found in answers]
    models = [
        Evaluated(
            _name(clients, versions, n), client.url, versions[n], answers[n], cut[n], scores[n]
        )
        for n, client in enumerate(clients)
    ]
    comparison = compare(*scores) if len(models) > 1 else None
    return Evaluation(source.path, heads[0], task, lines, targets, models, comparison)


def _labelled(
    source: RecordFile, task: Task, lines: list[int], targets: list[Any]
) -> Iterator[Record]:
    """Passes the records on; those that were read are noted in `lines` and `targets`."""
    for record in source:
        try:
            targets.append(task.target(record.get("label")))
        except ValueError as error:
            raise TextPipelineError(f"{source.where}: {error}") from None
        lines.append(source.line)
        yield record


def _name(clients: Sequence[PipelineClient], versions: Sequence[int], number: int) -> str:
    """Two servers are told apart by their addresses, two models of one by their versions."""
    if len({client.url for client in clients}) > 1:
        return clients[number].url
    return f"version {versions[number]}"
