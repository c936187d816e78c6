"""Model control at a server's start: how it learns of new versions, and who may tell it."""

import os
import secrets
from collections.abc import Sequence

from text_pipeline.contract import KEY_HEADER, KEY_VARIABLE
from text_pipeline.errors import TextPipelineError

# Loading code, reading and writing memory of the machine, and filling its disk with logs and traces
# are not for everybody who classifies.
_RESTRICTED = "model-repository,shared-memory,trace,logging"


def arguments(mode: str) -> Sequence[str]:
    """tritonserver's arguments for a mode; without a key in the environment nobody has one."""
    key = os.environ.get(KEY_VARIABLE)
    if mode == "explicit" and not key:
        raise TextPipelineError(
            f"--model-control explicit needs a secret in {KEY_VARIABLE}: who has it may load models"
        )
    rule = f"{_RESTRICTED}:{KEY_HEADER}={key or secrets.token_hex(16)}"
    return [
        f"--model-control-mode={mode}",
        *(["--load-model=*"] if mode == "explicit" else []),
        f"--http-restricted-api={rule}",
        f"--grpc-restricted-protocol={rule}",
    ]
