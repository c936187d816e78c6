"""`text-pipeline evaluate` against a real server; what it should find comes from PyTorch."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.metrics import accuracy_score, f1_score

from tests import tiny_models
from tests.conftest import Server
from text_pipeline.cli import commands
from text_pipeline.client.pipeline import PipelineClient
from text_pipeline.contract import STEPS
from text_pipeline.default_model import corpus
from text_pipeline.export.exporter import export_model
from text_pipeline.export.gate import pytorch_outputs
from text_pipeline.export.source import load
from text_pipeline.repository.versions import Repository, version_policy

LABELS = ["calm", "loud", "a|b"]
HELD_OUT = 150
"""Of 445 articles, for time; the model's share of right answers is 0.967 among these."""
TEXTS = corpus.short(60, seed=2)
MODELS: dict[int, tuple[Callable[..., Path], dict[str, Any]]] = {
    1: (tiny_models.bert, tiny_models.labelled(LABELS)),
    2: (tiny_models.roberta, tiny_models.labelled(LABELS)),
    3: (
        tiny_models.bert,
        {**tiny_models.labelled(LABELS), "problem_type": "multi_label_classification"},
    ),
}


@pytest.fixture(scope="module")
def outputs() -> dict[int, list[dict[str, np.ndarray]]]:
    """What each version answers in PyTorch; filled by `served`."""
    return {}


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, serve_repository, device: str, outputs
) -> Iterator[Server]:
    """A server that has loaded all of MODELS and uses the last."""
    folder = tmp_path_factory.mktemp("evaluated")
    repository = Repository(folder / "repository")
    for version, (make, settings) in MODELS.items():
        model = make(folder / str(version), **settings)
        export_model(
            str(model), repository, device=device, precision="fp32", texts=TEXTS[:4],
            progress=lambda _: None,
        )  # fmt: skip
        outputs[version] = list(pytorch_outputs(load(str(model)), TEXTS))
    for step in STEPS:
        for path in (repository.path / step).glob("**/*.pbtxt"):
            lines = path.read_text().splitlines()
            kept = [line for line in lines if not line.startswith("version_policy")]
            path.write_text("\n".join([*kept, version_policy([*MODELS])]))
    with serve_repository(repository.path) as server:
        yield server


def run(*arguments: str | Path) -> Result:
    """In this process, which has loaded the libraries."""
    return CliRunner().invoke(commands, ["evaluate", *map(str, arguments)])


def evaluated(
    server: Server, folder: Path, targets: list[Any], *arguments: str
) -> tuple[dict[str, Any], str]:
    """The report of a run with these labels and what was printed."""
    data = folder / "data.jsonl"
    records = [{"text": t, "label": y} for t, y in zip(TEXTS, targets, strict=True)]
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    output = folder / "report"
    urls = [] if "--url" in arguments else ["--url", server.grpc_url]
    done = run("--data", data, "--output", output, *urls, *arguments)
    assert done.exit_code == 0, done.output
    return json.loads((output / "report.json").read_text()), done.output


def some_labels() -> list[str]:
    return random.Random(0).choices(LABELS[:2], k=len(TEXTS))


def answers(outputs: list[dict[str, np.ndarray]]) -> list[str]:
    return [LABELS[int(row["probabilities"].argmax())] for row in outputs]


def test_measures_of_a_version_are_those_of_pytorchs_answers(served, outputs, tmp_path) -> None:
    targets = some_labels()
    report, printed = evaluated(served, tmp_path, targets, "--version", "1")
    (model,) = report["models"]
    expected = answers(outputs[1])
    assert model["version"] == 1
    assert model["measures"]["accuracy"] == accuracy_score(targets, expected)
    assert model["measures"]["macro F1"] == pytest.approx(
        f1_score(targets, expected, average="macro", zero_division=0)
    )
    pairs = {(pair["label"], pair["answered"]): pair["texts"] for pair in model["confusions"]}
    for pair, texts in pairs.items():
        assert texts == list(zip(targets, expected, strict=True)).count(pair)
    assert sum(pairs.values()) == len(TEXTS)
    best = np.mean([row["probabilities"].max() for row in outputs[1]])
    bins = model["calibration"]
    mean = sum(bin_["score"] * bin_["count"] for bin_ in bins) / len(TEXTS)
    assert mean == pytest.approx(best, abs=1e-4)
    assert f"{model['measures']['accuracy']:.3f} (" in printed
    assert "Labels of the model that the data does not have: a|b." in printed


def test_two_versions_of_a_server_are_compared_text_by_text(served, outputs, tmp_path) -> None:
    targets = some_labels()
    report, printed = evaluated(served, tmp_path, targets, "--version", "1", "--version", "2")
    both = list(zip(targets, answers(outputs[1]), answers(outputs[2]), strict=True))
    found = report["comparison"]
    assert found["changed"] == sum(first != second for _, first, second in both)
    assert found["better"] == sum(first != given == second for given, first, second in both)
    assert found["worse"] == sum(second != given == first for given, first, second in both)
    assert found["changed"] > 0
    first, second = report["models"]
    assert found["difference"] == pytest.approx(
        second["measures"]["accuracy"] - first["measures"]["accuracy"]
    )
    assert (first["name"], second["name"]) == ("version 1", "version 2")
    assert f"{found['changed']} of {len(TEXTS)} texts get another answer" in printed


