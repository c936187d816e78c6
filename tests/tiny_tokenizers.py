"""Small tokenizers of every kind, in transformers' own classes, trained on some titles.

A model's files may be those of a fast tokenizer, or only what is older: word lists, merges, a
SentencePiece model.
"""

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache

import sentencepiece
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from text_pipeline.default_model import corpus

VOCABULARY = 600
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

Files = Mapping[str, bytes]


@cache
def word_piece(
    kind: type = transformers.BertTokenizer, special: Sequence[str] = BERT
) -> transformers.PreTrainedTokenizerFast:
    """BERT's kind: words in pieces, lower case."""
    return kind(vocab=_word_pieces(special))


@cache
def byte_level(
    kind: type = transformers.RobertaTokenizer, special: Sequence[str] = ROBERTA, **settings: str
) -> transformers.PreTrainedTokenizerFast:
    """GPT-2's and RoBERTa's kind: pairs of bytes, no unknown token."""
    vocabulary, merges = _byte_pairs(special)
    return kind(vocab=vocabulary, merges=merges, **settings)


@cache
def unigram(kind: type, special: Sequence[str]) -> transformers.PreTrainedTokenizerFast:
    """SentencePiece's kind: the likeliest pieces of a text."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(special),
        unk_token=_unknown(special),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus.short(500), trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    return kind(vocab=[(piece, score) for piece, score in pieces])


def word_list() -> Files:
    """The only file of a slow BERT tokenizer."""
    pieces = _word_pieces(BERT)
    return {"vocab.txt": "\n".join(sorted(pieces, key=lambda piece: pieces[piece])).encode()}


def merges_and_vocabulary() -> Files:
    """The files of a slow RoBERTa or GPT-2 tokenizer."""
    vocabulary, merges = _byte_pairs(ROBERTA)
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    return {
        "vocab.json": json.dumps(vocabulary).encode(),
        "merges.txt": "\n".join(lines).encode(),
    }


def sentence_piece(name: str, configuration: Mapping[str, object], **settings: object) -> Files:
    """A SentencePiece model alone, with what the tokenizer's configuration says."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus.short(500)),
        model_writer=model,
        vocab_size=VOCABULARY - 10,
        num_threads=1,
        minloglevel=2,
        **settings,
    )
    return {name: model.getvalue(), "tokenizer_config.json": json.dumps(configuration).encode()}


@cache
def _word_pieces(special: Sequence[str]) -> dict[str, int]:
    tokenizer = Tokenizer(models.WordPiece(unk_token=_unknown(special)))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=list(special), show_progress=False
    )
    tokenizer.train_from_iterator(corpus.short(500), trainer)
    return tokenizer.get_vocab()


@cache
def _byte_pairs(special: Sequence[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus.short(500), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return tokenizer.get_vocab(), [tuple(pair) for pair in merges]


def _unknown(special: Sequence[str]) -> str:
    return next(token for token in special if "unk" in token.lower())
