"""The command `text-pipeline`: parses, calls, prints."""

import traceback
from typing import Any

import click

from text_pipeline.cli import asking, serving, tuning, versions
from text_pipeline.errors import TextPipelineError, cause

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""
_DEBUG = f"{__name__}.debug"


class Commands(click.Group):
    """Commands whose errors are one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; with --debug an error comes with its traceback."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise  # click's own ways to end; a reader that left early ends it without a word
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:  # noqa: BLE001 - whatever it is, a user gets one line of it
            if ctx.meta.get(_DEBUG):
                click.echo(traceback.format_exc(), err=True, nl=False)
            click.echo(f"error: {' '.join(_message(error).split())}", err=True)
            ctx.exit(error.exit_code if isinstance(error, TextPipelineError) else 1)


def _message(error: Exception) -> str:
    if isinstance(error, TextPipelineError):
        return str(error)
    if isinstance(error, OSError) and (path := error.filename2 or error.filename) is not None:
        return f"{path}: {error.strerror}"
    return f"{cause(error)} (unexpected: --debug shows where, please report it)"


_debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=lambda ctx, _, value: ctx.meta.update({_DEBUG: value}),
    help="With an error, show where in the program it came up.",
)


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
    commands.add_command(_debug_option(command))


def main() -> None:
    """The entry point."""
    commands(auto_envvar_prefix="TEXT_PIPELINE")
