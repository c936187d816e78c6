"""What Triton counts of its models: the difference between two moments.

Source: the statistics extension of Triton's protocol. Times are sums over requests there; here they
are means over the requests in between, in milliseconds.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tritonclient.grpc import InferenceServerClient, service_pb2
from tritonclient.utils import InferenceServerException

from text_pipeline.client import proxies
from text_pipeline.contract import CLASSIFIER, ENSEMBLE, TOKENIZER
from text_pipeline.errors import TextPipelineError

_PHASES = ("queue", "compute_input", "compute_infer", "compute_output")


@dataclass(frozen=True)
class ModelStatistics:
    """One model's requests between two moments."""

    requests: int = 0
    failures: int = 0
    executions: int = 0
    total_ms: float = 0.0
    queue_ms: float = 0.0
    compute_input_ms: float = 0.0
    compute_infer_ms: float = 0.0
    compute_output_ms: float = 0.0
    batch_sizes: Mapping[int, int] = field(default_factory=dict)
    """How often a batch of each number of items ran."""

    @property
    def mean_batch_size(self) -> float:
        """Items in a batch, on average over the batches."""
        runs = sum(self.batch_sizes.values())
        return sum(size * count for size, count in self.batch_sizes.items()) / runs if runs else 0.0


class ServerStatistics:
    """Sums over all requests since a server started."""

    def __init__(self, models: Mapping[str, service_pb2.ModelStatistics]) -> None:
        self._models = models

    @classmethod
    def read(cls, url: str) -> "ServerStatistics":
        """Asks the server whose gRPC endpoint is `url`."""
        try:
            with InferenceServerClient(url, channel_args=proxies.grpc_options(url)) as client:
                answer = client.get_inference_statistics()
        except InferenceServerException as error:
            raise TextPipelineError(f"the server at {url} gives no statistics: {error}") from None
        models = {stats.name: stats for stats in answer.model_stats}
        if ENSEMBLE not in models:
            raise TextPipelineError(
                f"the server at {url} has no model {ENSEMBLE} ready: "
                "start it with this project's model repository"
            )
        return cls(models)

    @property
    def answered(self) -> int:
        """Requests that the ensemble has answered or refused."""
        counts = self._models[ENSEMBLE].inference_stats
        return int(counts.success.count + counts.fail.count)

    def since(self, before: "ServerStatistics") -> dict[str, ModelStatistics]:
        """What happened after `before`, for each of the pipeline's models."""
        return {
            name: _difference(before._models[name], self._models[name])
            for name in (ENSEMBLE, TOKENIZER, CLASSIFIER)
            if name in self._models and name in before._models
        }


def _difference(
    before: service_pb2.ModelStatistics, after: service_pb2.ModelStatistics
) -> ModelStatistics:
    old, new = before.inference_stats, after.inference_stats
    requests = new.success.count - old.success.count
    mean_ms = {
        phase: (getattr(new, phase).ns - getattr(old, phase).ns) / max(1, requests) / 1e6
        for phase in ("success", *_PHASES)
    }
    sizes = Counter({int(b.batch_size): int(b.compute_infer.count) for b in after.batch_stats})
    sizes.subtract({int(b.batch_size): int(b.compute_infer.count) for b in before.batch_stats})
    return ModelStatistics(
        requests=requests,
        failures=new.fail.count - old.fail.count,
        executions=after.execution_count - before.execution_count,
        total_ms=mean_ms["success"],
        **{f"{phase}_ms": mean_ms[phase] for phase in _PHASES},
        batch_sizes={size: count for size, count in sorted(sizes.items()) if count},
    )
