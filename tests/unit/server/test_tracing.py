"""Traces are an option, and hold times only."""

from text_pipeline.server import tracing


def test_without_an_endpoint_nothing_is_traced() -> None:
    assert tracing.arguments(None, 1) == []


def test_one_request_in_so_many_is_sent_to_the_endpoint() -> None:
    arguments = tracing.arguments("http://there:4318/v1/traces", 7)
    assert "--trace-config=rate=7" in arguments
    assert "--trace-config=opentelemetry,url=http://there:4318/v1/traces" in arguments


def test_tensors_are_never_traced() -> None:
    levels = [a for a in tracing.arguments("http://there", 1) if "level" in a]
    assert levels == ["--trace-config=level=TIMESTAMPS"]
