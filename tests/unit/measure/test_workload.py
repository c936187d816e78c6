"""The texts that a server is measured with."""

from pathlib import Path

import pytest

from text_pipeline.default_model import corpus
from text_pipeline.errors import TextPipelineError
from text_pipeline.export.source import Source
from text_pipeline.measure import workload


@pytest.mark.parametrize("name", workload.NAMES)
def test_a_workload_is_the_same_every_time(name: str) -> None:
    assert workload.find(name).texts == workload.find(name).texts


def test_a_file_of_texts_is_a_workload(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("one\n\ntwo\n")
    assert workload.find(str(tmp_path / "mine.txt")) == workload.Workload(
        "mine.txt", ("one", "two")
    )
    (tmp_path / "mine.jsonl").write_text('{"text": "one", "id": 1}\n')
    assert workload.find(str(tmp_path / "mine.jsonl")).texts == ("one",)


def test_what_is_neither_is_named(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match=r"'longest'.*mixed"):
        workload.find("longest")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(TextPipelineError, match=r"empty\.txt"):
        workload.find(str(tmp_path / "empty.txt"))


def test_a_twentieth_of_short_with_articles_fills_the_model(reference: Source) -> None:
    mixed = workload.find(workload.WITH_ARTICLES)
    counts = {text: len(reference.tokenizer(text)["input_ids"]) for text in mixed.texts}
    long = [text for text, count in counts.items() if count >= 512]
    assert len(long) == len(mixed.texts) // 20
    assert {text for text in mixed.texts if not mixed.reported(text)} == set(long)
    assert set(mixed.texts) - set(long) <= set(corpus.short(len(mixed.texts)))
