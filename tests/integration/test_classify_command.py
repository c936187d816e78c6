"""`text-pipeline classify` as people use it, against a real server."""

import json
import os
import pty
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.closeness import Closeness
from tests.conftest import Server
from tests.integration.protocols import infer, label
from text_pipeline.client.pipeline import PipelineClient
from text_pipeline.default_model import corpus
from text_pipeline.errors import RequestRejectedError
from text_pipeline.server.ports import free_ports

COMMAND = [sys.executable, "-c", "from text_pipeline.cli import main; main()", "classify"]


def run(server: Server, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--url", server.grpc_url, *arguments],
        input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_json_lines_where_there_is_no_terminal(server: Server) -> None:
    done = run(server, "Profits fell", "The film won", "--top-k", "2")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["text"], row["label"]) for row in rows] == [
        ("Profits fell", "business"),
        ("The film won", "entertainment"),
    ]
    assert all(len(row["labels"]) == len(row["scores"]) == 2 for row in rows)
    assert rows[0]["score"] == rows[0]["scores"][0]


def test_table_on_a_terminal_shows_texts_as_they_are(server: Server) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    arguments = ["--url", server.grpc_url, "Profits [bold]fell\x1b[2J"]
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b"".join(_until_closed(ours)).decode()
    assert process.wait() == 0
    assert "business" in shown
    assert "[bold]" in shown
    assert "\x1b[2J" not in shown


def _until_closed(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            block = os.read(descriptor, 4096)
        except OSError:  # Linux reports the end of a terminal as an error
            return
        if not block:
            return
        yield block


def test_lines_keep_their_order_and_blank_ones_count(server: Server, tmp_path: Path) -> None:
    texts = [*corpus.short(500), "", "last without newline"]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    done = run(server, "--input", str(path), "--chunk-size", "7")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == texts
    for start in range(0, len(texts), 64):
        answer = infer(server, "grpc", texts[start : start + 64])
        found = [row["label"] for row in rows[start : start + 64]]
        assert found == [label(names[0]) for names in answer["labels"]]


def test_json_lines_keep_their_fields_and_pairs(server: Server) -> None:
    records = [{"id": 1, "text": "a"}, {"id": 2, "text": "b", "text_pair": "c"}, {"text": "d"}]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    done = run(server, "--input", "-", "--format", "jsonl", stdin=lines)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [
        {key: row[key] for key in record} for row, record in zip(rows, records, strict=True)
    ] == records
    assert [row["token_count"] for row in rows] == [3, 5, 3]


def test_output_appears_only_when_complete(server: Server, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("what was there before\n")
    lines = "fine\n" * 100 + "too long for four tokens\n"
    limits = ["--max-tokens", "4", "--overflow", "error"]
    done = run(server, "--input", "-", "--output", str(output), *limits, stdin=lines)
    assert done.returncode == 4
    assert done.stderr.startswith("error: text 101: 8 tokens, the limit is 4")
    assert output.read_text() == "what was there before\n"
    assert list(tmp_path.iterdir()) == [output]

    done = run(server, "--input", "-", "--output", str(output), stdin=lines)
    assert (done.returncode, done.stdout) == (0, "")
    assert len(output.read_text().splitlines()) == 101


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": 1}', "line 2: field text: expected a string, got 1"),
        (b'{"id": 1}', "line 2: field text: expected a string, got None"),
        (b"[]", "line 2: expected an object with a field text, got list"),
        (b'{"text"', "line 2: not JSON"),
        (b'{"text": "\xff"}', "line 2: not UTF-8 at byte 10 (0xff)"),
    ],
)
def test_bad_line_is_named(server: Server, tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    done = run(server, "--input", str(path))
    assert done.returncode == 1
    assert f"{path} {message}" in done.stderr


def test_no_server_is_one_line_that_says_what_to_do() -> None:
    nowhere = Server("", f"127.0.0.1:{free_ports(1)[0]}")
    done = run(nowhere, "a")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "make serve" in done.stderr


def test_http_port_is_one_line_that_says_what_to_do(server: Server) -> None:
    done = run(Server("", server.http_url), "a")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "gRPC port" in done.stderr


def test_reader_that_leaves_early_is_no_error(server: Server) -> None:
    script = f"yes 'a line' | head -20000 | {' '.join(map(_quote, COMMAND))} --url "
    script += f"{server.grpc_url} --input - | head -3"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert len(done.stdout.splitlines()) == 3
    assert "Traceback" not in done.stderr


def _quote(argument: str) -> str:
    return f"'{argument}'"


def test_texts_are_read_only_as_far_as_requests_are_in_flight(server: Server) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "a text"

    with PipelineClient(server.grpc_url, chunk_size=4, in_flight=3) as client:
        answers = client.classify(endless())
        for _ in range(10):
            next(answers)
        assert read <= 10 + 4 * (3 + 2)
        answers.close()


def test_large_input_streams(server: Server, tmp_path: Path) -> None:
    """400 MB pass through a process that may hold 350 MB, its libraries included."""
    path, output = tmp_path / "texts.jsonl", tmp_path / "out.jsonl"
    padding = "x" * 200_000
    with path.open("w") as file:
        for number in range(2000):
            file.write(json.dumps({"text": f"text {number}", "padding": padding}) + "\n")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (350 * 2**20, 350 * 2**20))

    files = ["--input", path, "--output", output]
    subprocess.run(
        [*COMMAND, "--url", server.grpc_url, *files, "--in-flight", "2"],
        preexec_fn=limit, check=True, timeout=300,
    )  # fmt: skip
    with output.open() as file:
        texts = [json.loads(line)["text"] for line in file]
    assert texts == [f"text {number}" for number in range(2000)]


def test_embed_yields_one_vector_per_text(server: Server, closeness: Closeness) -> None:
    with PipelineClient(server.grpc_url, chunk_size=2) as client:
        vectors = np.stack(list(client.embed(["a", "b", "c"])))
    answer = infer(
        server, "grpc", ["a", "b", "c"], model="text_embedding_ensemble", outputs=("embedding",)
    )
    closeness.check(vectors, answer["embedding"], 1e-5)


def test_rejected_text_is_counted_over_the_whole_input(server: Server) -> None:
    with PipelineClient(server.grpc_url, chunk_size=3) as client:
        answers = client.classify(
            [*["short"] * 10, "far too long for it"], max_tokens=4, overflow="error"
        )
        with pytest.raises(RequestRejectedError, match=r"^text 11: 7 tokens, the limit is 4"):
            list(answers)
