"""Packed attention for architectures with relative positions, which take no attention function.

Both prepare something for every pair of tokens of one row, so for pairs from different items, too.
Here it is made once for the positions of the longest item, of which every item takes the beginning.
"""

from typing import Any

import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position


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
