"""The packed body: a Hugging Face encoder over the tokens of all items in one row, no padding.

Linear layers and normalisations work on every token alone, so they need no change. Attention runs
inside each window (attention.py); positions restart in every window; the classifier's own head then
sees one token for each window: its first, or the mean of all.
"""

import copy
import functools
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from text_pipeline.export.heads import (
    activation,
    join_windows,
    may_be_last,
    pools_last_token,
    ranked,
)
from text_pipeline.export.relative import (
    hiding,
    replace_deberta_attention,
    replace_longformer_attention,
    replace_mpnet_attention,
)
from text_pipeline.export.source import Source, has_own_code

ATTENTION = "packed"
BIAS = 6
"""Which input of PackedMultiHeadAttention is added to its scores."""
PACKED_INPUTS = (
    "packed_input_ids",
    "packed_token_type_ids",
    "token_position",
    "token_row",
    "window_first",
    "window_row",
    "window_tokens",
    "has_windows",
    "window_item",
    "item_length",
    "group_length",
    "group_items",
    "position",
    "token_offset",
    "cumulative_sequence_length",
)

# Where each architecture's last hidden state comes out, below the base model's pooling; "" is the
# base model itself.
ENCODERS = {
    "albert": "encoder",
    "bert": "encoder",
    "camembert": "encoder",
    "deberta-v2": "encoder",
    "distilbert": "transformer",
    "electra": "encoder",
    "gpt2": "",
    "llama": "",
    "longformer": "encoder",
    "mistral": "",
    "modernbert": "final_norm",
    "mpnet": "encoder",
    "qwen2": "",
    "qwen3": "",
    "roberta": "encoder",
    "xlm-roberta": "encoder",
}
# Their positions count the tokens that differ from the padding id and start behind it.
POSITIONS_BEHIND_PADDING = ("camembert", "longformer", "mpnet", "roberta", "xlm-roberta")
# They take no attention function.
REPLACED = {
    "deberta-v2": replace_deberta_attention,
    "longformer": replace_longformer_attention,
    "mpnet": replace_mpnet_attention,
}


def reason_not_packed(model: PreTrainedModel, device: str) -> str | None:
    """Why a model must be padded, or None if it can be packed."""
    config = model.config
    if has_own_code(model):
        return "it brings its own code"
    if config.model_type not in ENCODERS:
        return f"no packed form of the architecture {config.model_type}"
    if getattr(config, "is_decoder", False):
        return "it is a decoder"
    if config.model_type == "deberta-v2":
        if device == "gpu":
            return "ONNX Runtime has no packed operator for DeBERTa's attention on GPU"
        if getattr(config, "conv_kernel_size", 0) > 0:
            return "its convolution would mix the texts of a batch"
        if not config.relative_attention or set(config.pos_att_type) != {"c2p", "p2c"}:
            return "its attention is not DeBERTa's usual one (pos_att_type c2p and p2c)"
    return None


