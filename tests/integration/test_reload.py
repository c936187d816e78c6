"""New versions come into use, and old ones again, while everybody is answered."""

import http.client
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests import tiny_models
from tests.conftest import Server
from tests.integration.protocols import infer, label
from text_pipeline.client import control, rest
from text_pipeline.contract import CLASSIFIER, KEY_HEADER, KEY_VARIABLE, STEPS, TOKENIZER
from text_pipeline.errors import TextPipelineError
from text_pipeline.export.exporter import export_model
from text_pipeline.export.gate import pytorch_outputs
from text_pipeline.export.source import load
from text_pipeline.repository.versions import Repository

TEXT = "The striker scored twice in the final."
CLIENTS = 32
RELOADS = int(os.environ.get("RELOADS", "2"))
"""By hand: 20."""
KEY = "a key of the tests"
RELOAD_LIMIT_S = 60.0

# What an answer shows of the versions it comes from: labels, tokens and logits.
Answer = tuple[tuple[str, ...], int, tuple[float, ...]]


@pytest.fixture(scope="module")
def versions(
    tmp_path_factory: pytest.TempPathFactory, device: str
) -> tuple[Repository, list[Answer]]:
    """Version 1 a BERT and version 2 a RoBERTa, and what each of them answers in PyTorch."""
    folder = tmp_path_factory.mktemp("versions")
    models = [
        tiny_models.bert(folder / "1", **tiny_models.labelled(["a", "b"])),
        tiny_models.roberta(folder / "2", **tiny_models.labelled(["c", "d", "e"])),
    ]
    repository = Repository(folder / "repository")
    expected = []
    for model in models:
        export_model(
            str(model), repository, device=device, precision="fp32", texts=[TEXT],
            progress=lambda _: None,
        )  # fmt: skip
        source = load(str(model))
        (outputs,) = pytorch_outputs(source, [TEXT])
        tokens = len(source.tokenizer(TEXT)["input_ids"])
        expected.append((tuple(sorted(source.labels)), tokens, _rounded(outputs["logits"])))
    return repository, expected


def _rounded(logits) -> tuple[float, ...]:
    return tuple(round(float(logit), 2) for logit in logits)


def answer(server: Server) -> Answer:
    result = infer(server, "grpc", [TEXT], outputs=("labels", "token_count", "logits"))
    labels = tuple(sorted(label(name) for name in result["labels"][0]))
    return labels, int(result["token_count"][0, 0]), _rounded(result["logits"][0])


class Load:
    """Callers that ask without a break; what they were answered, and what failed."""

    def __init__(self, server: Server, clients: int) -> None:
        self.answers: Counter[Answer] = Counter()
        self.failures: list[str] = []
        self._server = server
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        while not self._done.is_set():
            try:
                self.answers[answer(self._server)] += 1
            except InferenceServerException as error:
                self.failures.append(str(error))
            time.sleep(0.05)

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + RELOAD_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {RELOAD_LIMIT_S} s: {what}"
        time.sleep(0.2)


@pytest.fixture(scope="module", params=["poll", "explicit"])
def reloading(
    request: pytest.FixtureRequest, versions: tuple[Repository, list[Answer]], serve_repository
) -> Iterator[tuple[Server, Callable[..., None]]]:
    """A server in a mode, and how a version comes into use there."""
    repository, _ = versions
    # Both are loaded, as after every reload, whatever ran before: parts are counted.
    control.use(repository, 2)
    control.use(repository, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, KEY)
        polling = request.param == "poll"
        arguments = ["--repository-poll-secs=1"] if polling else []
        with serve_repository(repository.path, request.param, arguments) as server:

            def use(version: int, timeout_s: float = RELOAD_LIMIT_S, alone: bool = False) -> None:
                # Touched, so that tokenizer and classifier load again, as for a new version.
                for model in STEPS:
                    (repository.path / model / "config.pbtxt").touch()
                control.use(
                    repository,
                    version,
                    alone=alone,
                    http_url=server.http_url,
                    timeout_s=timeout_s,
                )

            yield server, use


def test_reloads_under_load_fail_no_request_and_mix_no_versions(reloading, versions) -> None:
    server, use = reloading
    _, expected = versions
    before = server.parts()
    with Load(server, CLIENTS) as load:
        for number in range(RELOADS):
            version = 2 - number % 2
            use(version)
            until(lambda v=version: answer(server) == expected[v - 1], f"version {version}")
    assert load.failures == []
    assert set(load.answers) == set(expected)
    until(
        lambda: len(server.parts()) == len(before),
        f"as many processes and as much memory as before: {sorted(before)}",
    )


def test_the_version_before_leaves_without_failing_a_request(
    reloading, versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, use = reloading
    repository, expected = versions
    before = repository.version_in_use()
    after = 3 - before
    monkeypatch.setattr(control, "QUIET_S", 2.0)  # no text here takes long
    with Load(server, CLIENTS) as load:
        use(after, alone=True)
        until(lambda: not is_ready(server, before), f"version {before} leaves")
    assert load.failures == []
    assert answer(server) == expected[after - 1]


def is_ready(server: Server, version: int) -> bool:
    path = f"/v2/models/{CLASSIFIER}/versions/{version}/ready"
    return rest.request(server.http_url, 10, "GET", path)[0] == http.HTTPStatus.OK


def test_a_broken_version_leaves_the_one_in_use(reloading, versions) -> None:
    server, use = reloading
    repository, expected = versions
    use(1)
    until(lambda: answer(server) == expected[0], "version 1")
    for model in (TOKENIZER, CLASSIFIER):
        shutil.copytree(repository.path / model / "2", repository.path / model / "3")
    (repository.path / CLASSIFIER / "3" / "model.onnx").write_bytes(b"not a graph")
    try:
        with Load(server, 4) as load:
            with pytest.raises(TextPipelineError, match=r"load.* text_classifier_onnx"):
                use(3, timeout_s=25)
            assert repository.version_in_use() == 1
        assert load.failures == []
        assert set(load.answers) == {expected[0]}
    finally:
        for model in (TOKENIZER, CLASSIFIER):
            shutil.rmtree(repository.path / model / "3")
    use(2)
    until(lambda: answer(server) == expected[1], "version 2")


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index",
        "/v2/repository/models/x/load",
        "/v2/logging",
        "/v2/trace/setting",
        "/v2/models/text_tokenizer/trace/setting",
    ],
)
def test_who_has_no_key_may_not_load_models_nor_change_log_and_traces(
    server: Server, path: str
) -> None:
    connection = http.client.HTTPConnection(server.http_url, timeout=10)
    connection.request("POST", path, "{}", {KEY_HEADER: "guessed"})
    assert connection.getresponse().status == http.HTTPStatus.FORBIDDEN
    connection.close()


def test_who_has_no_key_may_not_touch_memory_log_and_traces(server: Server) -> None:
    connection = http.client.HTTPConnection(server.http_url, timeout=10)
    connection.request("GET", "/v2/systemsharedmemory/status")
    assert connection.getresponse().status == http.HTTPStatus.FORBIDDEN
    connection.close()
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for call, request in (
            (stub.SystemSharedMemoryStatus, service_pb2.SystemSharedMemoryStatusRequest()),
            (stub.RepositoryIndex, service_pb2.RepositoryIndexRequest()),
            (stub.LogSettings, service_pb2.LogSettingsRequest()),
            (stub.TraceSetting, service_pb2.TraceSettingRequest()),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call(request, timeout=10)
            assert "restricted" in refused.value.details()
