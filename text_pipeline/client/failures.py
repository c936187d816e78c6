"""What a failed gRPC call means to a user, as one of the project's errors."""

import re

from tritonclient.utils import InferenceServerException

from text_pipeline.errors import RequestRejectedError, ServerUnreachableError, TextPipelineError

_ENSEMBLE_PREFIX = re.compile(r"^in ensemble '[^']*', ")
# What the tokenizer says about one text: its row within the request, counted from 0.
_REJECTED_TEXT = re.compile(r"(text|text_pair)\[(\d+)\]: (.*)")
# A server that stops cancels the calls that it has not answered; nobody waits for those that the
# client itself cancels.
_GONE = ("UNAVAILABLE", "CANCELLED")
_UNRESOLVED = ("errors resolving", "DNS resolution failed")
_UNCONNECTED = ("failed to connect to all addresses", *_UNRESOLVED)
# A port that takes the connection and then drops it speaks something else, mostly HTTP/1.1.
_OTHER_PROTOCOL = ("Socket closed", "http1.x", "SETTINGS frame", "Connection reset")


def is_unconnected(error: InferenceServerException) -> bool:
    """Whether the request never reached a server, as opposed to a server that went away."""
    return _code(error) == "UNAVAILABLE" and str(error.message()).startswith(_UNCONNECTED)


def is_unavailable(error: InferenceServerException) -> bool:
    """Whether the same request may succeed a moment later: a server that went, a full queue."""
    return _code(error) in _GONE


def explain(
    error: InferenceServerException,
    *,
    url: str,
    model: str,
    first: int,
    timeout_s: float,
    was_answered: bool,
) -> TextPipelineError:
    """The error to raise for a request to `model` whose first text is number `first` of all.

    `was_answered` says whether the server at `url` has answered an earlier request.
    """
    code = _code(error)
    details = _ENSEMBLE_PREFIX.sub("", " ".join(str(error.message()).split()))
    if rejected := _REJECTED_TEXT.fullmatch(details):
        field, row, reason = rejected.groups()
        return RequestRejectedError(f"{field} {first + int(row)}: {reason}")
    if "unknown model" in details:
        return RequestRejectedError(
            f"the server at {url} has no model {model!r} ready: "
            "start it with this project's model repository"
        )
    if code in _GONE:
        return ServerUnreachableError(
            f"the server at {url} stopped answering: {details}"
            if was_answered
            else _unreachable(details, url)
        )
    if code == "DEADLINE_EXCEEDED":
        return ServerUnreachableError(
            f"the server at {url} gave no answer within {timeout_s:g} s: "
            "send smaller requests (--chunk-size) or wait longer (--timeout)"
        )
    if code == "UNIMPLEMENTED":
        return ServerUnreachableError(
            f"the gRPC server at {url} is not a Triton server: name another with --url"
        )
    if code in ("INVALID_ARGUMENT", "NOT_FOUND"):
        return RequestRejectedError(f"the server at {url} rejected the request: {details}")
    return TextPipelineError(f"the server at {url} failed ({code}): {details}")


def _unreachable(details: str, url: str) -> str:
    if details.startswith(_UNRESOLVED):
        return f"no host of the name in {url!r}: give --url as HOST:PORT, the port being gRPC's"
    if not details.startswith(_UNCONNECTED):
        return f"the server at {url} takes no requests: {details}"
    if any(sign in details for sign in _OTHER_PROTOCOL):
        return (
            f"what listens at {url} does not speak gRPC: "
            "give --url the server's gRPC port (8001 by default), not its HTTP port"
        )
    return f"no server at {url}: start one with 'make serve' or name another with --url"


def _code(error: InferenceServerException) -> str:
    """The gRPC status, such as `UNAVAILABLE`."""
    return str(error.status()).removeprefix("StatusCode.")
