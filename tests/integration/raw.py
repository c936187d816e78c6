"""Requests that no client library would send: any bytes over HTTP and gRPC."""

import http.client
import json
import struct
from collections.abc import Sequence

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.conftest import Server

ENSEMBLE_PATH = "/v2/models/text_pipeline_ensemble"
REFUSED = {"400", "INVALID_ARGUMENT"}
# Triton 2.51 calls JSON that it cannot read its own error; later ones may not.
UNREADABLE = REFUSED | {"500"}
_NO_LIMIT = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def post(
    server: Server, body: bytes, verb: str = "infer", headers: dict[str, str] | None = None
) -> tuple[str, str]:
    """The status and the text of the answer."""
    connection = http.client.HTTPConnection(server.http_url, timeout=60)
    try:
        connection.request("POST", f"{ENSEMBLE_PATH}/{verb}", body, headers or {})
        response = connection.getresponse()
        return str(response.status), response.read().decode()
    finally:
        connection.close()


def json_body(data: object, shape: Sequence[int] = (1, 1), **changes: object) -> bytes:
    """A request with one tensor `text`, of which `changes` replaces fields."""
    tensor = {"name": "text", "shape": shape, "datatype": "BYTES", "data": data}
    return json.dumps({"inputs": [tensor | changes]}).encode()


def http_binary(
    server: Server, raw: bytes, shape: Sequence[int] = (1, 1), size: int | None = None
) -> tuple[str, str]:
    """One request with binary data, which says of itself that it has `size` bytes."""
    tensor = {
        "name": "text",
        "shape": shape,
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(raw) if size is None else size},
    }
    header = json.dumps({"inputs": [tensor]}).encode()
    return post(server, header + raw, headers={"Inference-Header-Content-Length": str(len(header))})


def grpc_raw(server: Server, raw: bytes, shape: Sequence[int] = (1, 1)) -> tuple[str, str]:
    """One request over gRPC; the status is "OK" or the name of gRPC's."""
    request = service_pb2.ModelInferRequest(model_name="text_pipeline_ensemble")
    request.inputs.add(name="text", datatype="BYTES", shape=shape)
    request.raw_input_contents.append(raw)
    with grpc.insecure_channel(server.grpc_url, options=_NO_LIMIT) as channel:
        try:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
        except grpc.RpcError as error:
            return error.code().name, error.details()
    return "OK", ""


SENDERS = {"http-binary": http_binary, "grpc": grpc_raw}
"""The protocols that carry a tensor's bytes as they are."""


def packed(*texts: bytes) -> bytes:
    """A BYTES tensor: every text behind its length."""
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
