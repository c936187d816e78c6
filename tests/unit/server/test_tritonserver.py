"""The embedded server and its ONNX Runtime backend, with a real tritonserver."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton
import tritonclient.http
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException

from tests.unit.onnx_backend import ragged_model
from text_pipeline.client import rest
from text_pipeline.errors import TextPipelineError
from text_pipeline.server import ports
from text_pipeline.server.log import ServerLog
from text_pipeline.server.tritonserver import SHARED_MEMORY, EmbeddedServer

ALL_OUTPUTS = ("total", "sign", "batch_items", "checked")


def model_problem(http_url: str) -> str | None:
    with tritonclient.http.InferenceServerClient(http_url) as client:
        try:
            return None if client.is_model_ready(ragged_model.NAME) else "not ready"
        except OSError as error:
            return str(error)


def has_ipv6() -> bool:
    """Whether this machine has the address ::1."""
    try:
        return bool(ports.free_ports(1, "::1"))
    except OSError:
        return False


def make_server(repository: Path, **options) -> EmbeddedServer:
    return EmbeddedServer(repository, problem=model_problem, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    repository = ragged_model.write(tmp_path_factory.mktemp("ragged"), ragged_model.config())
    with make_server(repository) as started:
        yield started


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.grpc_url) as connected:
        yield connected


def infer(
    client: triton.InferenceServerClient,
    values: np.ndarray,
    outputs: Sequence[str] = ALL_OUTPUTS,
) -> triton.InferResult:
    """Sends `values` [items, elements]."""
    tensor = triton.InferInput("values", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values.astype(np.float32))
    requested = [triton.InferRequestedOutput(name) for name in outputs]
    return client.infer(ragged_model.NAME, [tensor], outputs=requested)


def infer_all(client, requests: Sequence[np.ndarray], outputs=ALL_OUTPUTS) -> list:
    """Sends the requests at once; each result is an InferResult or the server's error."""

    def answer(values: np.ndarray) -> triton.InferResult | InferenceServerException:
        try:
            return infer(client, values, outputs)
        except InferenceServerException as error:
            return error

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(answer, requests))


def test_concurrent_requests_of_any_length_each_get_their_own_answer(client) -> None:
    random = np.random.default_rng(0)
    requests = [
        random.normal(size=(items, length)).round(2)
        for items, length in zip([1, 2, 1, 3] * 10, range(1, 41), strict=True)
    ]
    results = infer_all(client, requests)
    for values, result in zip(requests, results, strict=True):
        expected = values.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(result.as_numpy("total"), expected, atol=1e-3)


def test_requests_of_different_lengths_run_as_one_batch(client) -> None:
    results = infer_all(client, [np.ones((1, length)) for length in range(1, 9)])
    assert max(int(result.as_numpy("batch_items").max()) for result in results) > 1


def test_string_outputs_arrive_as_bytes(client) -> None:
    result = infer(client, np.array([[1.0], [-1.0]]))
    assert result.as_numpy("sign").tolist() == [[b"positive"], [b"negative"]]


def test_a_reply_holds_the_requested_outputs_only(client) -> None:
    with ThreadPoolExecutor(2) as pool:
        values = np.ones((1, 3))
        wanted = [["total"], ["sign", "batch_items"]] * 4
        results = pool.map(lambda names: infer(client, values, names), wanted)
    for names, result in zip(wanted, results, strict=True):
        assert {output.name for output in result.get_response().outputs} == set(names)


def test_a_failing_request_does_not_fail_its_neighbours(client) -> None:
    totals = [1.0, 2.0, -2000.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    results = infer_all(client, [np.array([[total]]) for total in totals])
    failed = [isinstance(result, InferenceServerException) for result in results]
    assert failed == [total < -1000 for total in totals]


def test_requests_of_a_batch_that_runs_in_parts_all_get_their_answer(tmp_path: Path) -> None:
    config = ragged_model.config()
    config.parameters["max_run_elements"].string_value = "4"
    totals = [[1.0] * 9, [2.0], [-2000.0], [3.0] * 3, [4.0] * 2, [5.0], [6.0], [7.0]]
    with (
        make_server(ragged_model.write(tmp_path, config)) as server,
        triton.InferenceServerClient(server.grpc_url) as client,
    ):
        results = infer_all(client, [np.array([values]) for values in totals])
    for values, result in zip(totals, results, strict=True):
        if sum(values) < -1000:
            assert isinstance(result, InferenceServerException)
        else:
            assert result.as_numpy("total").item() == pytest.approx(sum(values))
    parts = {int(r.as_numpy("batch_items").item()) for r in results if not isinstance(r, Exception)}
    assert max(parts) <= 4


def test_every_instance_is_a_process_of_its_own(server: EmbeddedServer) -> None:
    stubs = psutil.Process(server.pid).children(recursive=True)
    assert len(stubs) == 2
    assert all("model.onnx" in " ".join(stub.cmdline()) for stub in stubs)


def start_failure(repository: Path) -> str:
    """The error of a server that cannot start."""
    started = time.monotonic()
    with pytest.raises(TextPipelineError) as error, make_server(repository):
        pass
    assert time.monotonic() - started < 60, "an early exit must not wait for the timeout"
    return str(error.value)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="needs a machine without a GPU")
