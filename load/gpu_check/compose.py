"""The server that `docker compose` starts, on free ports of this machine."""

import json
import os
import subprocess
import tempfile
import uuid
from pathlib import Path
from types import TracebackType

from text_pipeline.errors import TextPipelineError
from text_pipeline.server import ports

ROOT = Path(__file__).parents[2]
START_S = 180
STOP_S = 20
"""As stop_grace_period in compose.yaml."""
LOG_LINES = 40


class ComposeServer:
    """A project of its own of compose.yaml's `profile`; as a context manager it is healthy inside.

    It serves `repository` with its configurations `configuration` (--model-config-name; `gpu` is
    config.pbtxt), which the user of the container must be able to read.
    """

    def __init__(self, repository: Path, configuration: str, profile: str = "gpu") -> None:
        self.profile = profile
        self.project = f"text-pipeline-check-{uuid.uuid4().hex[:12]}"
        http, grpc, metrics = ports.free_ports(3)
        self.http_url, self.grpc_url, self.metrics_url = (
            f"127.0.0.1:{port}" for port in (http, grpc, metrics)
        )
        self._environment = {
            "MODEL_REPOSITORY": str(repository.absolute()),
            "BIND_ADDRESS": "127.0.0.1",
            "HTTP_PORT": str(http),
            "GRPC_PORT": str(grpc),
            "METRICS_PORT": str(metrics),
        }
        variables = {"TEXT_PIPELINE_SERVE_MODEL_CONFIG_NAME": configuration}
        # A server that dies is to be seen, not started again.
        changed = {"environment": variables, "restart": "no"}
        self._changes = json.dumps({"services": {profile: changed}})
        self._folder: tempfile.TemporaryDirectory | None = None

    def __enter__(self) -> "ComposeServer":
        self._folder = tempfile.TemporaryDirectory(prefix="text-pipeline-gpu-")
        (Path(self._folder.name) / "changes.json").write_text(self._changes, encoding="utf-8")
        try:
            wait = ["--detach", "--wait", "--wait-timeout", str(START_S)]
            done = self._compose("up", "--no-build", *wait)
            if done.returncode:
                log = self._compose("logs", "--no-color", "--tail", str(LOG_LINES)).stdout
                print(log)
                raise TextPipelineError(
                    f"the server did not start: {_last(log) or _last(done.stderr)}"
                )
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        assert self._folder is not None
        self._compose("down", "--timeout", str(STOP_S), "--volumes")
        self._folder.cleanup()

    def _compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert self._folder is not None
        changes = ["--file", str(Path(self._folder.name) / "changes.json")]
        command = compose_command(self.profile, changes, ["--project-name", self.project])
        return subprocess.run(
            [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=START_S + STOP_S, env=os.environ | self._environment,
        )  # fmt: skip


def compose_command(profile: str, *options: list[str]) -> list[str]:
    """`docker compose` on this project's file, with further options."""
    base = ["docker", "compose", "--project-directory", str(ROOT), "--profile", profile]
    further = [word for option in options for word in option]
    return [*base, "--file", str(ROOT / "compose.yaml"), *further]


def build(profile: str) -> None:
    """Builds the image of a profile; raises TextPipelineError with the builder's last line."""
    done = subprocess.run(
        [*compose_command(profile), "build", profile], cwd=ROOT, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    print(done.stdout)
    if done.returncode:
        raise TextPipelineError(f"the image could not be built: {_last(done.stdout)}")


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
