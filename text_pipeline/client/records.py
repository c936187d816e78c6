"""Records with their answers."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from text_pipeline.client.pipeline import Classification, PipelineClient
from text_pipeline.files.json_lines import Record
from text_pipeline.files.records import Text, text_of


def classify_records(
    client: PipelineClient, records: Iterable[Record], **options: Any
) -> Iterator[Record]:
    """Yields every record with its answer; `options` are those of `PipelineClient.classify`."""
    waiting: deque[Record] = deque()

    def texts() -> Iterator[Text]:
        for record in records:
            waiting.append(record)
            yield text_of(record)

    for answer in client.classify(texts(), **options):
        yield answered(waiting.popleft(), answer)


def answered(record: Record, answer: Classification) -> Record:
    """The record with its answer: the best label and score, all labels and scores, the counts.

    Where no score reached the threshold, the best label and score are None.
    A field of the record that has the name of one of these is kept as `input_<name>`: records
    with a `label` to compare with are common.
    """
    answer_fields = {
        "label": answer.labels[0] if answer.labels else None,
        "score": answer.scores[0] if answer.scores else None,
        "labels": answer.labels,
        "scores": answer.scores,
        "token_count": answer.token_count,
        "truncated": answer.truncated,
    }
    kept: Record = {}
    for name, value in record.items():
        while name in answer_fields or name in kept:
            name = f"input_{name}"
        kept[name] = value
    return kept | answer_fields
