"""The client against a gRPC server that is slow, out of order, wrong or gone when told to be."""

import gc
import itertools
import random
import re
import socket
import threading
import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest

from tests.unit.stand_in import StandIn, serving
from text_pipeline.client.pipeline import PipelineClient
from text_pipeline.errors import RequestRejectedError, ServerUnreachableError, TextPipelineError
from text_pipeline.server.ports import free_ports

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    servicer = StandIn()
    with serving(servicer):
        yield servicer


def labels(client: PipelineClient, texts) -> list[str]:
    return [answer.labels[0] for answer in client.classify(texts)]


def test_order_is_kept_when_answers_come_out_of_order(stand_in: StandIn) -> None:
    finished = []

    def shuffle(texts: list[str]) -> None:
        time.sleep(random.uniform(0, 0.02))
        finished.append(int(texts[0]))

    stand_in.before_answer = shuffle
    texts = [str(number) for number in range(1000)]
    with PipelineClient(stand_in.url, chunk_size=10) as client:
        assert labels(client, texts) == [f"label of {text}" for text in texts]
    assert finished != sorted(finished)


def test_answer_holds_every_output(stand_in: StandIn) -> None:
    with PipelineClient(stand_in.url) as client:
        short, long = client.classify(["añb", "x" * 101])
        (best,) = client.classify(["añb"], top_k=1)
    assert (short.labels, short.scores) == (("label of añb", "another"), (0.75, 0.25))
    assert (short.token_count, short.truncated) == (5, False)
    assert (long.token_count, long.truncated) == (103, True)
    assert (best.labels, best.scores) == (("label of añb",), (0.75,))


def test_nothing_is_sent_for_no_texts(stand_in: StandIn) -> None:
    with PipelineClient(stand_in.url) as client:
        assert list(client.classify([])) == []
    assert stand_in.sizes == []


def test_pairs_and_single_texts_mix(stand_in: StandIn) -> None:
    texts = ["a", ("b", "c"), ("d", ""), "e", "f"]
    with PipelineClient(stand_in.url) as client:
        found = labels(client, texts)
    assert found == [f"label of {text}" for text in ("a", "b|c", "d|", "e", "f")]
    assert sorted(stand_in.sizes) == [1, 2, 2]


def test_embeddings_come_one_a_text(stand_in: StandIn) -> None:
    with PipelineClient(stand_in.url, chunk_size=2) as client:
        vectors = list(client.embed(["a", "bb", "ccc"]))
    np.testing.assert_array_equal(vectors, [[1, 1, 1], [2, 2, 2], [3, 3, 3]])
    assert vectors[0].dtype == np.float32


def test_parameters_are_sent_only_when_given(stand_in: StandIn) -> None:
    with PipelineClient(stand_in.url) as client:
        list(client.classify(["a"]))
        list(client.classify(["a"], max_tokens=7, overflow="error"))
    assert stand_in.parameters == [{}, {"max_tokens": 7, "overflow": "error"}]


def test_endless_input_is_read_only_as_far_as_requests_are_in_flight(stand_in: StandIn) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for number in itertools.count():
            read = number + 1
            yield str(number)

    with PipelineClient(stand_in.url, chunk_size=5, in_flight=3) as client:
        for taken, answer in enumerate(client.classify(endless())):
            assert answer.labels[0] == f"label of {taken}"
            # One more than fits into the requests: a chunk is known to be full by the next text.
            assert read <= taken + 5 * 3 + 1
            if taken == 100:
                break


def test_several_requests_are_in_flight(stand_in: StandIn) -> None:
    # No request is answered before four are there: a client that sends fewer runs into its limit.
    barrier = threading.Barrier(4)
    stand_in.before_answer = lambda _: _meet(barrier)
    with PipelineClient(stand_in.url, chunk_size=1, in_flight=4, timeout_s=20) as client:
        assert labels(client, ["a", "b", "c", "d"]) == [f"label of {text}" for text in "abcd"]


def _meet(barrier: threading.Barrier) -> None:
    barrier.wait(20)


