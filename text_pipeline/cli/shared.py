"""Options that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from text_pipeline.client import addresses
from text_pipeline.contract import PORTS

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def repository(help: str) -> Decorator:
    """The model repository; what is wrong with it, the command says itself."""
    return click.option(
        "--repository",
        type=click.Path(path_type=Path, readable=False),
        default="model_repository",
        help=help,
    )


def port(name: str) -> Decorator:
    """The port of "http", "grpc" or "metrics"."""
    return click.option(f"--{name}-port", default=PORTS[name], type=click.IntRange(1, 65535))


def server_url(endpoint: str, *names: str, **options: Any) -> Decorator:
    """`host:port` of a running server's endpoint, "gRPC", "HTTP" or "metrics"; --url by default."""

    def check(context: click.Context, option: click.Parameter, given: Any) -> Any:  # noqa: ARG001 - a click callback
        for url in [given] if isinstance(given, str) else given or ():
            addresses.split(url, endpoint)
        return given

    return click.option(*(names or ["--url"]), callback=check, **options)


triton = click.option(
    "--triton",
    type=click.Path(path_type=Path),
    help="An installed Triton, such as /opt/tritonserver. Default: the wheel's.",
)

model_config_name = click.option(
    "--model-config-name",
    default="cpu",
    help="Custom model configuration: <model>/configs/<name>.pbtxt where there is one.",
)
