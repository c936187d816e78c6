"""What the graph answers beside the label names: the model's logits and what follows from them."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from text_pipeline.errors import TextPipelineError
from text_pipeline.export.source import Source, has_own_code

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


class PaddedClassifier(nn.Module):
    """A Hugging Face classifier with all its outputs, run as it is on padded items."""

    def __init__(self, source: Source, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model = source.model
        if dtype != source.model.dtype:
            self.model = copy.deepcopy(source.model).to(dtype)  # type: ignore[arg-type]  # hidden by a decorator
        self.takes_segments = source.takes_segments
        self.activation = activation(source.model.config)
        self.pooling = source.pooling

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
        *windows: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """INT64 [windows, tokens] each -> scores, probabilities, logits, embedding, class order.

        The embedding is what the source's pooling makes of the last hidden state.
        Every window is an item, unless `windows` are the rest of what `padded_front` gives.
        """
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            output_hidden_states=True,
            **self.segments(token_type_ids),
        )
        # An encoder's or an encoder-decoder's output.
        states = getattr(output, "decoder_hidden_states", None) or output.hidden_states
        return self.answer(output.logits, states[-1], attention_mask, *windows)

    def segments(self, token_type_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """The argument for the segments, if the model takes them."""
        return {"token_type_ids": token_type_ids} if self.takes_segments else {}

    def answer(
        self,
        logits: torch.Tensor,
        hidden: torch.Tensor,
        attention_mask: torch.Tensor,
        *windows: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Logits, last hidden state, mask and windows -> what `forward` gives."""
        if not torch.compiler.is_exporting() and hidden.shape[:2] != attention_mask.shape:
            raise TextPipelineError(
                f"{type(self.model).__name__} turns {attention_mask.shape[1]} tokens into "
                f"{hidden.shape[1]} hidden states, so that there is no embedding of its tokens: "
                "architectures that change a text's length cannot be served"
            )
        # In fp32: a mean is a sum of many tokens.
        pooled = self.pooling.of_padded(hidden.float(), attention_mask)
        logits = logits.float()
        if windows:
            logits, pooled = join_windows(logits, pooled, attention_mask.sum(1), *windows)
        return ranked(logits, self.activation, self.pooling.finish(pooled))


class LastTokenClassifier(PaddedClassifier):
    """A decoder on padded items; transformers refuses more than one if there is no padding id."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
        *windows: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """As PaddedClassifier's."""
        hidden = self.model.base_model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            use_cache=False,
            **self.segments(token_type_ids),
        ).last_hidden_state
        position = torch.arange(input_ids.shape[1])
        last = (position * may_be_last(input_ids, self.model.config) * attention_mask).amax(1)
        pooled = hidden[torch.arange(input_ids.shape[0]), last]
        logits = self.model.score(pooled)  # type: ignore[operator]  # every decoder's head
        return self.answer(logits, hidden, attention_mask, *windows)


class EndTokenClassifier(PaddedClassifier):
    """An encoder-decoder such as BART or T5, whose head sees the decoder's state at the last end.

    The decoder reads the text, too, moved on by one token. transformers' own code does both in
    ways that no graph can hold.
    """

    def __init__(self, source: Source, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(source, dtype)
        # torch.onnx cannot export how the other implementations add T5's bias of positions.
        self.model.set_attn_implementation("eager")

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,  # noqa: ARG002  # none of these models takes it
        *windows: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """As PaddedClassifier's; the embedding is made of the decoder's last hidden state."""
        model: Any = self.model
        hidden = model.base_model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input(input_ids, model.config),
            use_cache=False,
        ).last_hidden_state
        position = torch.arange(input_ids.shape[1])
        last = (position * (input_ids == model.config.eos_token_id)).amax(1)
        logits = model.classification_head(hidden[torch.arange(input_ids.shape[0]), last])
        return self.answer(logits, hidden, attention_mask, *windows)


def decoder_input(input_ids: torch.Tensor, config: "PretrainedConfig") -> torch.Tensor:
    """The tokens moved on by one, behind a token to start with: mBART's is the text's last one."""
    if config.model_type in ("mbart", "plbart"):
        last = (input_ids != config.pad_token_id).sum(1, keepdim=True) - 1
        start = input_ids.gather(1, last)
    else:
        start = torch.full_like(input_ids[:, :1], config.decoder_start_token_id)
    return torch.cat([start, input_ids[:, :-1]], dim=1)


def padded_body(source: Source, dtype: torch.dtype) -> PaddedClassifier:
    """The classifier as torch.onnx can export it."""
    kind = PaddedClassifier
    if pools_last_token(source.model):
        kind = LastTokenClassifier
    elif pools_end_token(source.model):
        kind = EndTokenClassifier
    return kind(source, dtype)


def pools_end_token(model: "PreTrainedModel") -> bool:
    """Whether it is one of transformers' encoder-decoders with a head for the end token."""
    return (
        not has_own_code(model)
        and bool(getattr(model.config, "is_encoder_decoder", False))
        and hasattr(model, "classification_head")
    )


def pools_last_token(model: "PreTrainedModel") -> bool:
    """Whether it is one of transformers' decoders, which give the last token to `score`."""
    return not has_own_code(model) and isinstance(getattr(model, "score", None), nn.Linear)


def may_be_last(input_ids: torch.Tensor, config: "PretrainedConfig") -> torch.Tensor:
    """Which tokens a decoder's head may take, 1 or 0: all but padding, even if a text ends in it.

    So transformers finds the last token; without a padding id it is the last one of all.
    """
    padding = config.get_text_config().pad_token_id
    return torch.ones_like(input_ids) if padding is None else (input_ids != padding).long()


def activation(config: "PretrainedConfig") -> nn.Module:
    """From logits to scores, by the configuration's `problem_type`.

    A head of one output without a problem type is a regression: its value is the score, unless the
    sentence-transformers library, which most rerankers come from, wrote down a sigmoid for it.
    """
    if config.problem_type == "multi_label_classification":
        return nn.Sigmoid()
    if config.problem_type == "regression":
        return nn.Identity()
    if config.num_labels == 1:
        named = (getattr(config, "sentence_transformers", None) or {}).get("activation_fn")
        # Before its version 4.
        named = named or getattr(config, "sbert_ce_default_activation_function", None) or ""
        return nn.Sigmoid() if named.endswith(".Sigmoid") else nn.Identity()
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
    logits: torch.Tensor, to_scores: nn.Module, embedding: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Logits [items, classes], embedding [items, hidden] -> TENSOR_OUTPUTS, class order."""
    probabilities = to_scores(logits)
    # TopK of all classes: sorted, and equal scores in class order.
    scores, order = torch.topk(probabilities, probabilities.shape[-1], dim=-1)
    return scores, probabilities, logits, embedding, order