@pytest.mark.parametrize("end", ["close", "forget"])
def test_consumer_that_stops_early_cancels_what_is_in_flight(stand_in: StandIn, end: str) -> None:
    arrived, release = threading.Event(), threading.Event()

    def hold_the_second(texts: list[str]) -> None:
        if texts == ["second"]:
            arrived.set()
            release.wait(20)

    stand_in.before_answer = hold_the_second
    try:
        with PipelineClient(stand_in.url, chunk_size=1) as client:
            answers = client.classify(["first", "second"])
            next(answers)
            assert arrived.wait(20)
            if end == "close":
                answers.close()
            else:
                del answers
                gc.collect()
            assert stand_in.cancelled.wait(20)
    finally:
        release.set()


def _wait(event: threading.Event) -> None:
    event.wait(20)


def test_error_in_the_input_reaches_the_caller(stand_in: StandIn) -> None:
    def texts() -> Iterator[str]:
        yield "fine"
        raise KeyError("broken")

    with PipelineClient(stand_in.url, chunk_size=1) as client, pytest.raises(KeyError):
        list(client.classify(texts()))


@pytest.mark.parametrize("field", ["text", "text_pair"])
def test_rejected_row_is_counted_over_the_whole_input(stand_in: StandIn, field: str) -> None:
    def fails(texts: list[str], _: int) -> tuple[grpc.StatusCode, str] | None:
        row = next((row for row, text in enumerate(texts) if text == "35"), None)
        details = f"in ensemble 'text_pipeline_ensemble', {field}[{row}]: 9 tokens,\n too many"
        return None if row is None else (INVALID, details)

    stand_in.fails = fails
    message = f"^{field} 36: 9 tokens, too many$"
    with (
        PipelineClient(stand_in.url, chunk_size=10) as client,
        pytest.raises(RequestRejectedError, match=message),
    ):
        list(client.classify(str(number) for number in range(100)))
    assert stand_in.sizes.count(10) >= 4


def test_answers_before_a_rejected_text_are_delivered(stand_in: StandIn) -> None:
    stand_in.fails = lambda texts, _: (INVALID, "text[0]: bad") if "25" in texts else None
    received = []
    with (
        PipelineClient(stand_in.url, chunk_size=5) as client,
        pytest.raises(RequestRejectedError, match=r"^text 26: bad$"),
    ):
        received.extend(client.classify(str(number) for number in range(100)))
    assert [answer.labels[0] for answer in received] == [f"label of {n}" for n in range(25)]


def test_lone_surrogate_is_named_and_not_sent(stand_in: StandIn) -> None:
    with (
        PipelineClient(stand_in.url) as client,
        pytest.raises(RequestRejectedError, match=r"^text 2: .*U\+D800.* character 3$"),
    ):
        list(client.classify(["fine", "ab\ud800"]))
    assert stand_in.sizes == []


def test_other_rejections_are_passed_on(stand_in: StandIn) -> None:
    stand_in.fails = lambda *_: (INVALID, "max_tokens: expected an integer from 3 to 512, got 1")
    with (
        PipelineClient(stand_in.url) as client,
        pytest.raises(RequestRejectedError, match="max_tokens: expected an integer from 3"),
    ):
        list(client.classify(["a"]))


def test_no_server_says_what_to_do_at_once() -> None:
    url = f"127.0.0.1:{free_ports(1)[0]}"
    expected = f"no server at {url}: start one with 'make serve' or name another with --url"
    start = time.monotonic()
    with PipelineClient(url) as client, pytest.raises(ServerUnreachableError) as raised:
        list(client.classify(["a"]))
    assert str(raised.value) == expected
    assert time.monotonic() - start < 10


def test_port_of_another_protocol_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer_as_http, args=(listener,), daemon=True).start()
        url = f"127.0.0.1:{listener.getsockname()[1]}"
        with (
            PipelineClient(url) as client,
            pytest.raises(ServerUnreachableError, match=r"does not speak gRPC: .* gRPC port"),
        ):
            list(client.classify(["a"]))


