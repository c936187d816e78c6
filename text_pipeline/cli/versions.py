"""Commands around a model repository: what is in it, a new version, another one in use."""

import os
from pathlib import Path
from typing import Any

import click

from text_pipeline.cli import shared

_server_option = shared.server_url(
    "HTTP",
    help="HTTP endpoint of a server in poll or explicit mode that serves the repository: it loads "
    "the version before that is used.",
)


@click.command()
@shared.repository("Model repository to look into.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def inspect(repository: Path, as_json: bool) -> None:
    """Show what is in a model repository: versions, labels, limits, sizes, what is damaged."""
    import dataclasses
    import json

    from rich.console import Console

    from text_pipeline.cli import display
    from text_pipeline.repository import inspection
    from text_pipeline.repository.versions import Repository

    content = inspection.inspect(Repository(repository))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(content), indent=2, ensure_ascii=False))
    else:
        display.print_content(content, Console())


@click.command()
@click.option(
    "--model",
    required=True,
    help="Directory of a Hugging Face ...ForSequenceClassification model, a hub id (owner/name), "
    "or `default` for this project's news classifier.",
)
@shared.repository("Model repository to publish in; made if it does not exist.")
@click.option("--version", type=click.IntRange(1), help="Default: the next free one.")
@click.option(
    "--layout",
    type=click.Choice(["packed", "padded"]),
    help="Packed computes no padding. Default: packed where the architecture allows.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "gpu"]),
    default="cpu",
    show_default=True,
    help="What the graph will run on.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "int8", "fp16"]),
    help="fp32 (the default) or int8 on cpu, fp16 (the default) or fp32 on gpu.",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Shorten the model's own limit.")
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "last"]),
    help="What an embedding is made of: all tokens, the first, the last. Default: as the model's "
    "sentence-transformers files say, else mean.",
)
@click.option(
    "--texts",
    help="File of real texts, one a line or JSON lines, that the graph is checked with and int8 "
    "is calibrated with. Default: BBC news.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    help="Largest difference to PyTorch in any output. Default: 1e-4 for fp32, 0.03 for fp16, "
    "0.25 for int8.",
)
@click.option(
    "--min-agreement",
    type=click.FloatRange(0, 1),
    default=0.99,
    show_default=True,
    help="Least share of texts that get the label they get in PyTorch.",
)
@click.option(
    "--trust-remote-code", is_flag=True, help="Run the model's own code, if it brings some."
)
@_server_option
def export(
    model: str, repository: Path, texts: str | None, url: str | None, **options: Any
) -> None:
    """Publish a Hugging Face classifier as a version, if it answers as PyTorch does."""
    # PyTorch's threads wait asleep: spinning, they take ten times the time on a busy machine. It
    # reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    from rich.console import Console

    from text_pipeline.cli import display
    from text_pipeline.export.exporter import export_model
    from text_pipeline.files.records import RecordFile
    from text_pipeline.repository.versions import Repository

    options["texts"] = texts and [record["text"] for record in RecordFile(texts)]
    with display.steps(Console()) as (progress, track):
        export_model(
            model, Repository(repository), **options, http_url=url, progress=progress, track=track
        )


@click.command()
@click.option("--version", type=click.IntRange(1), required=True, help="A published version.")
@shared.repository("Model repository that has it.")
@click.option(
    "--alone",
    is_flag=True,
    help="Load no other version: the one in use before is broken, or its memory is wanted. With "
    "--url it leaves when it has got no request for ten seconds; without, at once.",
)
@_server_option
def use(version: int, repository: Path, alone: bool, url: str | None) -> None:
    """Put a published version into use, for example an earlier one again."""
    from text_pipeline.client import control
    from text_pipeline.repository.versions import Repository

    control.use(Repository(repository), version, alone=alone, http_url=url)
    click.echo(f"{repository} uses version {version}")
