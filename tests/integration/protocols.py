"""One way to send texts, whatever the protocol: HTTP with JSON, HTTP with binary data, gRPC."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http

from tests.conftest import Server

Infer = Callable[..., dict[str, Any]]
OUTPUTS = ("labels", "scores", "probabilities", "logits", "token_count", "truncated")
PROTOCOLS = ("http-json", "http-binary", "grpc")


def infer(
    server: Server,
    protocol: str,
    texts: Sequence[str | bytes],
    pairs: Sequence[str | bytes] | None = None,
    *,
    model: str = "text_pipeline_ensemble",
    outputs: Sequence[str] = OUTPUTS,
    class_count: int = 0,
    parameters: dict[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Sends one request; raises InferenceServerException when the server refuses it."""
    tensors = {"text": column(texts)}
    if pairs is not None:
        tensors["text_pair"] = column(pairs)
    return infer_tensors(
        server,
        protocol,
        tensors,
        model=model,
        outputs=outputs,
        class_count=class_count,
        parameters=parameters,
    )


def infer_tensors(
    server: Server,
    protocol: str,
    tensors: dict[str, np.ndarray],
    *,
    model: str = "text_pipeline_ensemble",
    outputs: Sequence[str] = OUTPUTS,
    class_count: int = 0,
    parameters: dict[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """As `infer`, with tensors of any name, shape and type."""
    module = tritonclient.grpc if protocol == "grpc" else tritonclient.http
    url = server.grpc_url if protocol == "grpc" else server.http_url
    binary = {} if protocol == "grpc" else {"binary_data": protocol == "http-binary"}
    inputs = []
    for name, tensor in tensors.items():
        dtype = "BYTES" if tensor.dtype == np.object_ else tensor.dtype.name.upper()
        inputs.append(module.InferInput(name, list(tensor.shape), dtype))
        inputs[-1].set_data_from_numpy(tensor, **binary)
    requested = [module.InferRequestedOutput(n, class_count=class_count, **binary) for n in outputs]
    with module.InferenceServerClient(url) as client:
        result = client.infer(model, inputs, outputs=requested, parameters=parameters)
        return {name: result.as_numpy(name) for name in outputs}


def column(texts: Sequence[str | bytes]) -> np.ndarray:
    """Texts as a BYTES tensor [texts, 1]."""
    encoded = [[t.encode() if isinstance(t, str) else t] for t in texts]
    return np.array(encoded, dtype=np.object_).reshape(len(texts), 1)


def label(value: str | bytes) -> str:
    """A label as text: HTTP with JSON gives str, the binary protocols bytes."""
    return value.decode() if isinstance(value, bytes) else value
