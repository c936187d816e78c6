"""Model control from outside: a running server is told of new versions."""

import http
import json
import os
import time
from collections.abc import Sequence

from text_pipeline.client import rest
from text_pipeline.contract import ENSEMBLES, KEY_HEADER, KEY_VARIABLE, STEPS
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import Repository

LOAD_TIMEOUT_S = 120.0
QUIET_S = 10.0
"""So long without a request a version is out of use: 32 windows of 512 tokens keep a core for six
seconds, and what waits behind them has not asked for the classifier yet."""


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
    loaded the version; if it cannot, the repository goes back to the version it used. The version
    before leaves only when nothing asks for it any more.
    """
    if http_url is None:
        repository.load(version, alone)
        repository.use(version)
        return
    before = repository.version_in_use()
    try:
        _bring(repository, version, http_url, timeout_s)
    except TextPipelineError:
        # It may be the version in use that cannot be loaded.
        if not alone:
            if before is not None:
                repository.load(before, alone=True)
            raise
        _bring(repository, version, http_url, timeout_s, alone=True)
    if alone:
        if before not in (None, version):
            _await_unused(http_url, before, version, timeout_s)
        repository.load(version, alone=True)
        _load_all(http_url, STEPS, timeout_s)


def _bring(
    repository: Repository, version: int, http_url: str, timeout_s: float, alone: bool = False
) -> None:
    """Has the server load a version, and then the ensembles that use it."""
    repository.load(version, alone)
    _load_all(http_url, STEPS, timeout_s)
    for model in STEPS:
        _await_ready(http_url, model, version, timeout_s)
    repository.use(version)
    _load_all(http_url, ENSEMBLES, timeout_s)


def _load_all(http_url: str, models: Sequence[str], timeout_s: float) -> None:
    """Has a server in explicit mode load what its repository holds; one that polls finds it."""
    for model in models:
        if not _load(http_url, model, timeout_s):
            return


def _await_unused(http_url: str, before: int, version: int, timeout_s: float) -> None:
    """Returns when the ensembles have changed and the version before gets no more requests.

    A request that began with the old ensembles asks for the classifier's old version when its
    tokens are there, which may be seconds later.
    """
    deadline = time.monotonic() + timeout_s
    served, quiet_since = -1, time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        if time.monotonic() > deadline:
            raise TextPipelineError(
                f"the server at {http_url} still uses version {before} after {timeout_s:g} s: it "
                f"stays loaded beside version {version}, which is in use"
            )
        time.sleep(0.2)
        count = _served(http_url, before)
        if count != served or not all(_uses(http_url, model, version) for model in ENSEMBLES):
            served, quiet_since = count, time.monotonic()


def _served(http_url: str, version: int) -> int:
    """How many requests a version of tokenizer and classifier has got."""
    served = 0
    for model in STEPS:
        status, answer = _ask(http_url, "GET", f"/v2/models/{model}/versions/{version}/stats")
        if status == http.HTTPStatus.OK:
            statistics = json.loads(answer)["model_stats"][0]["inference_stats"]
            served += statistics["success"]["count"] + statistics["fail"]["count"]
    return served


def _uses(http_url: str, ensemble: str, version: int) -> bool:
    """Whether an ensemble, as the server has it, uses a version."""
    status, answer = _ask(http_url, "GET", f"/v2/models/{ensemble}/config")
    if status != http.HTTPStatus.OK:
        return False
    steps = json.loads(answer)["ensemble_scheduling"]["step"]
    return all(int(step["model_version"]) == version for step in steps)


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


def _ask(
    http_url: str, method: str, path: str, timeout_s: float = LOAD_TIMEOUT_S
) -> tuple[int, str]:
    headers = {KEY_HEADER: os.environ.get(KEY_VARIABLE, "")}
    body = "{}" if method == "POST" else None
    try:
        status, answer = rest.request(http_url, timeout_s, method, path, body, headers)
    except OSError as error:
        raise TextPipelineError(f"no server at {http_url}: {error}") from error
    return status, " ".join(answer.split())