def test_a_report_tells_lines_and_no_texts(served, outputs, tmp_path) -> None:
    evaluated(served, tmp_path, some_labels(), "--version", "2")
    folder = tmp_path / "report"
    assert {path.name for path in folder.iterdir()} == {
        "report.json", "report.md", "answers.jsonl", "confusion.png", "reliability.png",
    }  # fmt: skip
    rows = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [(row["line"], row["version 2"]["label"]) for row in rows] == list(
        enumerate(answers(outputs[2]), start=1)
    )
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    assert not any(text.encode() in written for text in TEXTS)


def test_two_servers_with_a_multi_label_model_are_compared(served, outputs, tmp_path) -> None:
    other = served.grpc_url.replace("127.0.0.1", "localhost")
    rng = random.Random(0)
    targets = [rng.sample(LABELS, rng.randrange(4)) for _ in TEXTS]
    report, _ = evaluated(served, tmp_path, targets, "--url", served.grpc_url, "--url", other)
    first, second = report["models"]
    assert [(model["name"], model["version"]) for model in (first, second)] == [
        (served.grpc_url, 3), (other, 3),
    ]  # fmt: skip
    assert (report["comparison"]["changed"], report["comparison"]["p_value"]) == (0, 1)
    assert first["measures"] == second["measures"]
    given = np.array([[label in target for label in LABELS] for target in targets])
    answered = np.array([row["probabilities"] for row in outputs[3]]) >= 0.5
    measures = first["measures"]
    assert measures["all labels right"] == accuracy_score(given, answered)
    for average in ("micro", "macro"):
        assert measures[f"{average} F1"] == pytest.approx(
            f1_score(given, answered, average=average, zero_division=0)
        )


def test_the_default_model_is_right_for_articles_it_never_saw(server, tmp_path) -> None:
    data = tmp_path / "data.jsonl"
    articles = corpus.held_out_articles()[:HELD_OUT]
    records = [{"text": article.text, "label": article.label} for article in articles]
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    output = tmp_path / "report"
    done = run("--data", data, "--url", server.grpc_url, "--output", output, "--chunk-size", 8)
    assert done.exit_code == 0, done.output
    measures = json.loads((output / "report.json").read_text())["models"][0]["measures"]
    assert measures["accuracy"] >= 0.95
    assert measures["macro F1"] >= 0.95
    assert measures["calibration error"] <= 0.1


@pytest.mark.parametrize("version", [1, 2])
def test_every_loaded_version_can_be_asked(served, outputs, version) -> None:
    texts = [*TEXTS[:5], "word " * 300, ""]
    with PipelineClient(served.grpc_url, chunk_size=3, in_flight=2, version=version) as client:
        found = list(client.classify(texts, max_tokens=9))
        vectors = list(client.embed(TEXTS))
    assert [answer.token_count for answer in found[5:]] == [9, 2]
    assert [answer.truncated for answer in found[5:]] == [True, False]
    expected = [row["embedding"] for row in outputs[version]]
    np.testing.assert_allclose(vectors, expected, atol=1e-4)


def test_the_version_in_use_answers_as_the_ensemble_does(served) -> None:
    texts = ["word " * 300, *TEXTS]
    windows = {"overflow": "window", "max_tokens": 40, "stride": 5}
    with (
        PipelineClient(served.grpc_url) as ensemble,
        PipelineClient(served.grpc_url, version=3) as steps,
    ):
        assert steps.version_asked() == ensemble.version_asked() == 3
        pairs = zip(
            ensemble.classify(texts, **windows), steps.classify(texts, **windows), strict=True
        )
        for expected, found in pairs:
            assert (found.labels, found.token_count) == (expected.labels, expected.token_count)
            assert found.scores == pytest.approx(expected.scores, abs=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a", "label": "x"}', "line 4: field label: expected one of the model's labels"),
        (b'{"text": "a"}', "line 4: field label: expected one of the model's labels"),
        (b'{"label": "calm"}', "line 4: field text: expected a string, got None"),
        (b'{"text": "\xff"}', "line 4: not UTF-8 at byte 10 (0xff)"),
    ],
)
def test_a_bad_line_is_named(served, tmp_path, content: bytes, message: str) -> None:
    data = tmp_path / "data.jsonl"
    # A blank line counts as a line.
    data.write_bytes(b'\n{"text": "fine", "label": "calm"}\n\n' + content)
    output = tmp_path / "report"
    done = run("--data", data, "--url", served.grpc_url, "--version", "1", "--output", output)
    assert done.exit_code == 1
    assert done.output.startswith(f"error: {data} {message}")
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["--version", "1"], 1, "no texts; expected lines with text and label"),
        (["--version", "9"], 1, "has not loaded version 9, only 1 and 2 and 3"),
        (["--version", "1", "--version", "3"], 1, "of one kind to compare, got single-label and"),
        (["--version", "1", "--version", "2", "--version", "3"], 2, "one model or two different"),
        (["--version", "1", "--version", "1"], 2, "one model or two different"),
        (["--output", "/"], 1, "/ exists and is not empty: name another folder"),
    ],
)
def test_what_cannot_be_evaluated_is_said(
    served, tmp_path, arguments: list[str], exit_code: int, message: str
) -> None:
    data = tmp_path / "data.jsonl"
    data.touch()
    done = run("--data", data, "--url", served.grpc_url, *arguments)
    assert (done.exit_code, message in done.output) == (exit_code, True), done.output
