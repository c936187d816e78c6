"""Tiny random classifiers with real tokenizers: every architecture in a second."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from tests import tiny_tokenizers
from tests.tiny_tokenizers import BERT, VOCABULARY, byte_level, unigram, word_piece

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


def save(
    directory: Path,
    config: transformers.PretrainedConfig,
    tokenizer: transformers.PreTrainedTokenizerFast | tiny_tokenizers.Files,
) -> Path:
    """A random model of this configuration as a Hugging Face directory."""
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, WEIGHT_SCALE)
    model.save_pretrained(directory)
    if isinstance(tokenizer, Mapping):
        for name, content in tokenizer.items():
            (directory / name).write_bytes(content)
    else:
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
    return save(directory, config, byte_level())


def _roberta_ids(config: type, **settings: Any) -> transformers.PretrainedConfig:
    return config(**SIZES, pad_token_id=1, bos_token_id=0, eos_token_id=2, **settings)


def _deberta_v2() -> transformers.PreTrainedTokenizerFast:
    return unigram(transformers.DebertaV2Tokenizer, ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"))


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


def labelled(labels: Sequence[str]) -> Mapping[str, Any]:
    """The configuration settings for these labels."""
    return {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}}


def encoder_decoder(kind: type) -> Any:
    """BART's kind of configuration."""
    return kind(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_position_embeddings=128, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, decoder_start_token_id=2,
        **labelled(["entailment", "neutral", "contradiction"]),
    )  # fmt: skip


