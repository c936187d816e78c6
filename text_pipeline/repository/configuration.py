"""Custom model configurations that are measured or tuned: `<model>/configs/<name>.pbtxt`."""

import os
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from text_pipeline.contract import CLASSIFIER, ENSEMBLES, TOKENIZER
from text_pipeline.errors import TextPipelineError
from text_pipeline.repository.versions import version_policy

THREADS = "intra_op_thread_count"


@dataclass(frozen=True)
class Settings:
    """What decides about throughput and latency; None leaves what the base configuration says."""

    instances: int | None = None
    """Instances of the classifier, on each device."""
    threads: int | None = None
    """Threads of each instance on CPU."""
    batching: bool = True
    """Whether requests share batches."""
    max_batch_items: int | None = None
    """Items of a batch made of several requests. A single request may still bring as many as
    `max_batch_size`: this is Triton's `preferred_batch_size`, at which a batch leaves at once."""
    max_run_tokens: int | None = None
    queue_delay_us: int | None = None
    """How long a batch that is not full waits for more, in microseconds."""
    tokenizer_instances: int | None = None
    version: int | None = None
    """The only version to serve, for a repository that has several precisions."""

    def __str__(self) -> str:
        named = {
            "instances": self.instances,
            "threads": self.threads,
            "batches up to": self.max_batch_items,
            "queue delay us": self.queue_delay_us,
            "tokenizers": self.tokenizer_instances,
            "version": self.version,
        }
        parts = [f"{name} {value}" for name, value in named.items() if value is not None]
        return ", ".join(parts if self.batching else [*parts, "no batching"]) or "as it is"


def read(repository: Path, model: str, name: str) -> model_config_pb2.ModelConfig:
    """The configuration that Triton takes with --model-config-name=`name`."""
    path = repository / model / "configs" / f"{name}.pbtxt"
    return parse(path if path.is_file() else repository / model / "config.pbtxt")


def parse(path: Path) -> model_config_pb2.ModelConfig:
    """A config.pbtxt; raises TextPipelineError with its name."""
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise TextPipelineError(f"{path}: {error}") from None


def write(
    repository: Path, name: str, settings: Settings, *, base: str = "cpu", comment: str = ""
) -> None:
    """Writes classifier and tokenizer as configuration `base` has them, changed by `settings`.

    The ensembles too if a version is set, for they name it. `comment` becomes the first lines.
    """
    classifier = read(repository, CLASSIFIER, base)
    tokenizer = read(repository, TOKENIZER, base)
    if not settings.batching:
        classifier.ClearField("dynamic_batching")
    if settings.max_batch_items is not None:
        classifier.dynamic_batching.preferred_batch_size[:] = [settings.max_batch_items]
    if settings.queue_delay_us is not None:
        classifier.dynamic_batching.max_queue_delay_microseconds = settings.queue_delay_us
    if settings.instances is not None:
        for group in classifier.instance_group:
            group.count = settings.instances
    if settings.threads is not None:
        classifier.parameters[THREADS].string_value = str(settings.threads)
    if settings.max_run_tokens is not None:
        classifier.parameters["max_run_elements"].string_value = str(settings.max_run_tokens)
    if settings.tokenizer_instances is not None:
        for group in tokenizer.instance_group:
            group.count = settings.tokenizer_instances
    configs = [classifier, tokenizer]
    if settings.version is not None:
        for config in configs:
            config.version_policy.specific.versions[:] = [settings.version]
        for ensemble in (read(repository, model, base) for model in ENSEMBLES):
            for step in ensemble.ensemble_scheduling.step:
                step.model_version = settings.version
            configs.append(ensemble)
    for config in configs:
        _write(repository / config.name / "configs" / f"{name}.pbtxt", config, comment)


def _write(path: Path, config: model_config_pb2.ModelConfig, comment: str) -> None:
    """Moved into place when it is complete."""
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    # As a line of its own, in which Repository changes it.
    versions = list(config.version_policy.specific.versions)
    config.ClearField("version_policy")
    text = lines + text_format.MessageToString(config)
    if versions:
        text += version_policy(versions)
    path.parent.mkdir(exist_ok=True)
    staged = path.with_suffix(f".{os.getpid()}")
    staged.write_text(text, encoding="utf-8")
    staged.replace(path)
