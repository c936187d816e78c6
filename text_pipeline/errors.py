"""Errors whose message is all a user needs: what was expected, what came, what to do."""


class TextPipelineError(Exception):
    """A problem the user can solve; the command prints its one line and exits with `exit_code`."""

    exit_code = 1


class ServerUnreachableError(TextPipelineError):
    """No server answers at the given address, or it stopped answering."""

    exit_code = 3


class RequestRejectedError(TextPipelineError):
    """The server answered that a request is invalid."""

    exit_code = 4


class ExportRejectedError(TextPipelineError):
    """The exported graph differs from PyTorch by more than the tolerance: nothing was published."""

    exit_code = 5


class ConfigurationError(ValueError):
    """A model configuration that the `onnxruntime` backend or this machine cannot serve."""


def cause(error: BaseException) -> str:
    """What began an error: its class and its first sentence, for libraries' messages fill pages."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
