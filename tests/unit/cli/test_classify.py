"""`text-pipeline classify` as a process, with a made-up server at the other end."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from click.testing import CliRunner

from tests.unit.stand_in import StandIn, serving
from text_pipeline.cli import commands
from text_pipeline.server.ports import free_ports

COMMAND = [sys.executable, "-c", "from text_pipeline.cli import main; main()", "classify"]


# Where Python does not buffer its output, nobody sees that a command forgot to flush it.
ENVIRONMENT = {name: v for name, v in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    servicer = StandIn()
    with serving(servicer):
        yield servicer


def run(
    url: str, *arguments: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, "--url", url, *arguments],
        input=stdin,
        capture_output=True,
        timeout=120,
        check=False,
        env=ENVIRONMENT | environment,
    )


@contextmanager
def started(
    *arguments: str | Path, terminal: str = "80", **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """The running command; one that hangs is killed, so that a test fails and does not hang."""
    environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": terminal}
    with subprocess.Popen([*COMMAND, *arguments], env=environment, **options) as process:
        timer = threading.Timer(120, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()


def rows(output: bytes) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


def test_arguments_come_out_as_json_lines(stand_in: StandIn) -> None:
    done = run(stand_in.url, "Profits fell", "añb", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert rows(done.stdout)[0] == {
        "text": "Profits fell",
        "label": "label of Profits fell",
        "score": 0.75,
        "labels": ["label of Profits fell", "another"],
        "scores": [0.75, 0.25],
        "token_count": 14,
        "truncated": False,
    }
    assert rows(done.stdout)[1]["label"] == "label of añb"


@pytest.mark.parametrize("arguments", [[], ["--input", "-"]])
def test_pipe_is_read(stand_in: StandIn, arguments: list[str]) -> None:
    done = run(stand_in.url, *arguments, stdin=b"a\n\nb")
    assert [row["text"] for row in rows(done.stdout)] == ["a", "", "b"]


def test_answer_comes_before_the_pipe_ends(stand_in: StandIn) -> None:
    one_at_a_time = ["--chunk-size", "1", "--in-flight", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started("--url", stand_in.url, *one_at_a_time, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\nsecond\n")
        process.stdin.flush()
        assert rows(process.stdout.readline())[0]["text"] == "first"
        process.stdin.close()
        assert rows(process.stdout.read())[0]["text"] == "second"
    assert process.returncode == 0


def test_options_reach_the_server(stand_in: StandIn) -> None:
    done = run(stand_in.url, "a", "b", "--max-tokens", "9", "--overflow", "error", "--top-k", "1")
    assert stand_in.parameters == [{"max_tokens": 9, "overflow": "error"}]
    assert rows(done.stdout)[0]["labels"] == ["label of a"]


def test_every_option_is_an_environment_variable(stand_in: StandIn, tmp_path: Path) -> None:
    path, output = tmp_path / "texts", tmp_path / "out"
    path.write_text('{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n')
    values = {
        "URL": stand_in.url, "INPUT": str(path), "OUTPUT": str(output), "FORMAT": "jsonl",
        "CHUNK_SIZE": "2", "IN_FLIGHT": "1", "MAX_TOKENS": "9", "OVERFLOW": "error",
        "TOP_K": "1", "TIMEOUT": "20",
    }  # fmt: skip
    variables = {f"TEXT_PIPELINE_CLASSIFY_{name}": value for name, value in values.items()}
    subprocess.run(COMMAND, env=ENVIRONMENT | variables, check=True, timeout=120)
    found = rows(output.read_bytes())
    assert [row["text"] for row in found] == ["a", "b", "c"]
    assert found[0]["labels"] == ["label of a"]
    assert stand_in.sizes == [2, 1]
    assert stand_in.parameters[0] == {"max_tokens": 9, "overflow": "error"}


@pytest.mark.parametrize(("threshold", "kept"), [("0.25", 2), ("0.26", 1), ("0.76", 0)])
def test_threshold_keeps_the_labels_that_reach_it(
    stand_in: StandIn, threshold: str, kept: int
) -> None:
    (row,) = rows(run(stand_in.url, "--threshold", threshold, "a").stdout)
    assert row["labels"] == ["label of a", "another"][:kept]
    assert row["scores"] == [0.75, 0.25][:kept]
    assert (row["label"], row["score"]) == (("label of a", 0.75) if kept else (None, None))


def test_json_fields_are_kept(stand_in: StandIn, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(
        '{"id": 7, "text": "a", "label": "gold"}\n'
        '{"text": "b", "text_pair": "c"}\n'
        '{"text": "d", "text_pair": null}\n'
    )
    gold, pair, single = rows(run(stand_in.url, "--input", str(path)).stdout)
    assert (gold["id"], gold["input_label"], gold["label"]) == (7, "gold", "label of a")
    assert (pair["text_pair"], pair["label"]) == ("c", "label of b|c")
    assert (single["text_pair"], single["label"]) == (None, "label of d")


def test_failed_run_leaves_the_output_alone(stand_in: StandIn, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("before")
    bad = (grpc.StatusCode.INVALID_ARGUMENT, "text[0]: 9 tokens")
    stand_in.fails = lambda texts, _: bad if "9" in texts else None
    numbers = "".join(f"{number}\n" for number in range(20)).encode()
    done = run(stand_in.url, "--output", str(output), "--chunk-size", "3", stdin=numbers)
    assert (done.returncode, done.stderr) == (4, b"error: text 10: 9 tokens\n")
    assert output.read_text() == "before"
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        (["classify", "--input"], True),
        (["embed", "--output", "e.npy", "--input"], True),
        (["export", "--model", "default", "--texts"], False),
        (["tune", "--p99-ms", "9", "--workload"], False),
    ],
)
def test_every_command_refuses_what_is_no_file_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], way_out: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts").write_text("label,text\n1,a\n")
    done = CliRunner().invoke(commands, [*command, "texts"])
    assert done.exit_code == 1
    (line,) = done.output.splitlines()
    assert line.startswith("error: texts: looks like CSV, expected JSON lines or a text in each")
    assert line.endswith("; if every line is a text: --format lines") == way_out
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_unreachable_server_is_one_line_and_an_exit_code() -> None:
    url = f"127.0.0.1:{free_ports(1)[0]}"
    done = run(url, "a")
    expected = f"error: no server at {url}: start one with 'make serve' or name another with --url"
    assert (done.returncode, done.stderr.decode()) == (3, f"{expected}\n")


def test_argument_that_is_no_utf8_is_one_line(stand_in: StandIn) -> None:
    done = subprocess.run(
        [*COMMAND, "--url", stand_in.url, b"a\xff"], capture_output=True, timeout=120
    )
    assert done.returncode == 4
    assert done.stderr.startswith(b"error: text 1: not valid Unicode")
    assert len(done.stderr.splitlines()) == 1


def test_texts_and_input_exclude_each_other(stand_in: StandIn) -> None:
    done = run(stand_in.url, "a", "--input", "-")
    assert done.returncode == 2
    assert b"either texts or --input" in done.stderr


def test_nothing_on_a_terminal_is_a_usage_error() -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(COMMAND, stdin=theirs, capture_output=True, timeout=120)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert b'for example: text-pipeline classify "Profits fell"' in done.stderr


def test_table_on_a_terminal_shows_texts_as_they_are(stand_in: StandIn) -> None:
    ours, theirs = pty.openpty()
    arguments = ["--url", stand_in.url, "[bold]fell\x1b[2J\n", "y" * 200]
    with started(*arguments, terminal="200", stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = _everything(ours).decode()
    assert process.returncode == 0
    assert "label of [bold]fell" in shown
    assert "0.750" in shown
    assert "another 0.25" in shown
    assert "202 (cut)" in shown
    assert "y…" in shown
    assert "\x1b[2J" not in shown


def test_progress_is_shown_on_a_terminal_only(stand_in: StandIn, tmp_path: Path) -> None:
    path = tmp_path / "texts"
    path.write_text("a\n" * 50)
    ours, theirs = pty.openpty()
    files = ["--input", path, "--output", tmp_path / "out"]
    with started("--url", stand_in.url, *files, stderr=theirs) as process:
        os.close(theirs)
        shown = _everything(ours).decode()
    assert process.returncode == 0
    assert "50 texts" in shown
    assert "100%" in shown
    assert run(stand_in.url, "--input", str(path)).stderr == b""


def _everything(descriptor: int) -> bytes:
    blocks = []
    while True:
        try:
            blocks.append(os.read(descriptor, 4096))
        except OSError:  # Linux reports the end of a terminal as an error
            os.close(descriptor)
            return b"".join(blocks)


def test_reader_that_leaves_early_ends_the_command_quietly(stand_in: StandIn) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with started("--url", stand_in.url, "--input", "-", **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        threading.Thread(target=_write_for_ever, args=(process.stdin.fileno(),)).start()
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) != 0


def _write_for_ever(descriptor: int) -> None:
    own = os.dup(descriptor)
    try:
        while True:
            os.write(own, b"a line\n" * 100)
    except BrokenPipeError:
        os.close(own)


def test_interrupt_ends_it_at_once_and_leaves_nothing(stand_in: StandIn, tmp_path: Path) -> None:
    arrived, release = threading.Event(), threading.Event()

    def hold(_: list[str]) -> None:
        arrived.set()
        release.wait(60)

    stand_in.before_answer = hold
    output = tmp_path / "out"
    arguments = ["--url", stand_in.url, "a", "--output", output]
    with started(*arguments, stderr=subprocess.PIPE) as process:
        try:
            assert arrived.wait(60)
            process.send_signal(signal.SIGINT)
            start = time.monotonic()
            _, errors = process.communicate(timeout=60)
            assert time.monotonic() - start < 20
        finally:
            release.set()
    assert (process.returncode, errors) == (130, b"")
    assert list(tmp_path.iterdir()) == []


def test_long_input_needs_no_more_memory(stand_in: StandIn, tmp_path: Path) -> None:
    """Memory after 100,000 lines is about what it was after 6,400."""
    path, output = tmp_path / "texts.jsonl", tmp_path / "out"
    line = json.dumps({"text": "a text", "padding": "x" * 2000}) + "\n"
    with path.open("w") as file:
        file.writelines(line for _ in range(100_000))
    growth: list[int] = []
    files = ["--input", path, "--output", output]
    with started("--url", stand_in.url, *files, "--chunk-size", "64") as process:
        watched = psutil.Process(process.pid)
        before: dict[str, int] = {}

        def measure(_: list[str]) -> None:
            if len(stand_in.sizes) == 100:
                before["rss"] = watched.memory_info().rss
            elif len(stand_in.sizes) > 1500:
                growth.append(watched.memory_info().rss - before["rss"])

        stand_in.before_answer = measure
        assert process.wait(300) == 0
    with output.open() as file:
        assert sum(1 for _ in file) == 100_000
    # The lines in between are 180 MB as text alone.
    assert growth
    assert max(growth) < 60 * 2**20


def test_help_is_quick_because_it_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from text_pipeline.cli import commands\n"
        "commands(['--help'], standalone_mode=False)\n"
        "print(sorted({'grpc', 'numpy', 'rich', 'torch', 'tritonclient'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"[]"