def test_a_gpu_instance_without_a_gpu_says_what_to_do(tmp_path: Path) -> None:
    config = ragged_model.config()
    config.instance_group[0].kind = model_config_pb2.ModelInstanceGroup.KIND_GPU
    config.instance_group[0].gpus.append(0)
    message = start_failure(ragged_model.write(tmp_path, config))
    assert ragged_model.NAME in message
    assert "--model-config-name=cpu" in message


def test_a_broken_graph_is_named_in_the_error(tmp_path: Path) -> None:
    repository = ragged_model.write(tmp_path, ragged_model.config())
    (repository / ragged_model.NAME / "1" / "model.onnx").write_bytes(b"not a graph")
    message = start_failure(repository)
    assert ragged_model.NAME in message
    assert "model.onnx" in message


def test_a_python_process_that_dies_at_once_ends_the_start_with_its_last_words(
    tmp_path: Path,
) -> None:
    repository = ragged_model.write(tmp_path, ragged_model.config())
    stub = repository / ragged_model.NAME / "triton_python_backend_stub"
    stub.write_text("#!/bin/sh\necho libmissing.so: cannot open shared object file\nexit 1\n")
    stub.chmod(0o755)
    message = start_failure(repository)
    assert message.startswith("a Python process of the server's ended: libmissing.so: cannot open")


@pytest.mark.skipif(not has_ipv6(), reason="needs the address ::1")
@pytest.mark.parametrize("host", ["::1", "[::]"])
def test_a_server_listens_on_ipv6_and_writes_its_addresses_in_brackets(
    tmp_path: Path, host: str
) -> None:
    repository = ragged_model.write(tmp_path, ragged_model.config())
    with make_server(repository, host=host) as server:
        assert server.http_url == f"[::1]:{server.http_port}"
        with triton.InferenceServerClient(server.grpc_url) as client:
            assert infer(client, np.ones((1, 3))).as_numpy("total").item() == 3
        status, _ = rest.request(server.metrics_url, 10, "GET", "/metrics")
        assert status == 200
        assert "on ::1 (--http-port)" in str(ports.problem({"http": server.http_port}, "::1"))


def test_an_output_the_graph_does_not_have_is_named(tmp_path: Path) -> None:
    config = ragged_model.config()
    config.output[0].name = "sum"
    message = start_failure(ragged_model.write(tmp_path, config))
    assert "output sum" in message


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def is_alive(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has, whoever has to collect it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def still_running(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that have not ended when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = [process for process in processes if is_alive(process)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def regions(prefix: str) -> list[Path]:
    """The shared memory of one server."""
    return list(SHARED_MEMORY.glob(f"{prefix}*"))


@pytest.mark.parametrize("kill_first", [False, True], ids=["stopped", "after SIGKILL"])
def test_stop_leaves_no_process_and_no_shared_memory(tmp_path: Path, kill_first: bool) -> None:
    repository = ragged_model.write(tmp_path, ragged_model.config())
    with make_server(repository) as server:
        assert regions(server.shared_memory_prefix)
        processes = family(server.pid)
        if kill_first:
            os.kill(server.pid, signal.SIGKILL)
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 15
    assert not still_running(processes, timeout_s=1)
    assert not regions(server.shared_memory_prefix)


def test_what_every_start_without_a_gpu_logs_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        'W1130 05:30:36.1 6900 pinned.cc:1] "Unable to allocate pinned system memory"\n'
        'E1130 05:30:36.2 6900 server.cc:2] "CudaDriverHelper has not been initialized."\n'
        'E1130 05:30:36.3 6900 stream.cc:3] "unable to create stream: CUDA driver version is '
        'insufficient for CUDA runtime version"\n'
        'E1130 05:30:36.4 6900 server.cc:4] "the real problem"\n'
    )
    assert ServerLog(log).errors() == "the real problem"


def ask_until_it_is_gone(grpc_url: str) -> None:
    gone = contextlib.suppress(InferenceServerException)
    with triton.InferenceServerClient(grpc_url) as client, gone:
        while True:
            infer(client, np.ones((1, 3)))


@pytest.mark.parametrize("victims", ["parent, SIGTERM", "parent, SIGKILL", "both, SIGKILL"])
def test_nothing_is_left_of_a_server_whose_parent_is_killed(tmp_path: Path, victims: str) -> None:
    repository = ragged_model.write(tmp_path / "models", ragged_model.config())
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from tests.unit.server.test_tritonserver import make_server
        server = make_server(Path({str(repository)!r}))
        server.start()
        server.wait_ready()
        print(server.pid, server.grpc_url, server.shared_memory_prefix, flush=True)
        server.watch()
        """
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    with parent, ThreadPoolExecutor(16) as callers:
        assert parent.stdout is not None
        pid, grpc_url, prefix = parent.stdout.readline().split()
        processes = family(int(pid))
        for _ in range(16):
            callers.submit(ask_until_it_is_gone, grpc_url)
        time.sleep(0.5)  # stubs are at work, and their metrics on the way
        parent.send_signal(signal.SIGTERM if victims == "parent, SIGTERM" else signal.SIGKILL)
        if victims == "both, SIGKILL":
            os.kill(int(pid), signal.SIGKILL)
    assert not still_running(processes, timeout_s=15)
    deadline = time.monotonic() + 5
    while (left := [*temporary.iterdir(), *regions(prefix)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
