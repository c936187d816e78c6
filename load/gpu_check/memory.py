"""GPU memory: what the manual's formula says, and what Triton's metrics say."""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from load.watch import Sample
from text_pipeline.default_model import build
from text_pipeline.errors import TextPipelineError
from text_pipeline.export.source import load

METRIC = "nv_gpu_memory_used_bytes"
CUDA_BYTES = 0.5e9
MIB = 2**20
COMMAND_TIMEOUT_S = 20


@dataclass(frozen=True)
class Sizes:
    """Of a model, as its configuration has them."""

    parameters: int
    hidden: int
    intermediate: int
    heads: int
    length: int
    """The longest text, in tokens."""


def formula_bytes(sizes: Sizes, items: int, instances: int) -> float:
    """The upper estimate under *GPUs and memory* in the README, for batches of `items` texts."""
    weights = 4 * sizes.parameters
    per_token = 2 * sizes.intermediate + 8 * sizes.hidden + 2 * sizes.heads * sizes.length
    activations = 4 * items * sizes.length * per_token
    return CUDA_BYTES + instances * (weights + activations)


def default_model(work: Path) -> Sizes:
    """The default model's; `work` is a folder for its files."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        source = load(str(build.build(Path(folder))))
    config = source.model.config
    return Sizes(
        source.model.num_parameters(), config.hidden_size, config.intermediate_size,
        config.num_attention_heads, source.max_tokens,
    )  # fmt: skip


def in_use() -> Mapping[str, float]:
    """Bytes in use by GPU (its uuid), whoever uses them."""
    command = ["nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TextPipelineError(
            f"nvidia-smi does not say how much memory is used: {error}"
        ) from None
    lines = [line.split(",") for line in done.stdout.splitlines() if "," in line]
    return {uuid.strip(): float(mib) * MIB for uuid, mib in lines}


def growth_bytes(samples: Sequence[Sample], before: Mapping[str, float]) -> float:
    """By how much the memory of a GPU grew at most, over what was in use `before`.

    Raises TextPipelineError when the server's metrics have no GPU.
    """
    grown = [
        value - before.get(_uuid(series), 0)
        for _, values in samples
        for series, value in values.items()
        if series.startswith(METRIC)
    ]
    if not grown:
        raise TextPipelineError(f"the server's metrics have no {METRIC}")
    return max(grown)


def _uuid(series: str) -> str:
    """Of a series such as nv_gpu_memory_used_bytes{gpu_uuid="GPU-…"}."""
    return series.partition('"')[2].partition('"')[0]