# name: configuration and tokenizer
ARCHITECTURES: Mapping[str, Callable[[], tuple[Any, Any]]] = {
    "albert": lambda: (
        transformers.AlbertConfig(**SIZES, embedding_size=16, num_hidden_groups=1),
        unigram(
            transformers.AlbertTokenizer, ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
        ),
    ),
    "bert": lambda: (transformers.BertConfig(**SIZES), tiny_tokenizers.word_list()),
    "camembert": lambda: (
        transformers.CamembertConfig(**SIZES, pad_token_id=1, bos_token_id=5, eos_token_id=6),
        unigram(
            transformers.CamembertTokenizer,
            (
                "<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>",
                "<mask>",
            ),
        ),
    ),
    "distilbert": lambda: (
        transformers.DistilBertConfig(
            vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=2, n_heads=4,
            max_position_embeddings=128,
        ),
        word_piece(),
    ),
    "electra": lambda: (
        transformers.ElectraConfig(**SIZES, embedding_size=16),
        word_piece(transformers.ElectraTokenizer),
    ),
    "roberta": lambda: (
        _roberta_ids(transformers.RobertaConfig), tiny_tokenizers.merges_and_vocabulary()
    ),
    "xlm-roberta": lambda: (
        _roberta_ids(transformers.XLMRobertaConfig),
        tiny_tokenizers.sentence_piece("sentencepiece.bpe.model", {}),
    ),
    # Byte-level BPE between [CLS] and [SEP], as DeBERTa's.
    "modernbert": lambda: (modern_bert(), byte_level(transformers.DebertaTokenizer, BERT)),
    "mpnet": lambda: (
        _roberta_ids(transformers.MPNetConfig),
        word_piece(transformers.MPNetTokenizer, ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")),
    ),
    "longformer": lambda: (
        _roberta_ids(transformers.LongformerConfig, attention_window=[4, 8]), byte_level()
    ),
    "deberta-v2": lambda: (deberta(position_biased_input=True, type_vocab_size=2), _deberta_v2()),
    # As the published DeBERTa v3 models: logarithmic buckets of distances, shared projections.
    "deberta-v3": lambda: (
        deberta(
            position_biased_input=False, type_vocab_size=0, position_buckets=8, share_att_key=True,
            norm_rel_ebd="layer_norm",
        ),
        _deberta_v2(),
    ),
    # Without special tokens and padding id.
    "gpt2": lambda: (
        transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128,
            bos_token_id=0, eos_token_id=0,
        ),
        byte_level(transformers.GPT2Tokenizer, ("<|endoftext|>",)),
    ),
    "llama": lambda: (
        transformers.LlamaConfig(**SIZES, num_key_value_heads=2),
        tiny_tokenizers.sentence_piece(
            "tokenizer.model",
            {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "padding_side": "left"},
            model_type="bpe", byte_fallback=True,
        ),
    ),
    # With an end token behind every text, and a window over 4 tokens in the second layer.
    "mistral": lambda: (
        transformers.MistralConfig(
            **SIZES, num_key_value_heads=2, sliding_window=4, pad_token_id=1, bos_token_id=0,
            eos_token_id=2,
        ),
        byte_level(
            transformers.Qwen2Tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="</s>",
            add_eos_token=True,
        ),
    ),
    # The padding id is also the end of a text.
    "qwen2": lambda: (
        transformers.Qwen2Config(
            **SIZES, num_key_value_heads=2, use_sliding_window=True, sliding_window=4,
            max_window_layers=1, pad_token_id=0, bos_token_id=0, eos_token_id=0,
        ),
        byte_level(
            transformers.Qwen2Tokenizer, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
            padding_side="left",
        ),
    ),
    # Each head's query and key are normalised.
    "qwen3": lambda: (
        transformers.Qwen3Config(
            **SIZES, num_key_value_heads=2, head_dim=8, pad_token_id=0, bos_token_id=0,
            eos_token_id=0,
        ),
        byte_level(transformers.Qwen2Tokenizer, ("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
    ),
    # Not packed.
    "big_bird": lambda: (
        transformers.BigBirdConfig(**SIZES, block_size=16),
        unigram(
            transformers.BigBirdTokenizer,
            ("<pad>", "</s>", "<s>", "<unk>", "[SEP]", "[MASK]", "[CLS]"),
        ),
    ),
    "deberta": lambda: (
        transformers.DebertaConfig(
            **SIZES, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0,
            position_biased_input=False,
        ),
        byte_level(transformers.DebertaTokenizer, BERT),
    ),
    # An encoder-decoder, whose decoder starts with the text's last token.
    "mbart": lambda: (encoder_decoder(transformers.MBartConfig), byte_level()),
    "rembert": lambda: (
        transformers.RemBertConfig(**SIZES, input_embedding_size=16, output_embedding_size=16),
        word_piece(),
    ),
    "deberta-conv": lambda: (
        deberta(position_biased_input=False, type_vocab_size=0, conv_kernel_size=3), _deberta_v2()
    ),
}  # fmt: skip


ODD_LABELS = [
    "plain", "with space", "co:lon", "a:b:c", 'say "so"', "it's", "semi;colon", "comma, too",
    "back\\slash", "two\nlines", "naïve", "分类", "🙂",
]  # fmt: skip
MULTI_LABEL = {"problem_type": "multi_label_classification"}
SIGMOID_RERANKER = {
    "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
}
# Heads of every kind, each on one of the architectures; the others have two labels.
HEADS: Mapping[str, Mapping[str, Any]] = {
    "bert": labelled(ODD_LABELS),
    "distilbert": labelled([f"class {n}" for n in range(1000)]),
    "electra": labelled(["calm", "glad", "sad", "angry"]) | MULTI_LABEL,
    "albert": labelled(["toxic", "severe"]) | MULTI_LABEL,
    "roberta": labelled(["relevance"]),
    "mpnet": labelled(["relevance"]) | SIGMOID_RERANKER,
    "camembert": labelled(["stars"]) | {"problem_type": "regression"},
    "deberta-v3": labelled(["entailment", "neutral", "contradiction"]),
    "gpt2": labelled(ODD_LABELS),
}


def architecture(directory: Path, name: str) -> Path:
    """A tiny model of one of ARCHITECTURES."""
    config, tokenizer = ARCHITECTURES[name]()
    config.update(dict(HEADS.get(name, {})))
    return save(directory, config, tokenizer)
