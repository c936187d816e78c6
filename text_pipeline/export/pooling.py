"""How an embedding comes from the last hidden states: as the model's own files say, or the mean."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from text_pipeline.contract import POOLINGS
from text_pipeline.errors import TextPipelineError

# sentence-transformers' names, in 1_Pooling/config.json: a flag each, or a value of pooling_mode.
_SUPPORTED = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last",
}


@dataclass(frozen=True)
class Pooling:
    """One of POOLINGS, and whether the result is brought to length 1."""

    mode: str = "mean"
    normalize: bool = True

    def of_padded(self, hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Hidden states FP32 [windows, tokens, hidden], mask of 0 and 1 -> [windows, hidden]."""
        if self.mode == "cls":
            return hidden[:, 0]
        if self.mode == "last":
            last = (torch.arange(hidden.shape[1]) * attention_mask).amax(1)
            return hidden[torch.arange(hidden.shape[0]), last]
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        # A row of no tokens has no mean; 1 keeps it zero instead of NaN.
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)

    def finish(self, pooled: torch.Tensor) -> torch.Tensor:
        """The embeddings, [items, hidden]."""
        return torch.nn.functional.normalize(pooled, dim=-1) if self.normalize else pooled


def find(model_id: str, requested: str | None) -> Pooling:
    """What is asked for, else what sentence-transformers' files beside the model say.

    Raises TextPipelineError, with the file, for what a graph here cannot do.
    """
    if requested:
        return Pooling(requested)
    path, modules = _read(model_id, "modules.json")
    kinds = [module["type"].rpartition(".")[2] for module in modules or []]
    if "Pooling" not in kinds:  # no such file, or that of a cross-encoder
        return Pooling()
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise TextPipelineError(
            f"{path}: has {', '.join(kinds)}, expected Transformer, Pooling and perhaps Normalize: "
            f"choose how texts are embedded with --pooling"
        )
    path, settings = _read(model_id, f"{modules[1]['path']}/config.json")
    chosen = _modes(settings or {})
    if len(chosen) != 1 or chosen[0] not in _SUPPORTED:
        raise TextPipelineError(
            f"{path}: pools by {' and '.join(chosen) or 'nothing'}, expected one of "
            f"{', '.join(POOLINGS)}: choose one with --pooling"
        )
    return Pooling(_SUPPORTED[chosen[0]], normalize="Normalize" in kinds)


def _modes(settings: dict[str, Any]) -> list[str]:
    named = settings.get("pooling_mode")
    if named:
        return [named] if isinstance(named, str) else list(named)
    return [name for name, value in settings.items() if name.startswith("pooling_mode_") and value]


def _read(model_id: str, name: str) -> tuple[Path, Any]:
    """A JSON file of a local directory or a hub id and its content; None if there is none."""
    from transformers.utils import cached_file

    path = cached_file(
        model_id,
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        return Path(model_id, name), None
    try:
        return Path(path), json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise TextPipelineError(f"{path}: not JSON ({error})") from error
