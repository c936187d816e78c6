"""Whether a server classifies: one real inference, with nothing but the standard library.

Triton's own readiness does not show a dead Python stub: Triton 2.51 answers ready, and every
request of that instance fails.
"""

import contextlib
import http.client
import json
import time

from text_pipeline.client import rest
from text_pipeline.contract import ENSEMBLE

TIMEOUT_S = 10.0
_STATISTICS_TIMEOUT_S = 2.0
_PAUSE_S = 0.2
# Triton 2.51 never starts a stub again, so this does not pass by waiting.
_DEAD_STUB = "Stub process"


def ensemble_problem(http_url: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """None if `text_pipeline_ensemble` at `host:port` classifies, or why not in one line.

    A server that answers others while this question waits in the queue, or is refused because the
    queue is full, is busy, not broken.
    """
    before = classified(http_url)
    try:
        status, answer = _ask(http_url, timeout_s)
    except TimeoutError:
        return None if _answers_others(http_url, before) else f"no answer within {timeout_s:g} s"
    # HTTPException: the server closed the connection, it is on its way up or down.
    except (OSError, http.client.HTTPException) as error:
        return f"no server at {http_url}: {error or type(error).__name__}"
    if status == http.HTTPStatus.OK:
        return None
    if status == http.HTTPStatus.SERVICE_UNAVAILABLE and _answers_others(
        http_url, before, timeout_s
    ):
        return None
    return f"HTTP {status} from {http_url}: {' '.join(answer.split())}"


def is_final(problem: str) -> bool:
    """Whether only a new start of the server can help."""
    return _DEAD_STUB in problem


def classified(http_url: str) -> int | None:
    """How many requests the ensemble has answered with labels; None if the server does not say."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, LookupError):
        path = f"/v2/models/{ENSEMBLE}/stats"
        _, answer = rest.request(http_url, _STATISTICS_TIMEOUT_S, "GET", path)
        statistics = json.loads(answer)["model_stats"]
        return sum(int(version["inference_stats"]["success"]["count"]) for version in statistics)
    return None


def _answers_others(http_url: str, before: int | None, within_s: float = 0) -> bool:
    """Whether more than `before` requests have been answered, now or within some seconds."""
    deadline = time.monotonic() + within_s
    while before is not None:
        if (classified(http_url) or 0) > before:
            return True
        if time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_S)
    return False


def _ask(http_url: str, timeout_s: float) -> tuple[int, str]:
    # The parameter keeps the question out of the metrics of texts and labels.
    body = json.dumps({"text": "Is anybody there?", "health_check": True})
    return rest.request(http_url, timeout_s, "POST", f"/v2/models/{ENSEMBLE}/generate", body)
