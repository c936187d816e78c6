"""Model control: how a running server learns of new versions, and who may tell it."""

import http
import os
import secrets
import time
from collections.abc import Sequence

from text_pipeline.embedded import probe
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository import ENSEMBLES, STEPS, Repository

MODEL_CONTROL = ("none", "poll", "explicit")
KEY_VARIABLE = "TEXT_PIPELINE_ADMIN_KEY"
"""Holds what a request to a restricted API must send in the header KEY_HEADER."""
KEY_HEADER = "admin-key"
# Loading code, and reading and writing memory of the machine, are not for everybody who classifies.
_RESTRICTED = "model-repository,shared-memory"
LOAD_TIMEOUT_S = 120.0


def arguments(mode: str) -> Sequence[str]:
    """tritonserver's arguments for a mode; without a key in the environment nobody has one."""
    key = os.environ.get(KEY_VARIABLE)
    if mode == "explicit" and not key:
        raise TextPipelineError(
            f"--model-control explicit needs a secret in {KEY_VARIABLE}: who has it may load models"
        )
    rule = f"{_RESTRICTED}:{KEY_HEADER}={key or secrets.token_hex(16)}"
    return [
        f"--model-control-mode={mode}",
        *(["--load-model=*"] if mode == "explicit" else []),
        f"--http-restricted-api={rule}",
        f"--grpc-restricted-protocol={rule}",
    ]


def use(
    repository: Repository,
    version: int,
    *,
    alone: bool = False,
    http_url: str | None = None,
    timeout_s: float = LOAD_TIMEOUT_S,
) -> None:
    """Puts a published version into use; `alone` as in Repository.load.

    With a server at `http_url`, in poll or explicit mode, the ensembles change only when it has
    loaded the version; if it cannot, the repository goes back to the version it used.
    """
    before = repository.version_in_use()
    repository.load(version, alone)
    if http_url is None:
        repository.use(version)
        return
    try:
        is_explicit = all(_load(http_url, model, timeout_s) for model in STEPS)
        for model in STEPS:
            _await_ready(http_url, model, version, timeout_s)
    except TextPipelineError:
        if before is not None:
            repository.load(before, alone=True)
        raise
    repository.use(version)
    if is_explicit:
        for model in ENSEMBLES:
            _load(http_url, model, timeout_s)


def _load(http_url: str, model: str, timeout_s: float) -> bool:
    """Whether the server has loaded a model; False if it does so by itself."""
    status, answer = _ask(http_url, "POST", f"/v2/repository/models/{model}/load", timeout_s)
    if "polling is enabled" in answer:
        return False
    if status != http.HTTPStatus.OK:
        raise TextPipelineError(
            f"the server at {http_url} did not load {model} (HTTP {status}): {answer}; "
            "what it served before it serves still"
        )
    return True


def _await_ready(http_url: str, model: str, version: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while (
        _ask(http_url, "GET", f"/v2/models/{model}/versions/{version}/ready", timeout_s)[0] != 200
    ):
        if time.monotonic() > deadline:
            raise TextPipelineError(
                f"the server at {http_url} has not loaded version {version} of {model} within "
                f"{timeout_s:g} s, its log says why; what it served before it serves still"
            )
        time.sleep(0.2)


def _ask(http_url: str, method: str, path: str, timeout_s: float) -> tuple[int, str]:
    headers = {KEY_HEADER: os.environ.get(KEY_VARIABLE, "")}
    body = "{}" if method == "POST" else None
    try:
        status, answer = probe.request(http_url, timeout_s, method, path, body, headers)
    except OSError as error:
        raise TextPipelineError(f"no server at {http_url}: {error}") from error
    return status, " ".join(answer.split())
