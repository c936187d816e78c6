"""The command `text-pipeline`: parses, calls, prints."""

from typing import Any

import click

from text_pipeline.cli import asking, serving, tuning, versions
from text_pipeline.errors import TextPipelineError

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""


class Commands(click.Group):
    """Commands whose errors are one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error of this project is one line and an exit code."""
        try:
            return super().invoke(ctx)
        except TextPipelineError as error:
            click.echo(f"error: {' '.join(str(error).split())}", err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            # Without a file it is no matter of the user's disk, but a fault of ours.
            if (path := error.filename2 or error.filename) is None:
                raise
            click.echo(f"error: {path}: {error.strerror}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(cls=Commands, context_settings={"show_default": True})
@click.version_option(package_name="text-pipeline")
def commands() -> None:
    """Serve Hugging Face text classifiers on Triton Inference Server.

    Every option can be given as an environment variable, for example
    TEXT_PIPELINE_CLASSIFY_URL for `classify --url`.
    """


for command in (
    serving.serve,
    serving.check,
    serving.health,
    serving.doctor,
    versions.inspect,
    versions.export,
    versions.use,
    asking.classify,
    asking.embed,
    asking.evaluate,
    tuning.tune,
):
    commands.add_command(command)


def main() -> None:
    """The entry point."""
    commands(auto_envvar_prefix="TEXT_PIPELINE")
