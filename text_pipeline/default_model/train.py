"""Trains the default model's head: `python -m text_pipeline.default_model.train`.

A logistic regression on the encoder's pooled output, so that the head is a few kB and training it
takes some ten minutes on two cores. It learns whole articles, titles and paragraphs alike, because
people classify all three.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression

from text_pipeline.default_model.build import HEAD, load_encoder
from text_pipeline.default_model.corpus import (
    CLASSES,
    Article,
    held_out_articles,
    training_articles,
)


def pooled_outputs(texts: Sequence[str]) -> np.ndarray:
    """The pooler's output of every text, FP32 [texts, 384]."""
    model, tokenizer = load_encoder()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    pooled = np.empty((len(texts), model.config.hidden_size), np.float32)
    for start in track(range(0, len(order), 32), "Encoding"):
        rows = order[start : start + 32]
        batch = tokenizer(
            [texts[i] for i in rows],
            truncation=True,
            padding=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            pooled[rows] = model.bert(**batch).pooler_output.numpy()
    return pooled


def training_set(articles: Sequence[Article]) -> tuple[list[str], list[int]]:
    """Every article whole, its title, and its first two paragraphs, each with its class."""
    texts: list[str] = []
    targets: list[int] = []
    for article in articles:
        parts = [article.text, article.title, *article.paragraphs[:2]]
        texts += parts
        targets += [CLASSES.index(article.label)] * len(parts)
    return texts, targets


def train(path: Path = HEAD) -> float:
    """Writes the head to `path` and returns its accuracy on the held-out articles."""
    texts, targets = training_set(training_articles())
    regression = LogisticRegression(C=10, max_iter=2000)
    regression.fit(pooled_outputs(texts), targets)
    save_file(
        {
            "weight": torch.tensor(regression.coef_, dtype=torch.float32).contiguous(),
            "bias": torch.tensor(regression.intercept_, dtype=torch.float32).contiguous(),
        },
        path,
    )
    held_out = held_out_articles()
    predicted = regression.predict(pooled_outputs([article.text for article in held_out]))
    return float(np.mean([CLASSES[i] == a.label for i, a in zip(predicted, held_out, strict=True)]))


if __name__ == "__main__":
    print(f"accuracy on the held-out articles: {train():.3f}")
