"""Whether a server classifies: one real inference, with nothing but the standard library.

Triton's own readiness does not show a dead Python stub: Triton 2.51 answers ready, and every
request of that instance fails.
"""

import http.client
import json

from text_pipeline.repository import ENSEMBLE

TIMEOUT_S = 10.0
# Triton 2.51 never starts a stub again, so this does not pass by waiting.
_DEAD_STUB = "Stub process"


def ensemble_problem(http_url: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """None if `text_pipeline_ensemble` at `host:port` classifies a text, or why not in one line."""
    connection = http.client.HTTPConnection(http_url, timeout=timeout_s)
    try:
        body = json.dumps({"text": "Is anybody there?"})
        connection.request("POST", f"/v2/models/{ENSEMBLE}/generate", body)
        response = connection.getresponse()
        answer = response.read().decode(errors="replace")
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    # HTTPException: the server closed the connection, it is on its way up or down.
    except (OSError, http.client.HTTPException) as error:
        return f"no server at {http_url}: {error or type(error).__name__}"
    finally:
        connection.close()
    if response.status == http.HTTPStatus.OK:
        return None
    return f"HTTP {response.status} from {http_url}: {' '.join(answer.split())}"


def is_final(problem: str) -> bool:
    """Whether only a new start of the server can help."""
    return _DEAD_STUB in problem