class PackedClassifier(nn.Module):
    """A classifier with all its outputs, on the tensors of `packed_front`."""

    def __init__(self, source: Source, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        # Another attention and a hook go into it: the source stays the reference.
        self.model = copy.deepcopy(source.model).to(dtype)  # type: ignore[arg-type]  # hidden by a decorator
        self.device = device
        self.takes_segments = source.takes_segments
        self.activation = activation(source.model.config)
        self.pools_last = pools_last_token(source.model)
        self.batch: dict[str, torch.Tensor] = {}
        self.pooling = source.pooling
        self.pooled = torch.empty(0)
        config = self.model.config
        encoder = self.model.base_model.get_submodule(ENCODERS[config.model_type])
        encoder.register_forward_hook(self._pool)
        if config.model_type in REPLACED:
            REPLACED[config.model_type](self, encoder)
            return
        for module in self.model.modules():
            if isinstance(module, Conv1D):
                module.forward = functools.partial(_product, module)  # type: ignore[method-assign]  # of a copy
        AttentionInterface.register(ATTENTION, self._attend)
        AttentionMaskInterface.register(ATTENTION, lambda *args, **kwargs: None)
        self.model.set_attn_implementation(ATTENTION)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors of PACKED_INPUTS -> what PaddedClassifier gives, [items, ...] each."""
        self.batch = dict(zip(PACKED_INPUTS, tensors, strict=True))
        input_ids = self.batch["packed_input_ids"].unsqueeze(0)
        inputs = {"input_ids": input_ids, "position_ids": self._position_ids().unsqueeze(0)}
        if self.takes_segments:
            inputs["token_type_ids"] = self.batch["packed_token_type_ids"].unsqueeze(0)
        if self.pools_last:
            output = self.model.base_model(**inputs, use_cache=False)
            logits = self.model.score(output.last_hidden_state[:, 0])
        else:
            logits = self.model(**inputs).logits
        windows = ("window_tokens", "has_windows", "window_item", "item_length")
        logits, pooled = join_windows(
            logits.float(), self.pooled, *(self.batch[name] for name in windows)
        )
        return ranked(logits, self.activation, self.pooling.finish(pooled))

    def _position_ids(self) -> torch.Tensor:
        if self.model.config.model_type not in POSITIONS_BEHIND_PADDING:
            return self.batch["token_position"]
        padding: Any = self.model.base_model.embeddings.padding_idx
        counted = (self.batch["packed_input_ids"] != padding).long()
        running = counted.cumsum(0)
        # The running count before each row's first token.
        window_first, window_row = self.batch["window_first"], self.batch["window_row"]
        first = torch.zeros_like(window_first).scatter(0, window_row, window_first)
        before = (running - counted)[first][self.batch["token_row"]]
        return (running - before) * counted + padding

    def _attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """[1, heads, tokens, head size] each -> [1, tokens, heads, head size].

        transformers' attention function; a token sees those less than `sliding_window` away, in a
        decoder only those before it. Several heads of a query may share one of key and value.
        """
        _, heads, tokens, size = query.shape
        hides = []
        if sliding_window is not None:
            hides.append(self.distance().abs() >= sliding_window)
        if getattr(module, "is_causal", False):
            hides.append(self.distance() > 0)
        bias = hiding(functools.reduce(torch.logical_or, hides), query.dtype) if hides else None
        if (repeats := heads // key.shape[1]) > 1:
            key, value = (t.repeat_interleave(repeats, dim=1) for t in (key, value))
        query, key, value = (
            t.transpose(1, 2).reshape(1, tokens, heads * size) for t in (query, key, value)
        )
        attended = self.attend(query, key, value, heads, scaling, bias)
        return attended.reshape(1, tokens, heads, size), None

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        heads: int,
        scale: float | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """[1, tokens, hidden] each -> the same; `bias`, [1, heads or 1, longest, longest]."""
        _, tokens, hidden = query.shape
        attributes: dict[str, Any] = {
            "num_heads": heads,
            "scale": float(scale or (hidden // heads) ** -0.5),
        }
        biases = [] if bias is None else [bias]
        if self.device == "gpu":
            # The operator's own bias, of the projections, is left out.
            layout = [None, self.batch["token_offset"], self.batch["cumulative_sequence_length"]]
            attended = torch.onnx.ops.symbolic(
                "com.microsoft::PackedMultiHeadAttention",
                [*(row.squeeze(0) for row in (query, key, value)), *layout, *biases],
                attributes,
                dtype=query.dtype,
                shape=(tokens, hidden),
                version=1,
            )
            return attended.unsqueeze(0)
        # MultiHeadAttention for CPU knows only fp32.
        attended = torch.onnx.ops.symbolic(
            f"text_pipeline::{'Biased' if biases else ''}PackedAttention",
            [
                *(t.float() for t in (query, key, value)),
                *self.groups(),
                *(b.float() for b in biases),
            ],
            attributes | {"hidden_size": hidden},
            dtype=torch.float32,
            shape=query.shape,
            version=1,
        )
        return attended.to(query.dtype)

    def groups(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Lengths, and how many items have each."""
        return self.batch["group_length"], self.batch["group_items"]

    def positions(self) -> torch.Tensor:
        """The positions of the longest item, [1, longest, 1]."""
        return self.batch["position"][None, :, None]

    def distance(self) -> torch.Tensor:
        """How far each position lies behind each, [longest, longest]."""
        position = self.batch["position"]
        return position[None, :] - position[:, None]

    def _pool(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Hidden states [1, tokens, hidden] -> one for each window, [windows, 1, hidden]."""
        is_tensor = isinstance(output, torch.Tensor)
        hidden = (output if is_tensor else output.last_hidden_state)[0]
        row, count = self.batch["window_row"], self.batch["window_tokens"]
        belongs = (row.unsqueeze(1) == self.batch["token_row"].unsqueeze(0)).float()
        # In fp32: a sum of many tokens.
        mean = belongs @ hidden.float() / count.unsqueeze(1)
        first = self.batch["window_first"]
        self.pooled = {
            "mean": mean,
            "cls": hidden[first].float(),
            "last": hidden[first + count - 1].float(),
        }[self.pooling.mode]
        pools_mean = getattr(self.model.config, "classifier_pooling", "cls") == "mean"
        pooled = mean.to(hidden.dtype) if pools_mean else hidden[self._pooled_token(belongs)]
        if is_tensor:
            return pooled.unsqueeze(1)
        output.last_hidden_state = pooled.unsqueeze(1)
        if output.hidden_states:  # DeBERTa takes the last of these
            output.hidden_states = (output.last_hidden_state,)
        return output

    def _pooled_token(self, belongs: torch.Tensor) -> torch.Tensor:
        """Which token of each window its class depends on; `belongs`: [windows, tokens]."""
        first = self.batch["window_first"]
        if not self.pools_last:
            return first
        candidates = may_be_last(self.batch["packed_input_ids"], self.model.config)
        return first + (belongs.long() * candidates * self.batch["token_position"]).amax(1)


def _product(module: Conv1D, x: torch.Tensor) -> torch.Tensor:
    """GPT-2's linear layer, as others are: it flattens tokens, and int8 would not know them."""
    return x @ module.weight + module.bias
