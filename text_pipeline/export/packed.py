"""The packed body: a Hugging Face encoder over the tokens of all items in one row, no padding.

Linear layers and normalisations work on every token alone, so they need no change. Attention runs
inside each item (PackedAttention in front.py); positions restart in every item; the classifier's
own head then sees the first token of each item.
"""

import copy
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from text_pipeline.export.heads import activation, ranked
from text_pipeline.export.source import Source

ATTENTION = "packed"
PACKED_INPUTS = (
    "packed_input_ids",
    "packed_token_type_ids",
    "token_position",
    "token_row",
    "item_first",
    "item_row",
    "item_count",
    "group_length",
    "group_items",
)

# Where each architecture's last hidden state comes out, below the base model's pooling.
ENCODERS = {
    "albert": "encoder",
    "bert": "encoder",
    "camembert": "encoder",
    "distilbert": "transformer",
    "electra": "encoder",
    "roberta": "encoder",
    "xlm-roberta": "encoder",
}
# Their positions count the tokens that differ from the padding id and start behind it.
POSITIONS_BEHIND_PADDING = ("camembert", "roberta", "xlm-roberta")


def reason_not_packed(model: PreTrainedModel) -> str | None:
    """Why a model must be padded, or None if it can be packed."""
    if model.config.model_type not in ENCODERS:
        return f"no packed form of the architecture {model.config.model_type}"
    if getattr(model.config, "is_decoder", False):
        return "it is a decoder"
    return None


class PackedClassifier(nn.Module):
    """A classifier with all its outputs, on the tensors of `packed_front`."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        # Another attention and a hook go into it: the source stays the reference.
        self.model = copy.deepcopy(source.model)
        self.takes_segments = source.takes_segments
        self.activation = activation(source.model.config)
        self.groups: tuple[torch.Tensor, torch.Tensor] | None = None
        self.item_first = torch.empty(0)
        self.hidden = torch.empty(0)
        encoder = self.model.base_model.get_submodule(ENCODERS[self.model.config.model_type])
        encoder.register_forward_hook(self._first_tokens)
        AttentionInterface.register(ATTENTION, self._attend)
        AttentionMaskInterface.register(ATTENTION, lambda *args, **kwargs: None)
        self.model.set_attn_implementation(ATTENTION)

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor,
        token_position: torch.Tensor,
        token_row: torch.Tensor,
        item_first: torch.Tensor,
        item_row: torch.Tensor,
        item_count: torch.Tensor,
        group_length: torch.Tensor,
        group_items: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """INT64 [tokens], [items] and [groups] -> what PaddedClassifier gives, [items, …] each."""
        self.groups = (group_length, group_items)
        self.item_first = item_first
        segments = {"token_type_ids": token_type_ids.unsqueeze(0)} if self.takes_segments else {}
        positions = self._position_ids(input_ids, token_position, token_row, item_first, item_row)
        logits = self.model(
            input_ids=input_ids.unsqueeze(0), position_ids=positions.unsqueeze(0), **segments
        ).logits
        belongs = (item_row.unsqueeze(1) == token_row.unsqueeze(0)).to(self.hidden.dtype)
        mean = belongs @ self.hidden / item_count.unsqueeze(1)
        return ranked(logits, self.activation, mean)

    def _position_ids(
        self,
        input_ids: torch.Tensor,
        token_position: torch.Tensor,
        token_row: torch.Tensor,
        item_first: torch.Tensor,
        item_row: torch.Tensor,
    ) -> torch.Tensor:
        config = self.model.config
        if config.model_type not in POSITIONS_BEHIND_PADDING:
            return token_position
        counted = (input_ids != config.pad_token_id).long()
        running = counted.cumsum(0)
        # The running count before each row's first token.
        first = torch.zeros_like(item_first).scatter(0, item_row, item_first)
        before = (running - counted)[first][token_row]
        return (running - before) * counted + config.pad_token_id

    def _attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """[1, heads, tokens, head size] each -> [1, tokens, heads, head size]."""
        _, heads, tokens, size = query.shape
        rows = [t.transpose(1, 2).reshape(1, tokens, heads * size) for t in (query, key, value)]
        if self.groups is None:
            raise RuntimeError("attention before the first forward")
        attended = torch.onnx.ops.symbolic(
            "text_pipeline::PackedAttention",
            (*rows, *self.groups),
            {"num_heads": heads, "scale": float(scaling or size**-0.5)},
            dtype=query.dtype,
            shape=(1, tokens, heads * size),
            version=1,
        )
        return attended.reshape(1, tokens, heads, size), None

    def _first_tokens(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Hidden states [1, tokens, hidden] -> those of each item's first, [items, 1, hidden]."""
        self.hidden = output.last_hidden_state[0]
        output.last_hidden_state = self.hidden[self.item_first].unsqueeze(1)
        return output
