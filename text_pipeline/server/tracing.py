"""Triton's OpenTelemetry traces: one request shows how long each step of its ensemble took."""

SERVICE_NAME = "text-pipeline"


def arguments(url: str | None, rate: int) -> list[str]:
    """tritonserver's arguments: one request in `rate` is traced and sent to `url` over OTLP/HTTP.

    Only times are recorded: Triton's other level would put tensors, and so texts, into traces.
    """
    if url is None:
        return []
    settings = (
        "mode=opentelemetry",
        "level=TIMESTAMPS",
        f"rate={rate}",
        f"opentelemetry,url={url}",
        f"opentelemetry,resource=service.name={SERVICE_NAME}",
    )
    return [f"--trace-config={setting}" for setting in settings]
