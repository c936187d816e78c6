"""Tiny random classifiers with real tokenizers: every architecture in a second."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from text_pipeline import corpus

VOCABULARY = 600
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
# Large weights, so that a wrong position, mask or segment moves the logits far beyond rounding.
WEIGHT_SCALE = 0.3


@cache
def byte_level_bpe() -> transformers.PreTrainedTokenizerFast:
    """A RoBERTa-type tokenizer: byte-level BPE, `<s> … </s>`, padding id 1, no segments."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus.short(500), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip


@cache
def word_piece() -> transformers.PreTrainedTokenizerFast:
    """A BERT-type tokenizer: WordPiece, `[CLS] … [SEP]`, padding id 0, segments."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(corpus.short(500), trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]",
        mask_token="[MASK]",
    )  # fmt: skip


def save(
    directory: Path,
    config: transformers.PretrainedConfig,
    tokenizer: transformers.PreTrainedTokenizerFast,
) -> Path:
    """A random model of this configuration as a Hugging Face directory."""
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, WEIGHT_SCALE)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def bert(directory: Path, **settings: Any) -> Path:
    """A tiny BERT; `settings` go into its configuration."""
    return save(directory, transformers.BertConfig(**SIZES | settings), word_piece())


def roberta(directory: Path, **settings: Any) -> Path:
    """A tiny RoBERTa: 128 rows of positions, of which 126 are usable."""
    config = transformers.RobertaConfig(
        **SIZES | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2} | settings
    )
    return save(directory, config, byte_level_bpe())


def _roberta_ids(config: type[transformers.PretrainedConfig]) -> transformers.PretrainedConfig:
    return config(**SIZES, pad_token_id=1, bos_token_id=0, eos_token_id=2)


def modern_bert(pooling: str = "mean") -> transformers.ModernBertConfig:
    """A layer that sees all tokens and one with a window of 4 to both sides."""
    return transformers.ModernBertConfig(
        **SIZES, pad_token_id=0, local_attention=8, global_attn_every_n_layers=2,
        classifier_pooling=pooling,
    )  # fmt: skip


def deberta(**settings: Any) -> transformers.DebertaV2Config:
    """With both kinds of relative attention."""
    return transformers.DebertaV2Config(
        **SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"], **settings
    )


# name: configuration and tokenizer
ARCHITECTURES: Mapping[str, Callable[[], tuple[Any, Any]]] = {
    "albert": lambda: (
        transformers.AlbertConfig(**SIZES, embedding_size=16, num_hidden_groups=1),
        word_piece(),
    ),
    "bert": lambda: (transformers.BertConfig(**SIZES), word_piece()),
    "camembert": lambda: (_roberta_ids(transformers.CamembertConfig), byte_level_bpe()),
    "distilbert": lambda: (
        transformers.DistilBertConfig(
            vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=2, n_heads=4,
            max_position_embeddings=128,
        ),
        word_piece(),
    ),
    "electra": lambda: (transformers.ElectraConfig(**SIZES, embedding_size=16), word_piece()),
    "roberta": lambda: (_roberta_ids(transformers.RobertaConfig), byte_level_bpe()),
    "xlm-roberta": lambda: (_roberta_ids(transformers.XLMRobertaConfig), byte_level_bpe()),
    "modernbert": lambda: (modern_bert(), word_piece()),
    "mpnet": lambda: (_roberta_ids(transformers.MPNetConfig), byte_level_bpe()),
    "deberta-v2": lambda: (deberta(position_biased_input=True, type_vocab_size=2), word_piece()),
    # As the published DeBERTa v3 models: logarithmic buckets of distances, shared projections.
    "deberta-v3": lambda: (
        deberta(
            position_biased_input=False, type_vocab_size=0, position_buckets=8, share_att_key=True,
            norm_rel_ebd="layer_norm",
        ),
        word_piece(),
    ),
    # Not packed.
    "rembert": lambda: (
        transformers.RemBertConfig(**SIZES, input_embedding_size=16, output_embedding_size=16),
        word_piece(),
    ),
    "deberta-conv": lambda: (
        deberta(position_biased_input=False, type_vocab_size=0, conv_kernel_size=3), word_piece()
    ),
}  # fmt: skip


def architecture(directory: Path, name: str) -> Path:
    """A tiny model of one of ARCHITECTURES."""
    return save(directory, *ARCHITECTURES[name]())


def labelled(labels: Sequence[str]) -> Mapping[str, Any]:
    """The configuration settings for these labels."""
    return {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}}