def _answer_as_http(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(1024)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8001", "127.0.0.1", "", "host:grpc"])
def test_malformed_address_is_named(url: str) -> None:
    with pytest.raises(TextPipelineError, match="expected HOST:PORT.*" + re.escape(repr(url))):
        PipelineClient(url)


def test_unknown_host_is_named() -> None:
    with (
        PipelineClient("no-such-host.invalid:8001") as client,
        pytest.raises(ServerUnreachableError, match=r"no-such-host\.invalid"),
    ):
        list(client.classify(["a"]))


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm' is not found"),
        (UNAVAILABLE, "Request for unknown model: 'm' has no available versions"),
    ],
)
def test_missing_model_is_named(stand_in: StandIn, code: grpc.StatusCode, details: str) -> None:
    stand_in.fails = lambda *_: (code, details)
    with (
        PipelineClient(stand_in.url) as client,
        pytest.raises(RequestRejectedError, match="no model 'text_pipeline_ensemble' ready"),
    ):
        list(client.classify(["a"]))


def test_grpc_server_that_is_no_triton_is_named(stand_in: StandIn) -> None:
    stand_in.fails = lambda *_: (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    with (
        PipelineClient(stand_in.url) as client,
        pytest.raises(ServerUnreachableError, match="not a Triton server"),
    ):
        list(client.classify(["a"]))


def test_deadline_is_named(stand_in: StandIn) -> None:
    release = threading.Event()
    stand_in.before_answer = lambda _: _wait(release)
    try:
        with (
            PipelineClient(stand_in.url, timeout_s=0.3) as client,
            pytest.raises(ServerUnreachableError, match=r"no answer within 0\.3 s"),
        ):
            list(client.classify(["a"]))
    finally:
        release.set()


@pytest.mark.parametrize(
    "reason",
    [(UNAVAILABLE, "Exceeds maximum queue size"), (grpc.StatusCode.CANCELLED, "CANCELLED")],
    ids=["queue is full", "server stops"],
)
def test_what_may_succeed_a_moment_later_is_tried_again(
    stand_in: StandIn, reason: tuple[grpc.StatusCode, str]
) -> None:
    stand_in.fails = lambda _, number: reason if number < 2 else None
    with PipelineClient(stand_in.url, chunk_size=1) as client:
        assert labels(client, ["a", "b"]) == ["label of a", "label of b"]
    assert len(stand_in.sizes) == 4


def test_server_that_comes_back_is_used_again() -> None:
    url = f"127.0.0.1:{free_ports(1)[0]}"
    texts = [str(number) for number in range(40)]
    with PipelineClient(url, chunk_size=1, in_flight=2) as client:
        with serving(StandIn(), url):
            answers = client.classify(texts)
            found = [next(answers).labels[0] for _ in range(10)]
        back = threading.Event()
        restarted = threading.Thread(target=_serve_later, args=(url, back))
        restarted.start()
        try:
            found += [answer.labels[0] for answer in answers]
        finally:
            back.set()
            restarted.join()
    assert found == [f"label of {text}" for text in texts]


def _serve_later(url: str, until: threading.Event) -> None:
    time.sleep(0.5)
    with serving(StandIn(), url):
        until.wait(60)


def test_server_that_goes_away_for_good_is_an_error() -> None:
    servicer = StandIn()
    received = []
    with serving(servicer) as server:
        client = PipelineClient(servicer.url, chunk_size=1)
        with client, pytest.raises(ServerUnreachableError, match="stopped answering"):
            for answer in client.classify(str(number) for number in itertools.count()):
                received.append(answer.labels[0])
                if len(received) == 20:
                    server.stop(None).wait()
    assert received[:20] == [f"label of {number}" for number in range(20)]


@pytest.mark.parametrize("options", [{"chunk_size": 0}, {"chunk_size": 65}, {"in_flight": 0}])
def test_impossible_sizes_are_refused(options: dict[str, int]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=name):
        PipelineClient(**options)


def test_single_str_is_no_collection_of_texts() -> None:
    with PipelineClient() as client, pytest.raises(TypeError, match="single str"):
        list(client.classify("a text"))
