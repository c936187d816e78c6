"""One server under a small load, its traces, its log, and a Prometheus that reads it."""

import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from tests.conftest import REPOSITORY, Server
from tests.integration import raw
from tests.integration.protocols import infer
from tests.monitoring.collector import Collector, collecting
from tests.monitoring.prometheus import Prometheus, running
from text_pipeline.client.pipeline import PipelineClient
from text_pipeline.contract import EMBEDDING_ENSEMBLE
from text_pipeline.default_model import corpus
from text_pipeline.server import tracing
from text_pipeline.server.probe import ensemble_problem
from text_pipeline.server.tritonserver import EmbeddedServer

TEXTS = 60
ANSWERED = TEXTS + 7
"""With those that `load` sends beside them, one of which gets an embedding and no label."""
SECRET = "Sesquipedalian"
"""Is in every refused request and may be nowhere in the log."""
# No GPU here: the series that Triton documents, as it writes them.
GPU_SERIES = "".join(
    f'{name}{{gpu_uuid="GPU-1"}} {value}\n'
    for name, value in {
        "nv_gpu_utilization": 0.5,
        "nv_gpu_memory_used_bytes": 6e9,
        "nv_gpu_memory_total_bytes": 24e9,
        "nv_gpu_power_usage": 150,
        "nv_gpu_power_limit": 300,
    }.items()
)
COUNTERS_OF_A_DAY = (
    "text_pipeline_text_tokens_count",
    "text_pipeline_truncated_texts_total",
    'text_pipeline_answered_labels_total{label="sport"}',
    'text_pipeline_answered_labels_total{label="tech"}',
)


@dataclass(frozen=True)
class Monitored:
    """What the tests look at when the load is over."""

    server: EmbeddedServer
    traces: Collector
    prometheus: Prometheus
    log: Path

    def metrics(self) -> str:
        """The page that Prometheus reads."""
        with urllib.request.urlopen(f"http://{self.server.metrics_url}/metrics") as page:
            return page.read().decode()


@pytest.fixture(scope="session")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    folder = tmp_path_factory.mktemp("monitoring")
    log = folder / "tritonserver.log"
    with (
        collecting() as traces,
        collecting(GPU_SERIES) as gpu,
        EmbeddedServer(
            REPOSITORY,
            log_path=log,
            extra_arguments=[
                *tracing.arguments(f"http://{traces.address}/v1/traces", 1),
                "--log-verbose=9",  # no level has a text in it
            ],
        ) as server,
        running(folder, [server.metrics_url, gpu.address], history()) as prometheus,
    ):
        load(server)
        yield Monitored(server, traces, prometheus, log)


def load(server: EmbeddedServer) -> None:
    """A few seconds of everything that is counted: what is fed, how it is answered and refused."""
    urls = Server(server.http_url, server.grpc_url)
    # A rate needs two readings between which something was counted, and texts are counted once a
    # second, so they come in two parts.
    texts = corpus.mixed(TEXTS)
    with PipelineClient(server.grpc_url, chunk_size=4) as client:
        for part in (texts[: TEXTS // 2], texts[TEXTS // 2 :]):
            assert len(list(client.classify(part))) == len(part)
            time.sleep(2.5)
    for parameters in ({"max_tokens": 8}, {}):
        infer(urls, "grpc", [SECRET, "word " * 20], parameters=parameters)
    for protocol in ("http-json", "http-binary"):
        infer(urls, protocol, [SECRET])
    raw.post(urls, raw.json_body([SECRET])[:-1])
    raw.post(urls, raw.json_body([[SECRET, 1]]))
    assert ensemble_problem(server.http_url) is None
    infer(urls, "grpc", ["A text."], model=EMBEDDING_ENSEMBLE, outputs=["embedding"])
    for texts, parameters in (
        ([SECRET, SECRET.encode() + b"\xff"], {}),
        ([f"{SECRET} " * 9], {"overflow": "error", "max_tokens": 4}),
        ([SECRET], {"overflow": SECRET}),
        ([SECRET], {"max_tokens": SECRET}),
        ([SECRET] * 65, {}),
    ):
        with pytest.raises(InferenceServerException):
            infer(urls, "grpc", texts, parameters=parameters)
    time.sleep(3)


def history() -> str:
    """Counters of a day that ended two hours ago, in OpenMetrics, for what compares with it."""
    end = time.time() - 2 * 3600
    times = [end - 86400 + 600 * i for i in range(144)]
    samples = [f"{name} {i} {t:.0f}" for name in COUNTERS_OF_A_DAY for i, t in enumerate(times)]
    return "\n".join([*samples, "# EOF\n"])
