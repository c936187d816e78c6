"""What the graph answers beside the label names: the model's logits and what follows from them."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from text_pipeline.export.source import Source

if TYPE_CHECKING:
    from transformers import PretrainedConfig

TOKEN_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
TENSOR_OUTPUTS = ("scores", "probabilities", "logits", "embedding")


class PaddedClassifier(nn.Module):
    """A Hugging Face classifier with all its outputs, run as it is on padded items."""

    def __init__(self, source: Source, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model = source.model
        if dtype != source.model.dtype:
            self.model = copy.deepcopy(source.model).to(dtype)  # type: ignore[arg-type]
        self.takes_segments = source.takes_segments
        self.activation = activation(source.model.config)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
        *windows: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """INT64 [windows, tokens] each -> scores, probabilities, logits, embedding, class order.

        The embedding is the mean of the last hidden state over the attended tokens, of length 1.
        Every window is an item, unless `windows` are the rest of what `padded_front` gives.
        """
        segments = {"token_type_ids": token_type_ids} if self.takes_segments else {}
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            output_hidden_states=True,
            **segments,
        )
        # In fp32: a sum of many tokens.
        hidden = output.hidden_states[-1].float()
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        # A row of no tokens has no mean; 1 keeps it zero instead of NaN.
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
        logits = output.logits.float()
        if windows:
            logits, mean = join_windows(logits, mean, attention_mask.sum(1), *windows)
        return ranked(logits, self.activation, mean)


def activation(config: "PretrainedConfig") -> nn.Module:
    """From logits to scores, by the configuration's `problem_type`.

    A head of one output without a problem type is a regression: its value is the score.
    """
    if config.problem_type == "multi_label_classification":
        return nn.Sigmoid()
    if config.problem_type == "regression" or config.num_labels == 1:
        return nn.Identity()
    return nn.Softmax(dim=-1)


def join_windows(
    logits: torch.Tensor,
    pooled: torch.Tensor,
    window_tokens: torch.Tensor,
    has_windows: torch.Tensor,
    window_item: torch.Tensor,
    item_length: torch.Tensor,
) -> Sequence[torch.Tensor]:
    """What windows.JoinWindows makes of a body's logits and embeddings; for export only."""
    return torch.onnx.ops.symbolic_multi_out(
        "text_pipeline::JoinWindows",
        (logits, pooled, window_tokens, has_windows, window_item, item_length),
        dtypes=(logits.dtype, pooled.dtype),
        shapes=[(item_length.shape[0], values.shape[1]) for values in (logits, pooled)],
        version=1,
    )


def ranked(
    logits: torch.Tensor, to_scores: nn.Module, mean_hidden: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Logits [items, classes], mean hidden state [items, hidden] -> TENSOR_OUTPUTS, class order."""
    probabilities = to_scores(logits)
    # TopK of all classes: sorted, and equal scores in class order.
    scores, order = torch.topk(probabilities, probabilities.shape[-1], dim=-1)
    return scores, probabilities, logits, nn.functional.normalize(mean_hidden, dim=-1), order
