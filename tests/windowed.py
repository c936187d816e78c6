"""What a model answers to a text in windows: as transformers makes them, in PyTorch, the mean."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from text_pipeline.contract import TOKEN_INPUTS
from text_pipeline.export.heads import activation
from text_pipeline.export.source import Source

OUTPUTS = ("logits", "probabilities", "embedding")


@dataclass(frozen=True)
class Windowed:
    """A text's windows, as transformers' tokenizer makes them, and the answer to them."""

    windows: list[dict[str, list[int]]]
    logits: np.ndarray
    probabilities: np.ndarray
    embedding: np.ndarray

    @property
    def tokens(self) -> int:
        """Of all windows, special ones included."""
        return sum(len(window["input_ids"]) for window in self.windows)


def reference(source: Source, text: str, max_tokens: int, stride: int = 0) -> Windowed:
    """Every window alone in PyTorch, then the means, weighted by the windows' tokens."""
    encoded = source.tokenizer(
        text, truncation=True, max_length=max_tokens, stride=stride, return_overflowing_tokens=True
    )
    names = [name for name in source.tokenizer.model_input_names if name in encoded]
    windows = [
        {name: encoded[name][number] for name in names}
        for number in range(len(encoded["input_ids"]))
    ]
    logits, hidden = [], []
    for window in windows:
        inputs = {name: torch.tensor([values]) for name, values in window.items()}
        with torch.inference_mode():
            output = source.model(**inputs, output_hidden_states=True)
        logits.append(output.logits[0])
        states = getattr(output, "decoder_hidden_states", None) or output.hidden_states
        last = states[-1][0]
        hidden.append({"mean": last.mean(0), "cls": last[0], "last": last[-1]}[source.pooling.mode])
    tokens = torch.tensor([len(window["input_ids"]) for window in windows])
    mean, pooled = ((torch.stack(v).T @ (tokens / tokens.sum())) for v in (logits, hidden))
    return Windowed(
        windows,
        mean.numpy(),
        activation(source.model.config)(mean).numpy(),
        (pooled / pooled.norm() if source.pooling.normalize else pooled).numpy(),
    )


def ragged_feed(items: Sequence[Windowed], is_one_request: bool) -> dict[str, np.ndarray]:
    """The graph's inputs; the items of one request are padded to the longest."""
    length = max(item.tokens for item in items) if is_one_request else 0
    rows = []
    for item in items:
        row = dict.fromkeys(TOKEN_INPUTS, np.zeros(max(length, item.tokens), np.int64))
        for name in TOKEN_INPUTS:
            values = [
                window.get(name, [0] * len(window["input_ids"]))
                if name != "attention_mask"
                else [number] * len(window["input_ids"])
                for number, window in enumerate(item.windows, start=1)
            ]
            row[name] = np.pad(np.concatenate(values), (0, len(row[name]) - item.tokens))
        rows.append(row)
    feed = {name: np.concatenate([row[name] for row in rows]) for name in TOKEN_INPUTS}
    lengths = [len(row["input_ids"]) for row in rows]
    return feed | {"item_length": np.array(lengths, np.int32)}
