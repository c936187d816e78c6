"""Packed attention for architectures that take no attention function.

MPNet and DeBERTa prepare something for every pair of tokens of one row, so for pairs from different
items, too. Here it is made once for the positions of the longest item, of which every item takes
the beginning.
"""

from typing import Any

import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position
from transformers.models.longformer.modeling_longformer import LongformerBaseModelOutput


def hiding(pairs: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The bias, [1, 1, longest, longest], that hides from each position those where it is true."""
    return pairs[None, None].to(dtype) * torch.finfo(dtype).min


def replace_mpnet_attention(classifier: Any, encoder: Any) -> None:
    """Adds MPNet's bias inside items; `classifier` is a PackedClassifier."""
    bias_of = encoder.compute_position_bias
    encoder.compute_position_bias = lambda _: bias_of(classifier.positions())
    for layer in encoder.layer:
        layer.attention.attn.forward = _mpnet_attention(classifier, layer.attention.attn)


def _mpnet_attention(classifier: Any, module: Any) -> Any:
    def forward(
        hidden: torch.Tensor, mask: Any, position_bias: torch.Tensor, **_: Any
    ) -> tuple[torch.Tensor]:
        heads = module.num_attention_heads
        query, key, value = (p(hidden) for p in (module.q, module.k, module.v))
        attended = classifier.attend(query, key, value, heads, None, position_bias)
        return (module.o(attended),)

    return forward


def replace_deberta_attention(classifier: Any, encoder: Any) -> None:
    """DeBERTa's attention to content and distance inside items, for CPU."""
    with torch.no_grad():
        embeddings = encoder.get_rel_embedding()
        for layer in encoder.layer:
            layer.attention.self.forward = _deberta_attention(
                classifier, layer.attention.self, embeddings
            )
    encoder.get_rel_pos = lambda *_: build_relative_position(
        classifier.positions(),
        classifier.positions(),
        encoder.position_buckets,
        encoder.max_relative_positions,
    )


def _deberta_attention(classifier: Any, module: Any, embeddings: torch.Tensor) -> Any:
    heads, span = module.num_attention_heads, module.pos_ebd_size
    distances = embeddings[: 2 * span]

    def prepared(projection: Any) -> torch.Tensor:
        """[distances, hidden] -> [heads, head size, distances]."""
        return projection(distances).view(2 * span, heads, -1).permute(1, 2, 0).contiguous()

    # They depend on nothing but weights.
    shares = module.share_att_key
    position_key = prepared(module.key_proj if shares else module.pos_key_proj)
    position_query = prepared(module.query_proj if shares else module.pos_query_proj)

    def forward(
        hidden: torch.Tensor, mask: Any, *_: Any, relative_pos: torch.Tensor, **__: Any
    ) -> tuple[torch.Tensor, None]:
        distance = relative_pos[0]
        inputs = (
            *(p(hidden) for p in (module.query_proj, module.key_proj, module.value_proj)),
            *classifier.groups(),
            position_key,
            position_query,
            torch.clamp(distance + span, 0, 2 * span - 1),
            torch.clamp(span - distance, 0, 2 * span - 1),
        )
        attended = torch.onnx.ops.symbolic(
            "text_pipeline::DisentangledPackedAttention",
            inputs,
            # Three kinds of scores are added.
            {
                "hidden_size": hidden.shape[-1],
                "num_heads": heads,
                "scale": (3 * module.attention_head_size) ** -0.5,
            },
            dtype=hidden.dtype,
            shape=hidden.shape,
            version=1,
        )
        return attended, None

    return forward


def replace_longformer_attention(classifier: Any, encoder: Any) -> None:
    """A window around every token, and the first token, which sees all and is seen by all.

    Longformer computes the same in pieces of fixed length, for which it pads every text.
    """
    model = classifier.model.base_model

    def embed_and_encode(input_ids: torch.Tensor, **inputs: Any) -> LongformerBaseModelOutput:
        given = {name: inputs.get(name) for name in ("position_ids", "token_type_ids")}
        hidden = model.embeddings(input_ids=input_ids, **given)
        return LongformerBaseModelOutput(last_hidden_state=encoder(hidden))

    def encode(hidden: torch.Tensor) -> torch.Tensor:
        for layer in encoder.layer:
            (hidden,) = layer(hidden)
        return hidden

    model.forward, encoder.forward = embed_and_encode, encode
    for layer in encoder.layer:
        module = layer.attention.self
        module.forward = _longformer_attention(classifier, module)


def _longformer_attention(classifier: Any, module: Any) -> Any:
    def forward(hidden: torch.Tensor, **_: Any) -> tuple[torch.Tensor]:
        def attend(kind: str, bias: torch.Tensor | None) -> torch.Tensor:
            query, key, value = (
                module.get_submodule(f"{name}{kind}")(hidden) for name in ("query", "key", "value")
            )
            return classifier.attend(query, key, value, module.num_heads, None, bias)

        is_far = classifier.distance().abs() > module.one_sided_attn_window_size
        is_first = classifier.batch["position"] == 0
        local = attend("", hiding(is_far & ~is_first, hidden.dtype))
        attended = torch.where(
            (classifier.batch["token_position"] == 0)[None, :, None],
            attend("_global", None),
            local,
        )
        return (attended,)

    return forward
