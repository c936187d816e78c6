"""The model to export: a Hugging Face sequence classifier, checked before anything is built."""

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from text_pipeline.errors import TextPipelineError, cause
from text_pipeline.export import declared, folder
from text_pipeline.export.labels import labels_in_order
from text_pipeline.export.limits import usable_tokens
from text_pipeline.export.pooling import Pooling

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclass(frozen=True)
class Source:
    """A classifier in PyTorch, its tokenizer, and what the export needs to know of them."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerFast"
    labels: list[str]
    """In class order."""
    max_tokens: int
    """Longest input the model takes, special tokens included."""
    pooling: Pooling = field(default_factory=Pooling)
    """How its embeddings are made."""

    @property
    def takes_segments(self) -> bool:
        """Whether the model is given token_type_ids, as `model(**tokenizer(text))` would."""
        return "token_type_ids" in self.tokenizer.model_input_names and (
            "token_type_ids" in inspect.signature(self.model.forward).parameters
        )

    @property
    def takes_pairs(self) -> bool:
        """Whether there is a segment for the second text of a pair."""
        return not self.takes_segments or getattr(self.model.config, "type_vocab_size", 0) != 1

    def save_tokenizer(self, directory: Path) -> None:
        """Writes what the server reads: `tokenizer.json` as it works now, and the limit.

        In transformers' plain class, which needs no code of the model's own and takes the file as
        it is, where others make parts of it anew.
        """
        from transformers import PreTrainedTokenizerFast

        PreTrainedTokenizerFast(
            tokenizer_object=self.tokenizer.backend_tokenizer,
            model_max_length=self.max_tokens,
            model_input_names=self.tokenizer.model_input_names,
            pad_token=self.tokenizer.pad_token,
            split_special_tokens=self.tokenizer.split_special_tokens,
        ).save_pretrained(directory)


def has_own_code(model: "PreTrainedModel") -> bool:
    """Whether the model's class came with it (auto_map) and is none of transformers'."""
    return not type(model).__module__.startswith("transformers.")


def load(model_id: str, max_tokens: int | None = None, trust_remote_code: bool = False) -> Source:
    """Loads a local directory or a hub id; raises TextPipelineError with the cause in one line.

    `trust_remote_code` lets the model's own code run, if it brings some.
    """
    path = Path(model_id)
    is_hub_id = not model_id.startswith((".", "/")) and model_id.count("/") == 1
    is_local = path.exists() or not is_hub_id
    try:
        if path.is_dir() or not is_local:
            declared.check_adapter(model_id)
        if is_local:
            folder.check(path)
        return _load(model_id, max_tokens, trust_remote_code)
    except TextPipelineError as error:
        is_named = str(error).startswith(model_id)
        raise TextPipelineError(str(error) if is_named else f"{model_id}: {error}") from error
    except Exception as error:  # transformers, and a model's own code, raise anything
        raise TextPipelineError(f"{model_id}: {_reason(error)}") from error


def _load(model_id: str, max_tokens: int | None, trust_remote_code: bool) -> Source:
    import transformers

    declared.check(model_id, trust_remote_code)
    # Alone, for the tokenizer's loader reads it, too, and would be blamed.
    transformers.AutoConfig.from_pretrained(model_id, trust_remote_code=trust_remote_code)
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        model_id,
        dtype="float32",
        ignore_mismatched_sizes=True,  # reported below, with both shapes
        output_loading_info=True,
        trust_remote_code=trust_remote_code,
    )
    _check_weights(info)
    tokenizer = _load_tokenizer(model_id, trust_remote_code)
    _check_vocabulary(model, tokenizer)
    limit = usable_tokens(model, tokenizer, max_tokens)
    _attend_in_full(model, limit)
    return Source(model.eval(), tokenizer, labels_in_order(model.config.id2label), limit)


def _load_tokenizer(model_id: str, trust_remote_code: bool) -> "PreTrainedTokenizerFast":
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            model_id, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # each reader of a tokenizer's files has its own
        raise TextPipelineError(
            "has no tokenizer that can be loaded (tokenizer.json): "
            f"{' '.join(str(error).split()) or cause(error)}"
        ) from error
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        raise TextPipelineError("has no fast tokenizer (tokenizer.json)")
    if tokenizer.truncation_side != "right":
        raise TextPipelineError(
            "its tokenizer cuts long texts at the beginning (truncation_side), which "
            'the served one does not: write "truncation_side": "right" into tokenizer_config.json'
        )
    return tokenizer


def _reason(error: Exception) -> str:
    """What transformers says itself; what the files' readers say fills a page, and names none."""
    from safetensors import SafetensorError

    text = " ".join(str(error).split())
    is_of_weights = isinstance(error, EOFError | UnpicklingError | SafetensorError)
    is_of_weights |= isinstance(error, RuntimeError) and "PytorchStreamReader" in text
    is_of_weights |= isinstance(error, OSError) and bool(error.errno) and error.filename is None
    if is_of_weights:
        return f"its weights cannot be read ({text.split('. ')[0]}): download them again"
    is_transformers_own = isinstance(error, ImportError | ValueError) or type(error) is OSError
    return (
        text
        if text and is_transformers_own
        else f"cannot be loaded as config.json describes it ({cause(error)})"
    )


def _attend_in_full(model: "PreTrainedModel", limit: int) -> None:
    """Has BigBird attend to all tokens, as it does by itself for texts that are short enough."""
    config = model.config
    if config.model_type != "big_bird" or config.attention_type == "original_full":
        return
    longest = (5 + 2 * config.num_random_blocks) * config.block_size
    if limit > longest:
        raise TextPipelineError(
            f"attends to texts of more than {longest} tokens in random blocks, which "
            f"ONNX cannot express: give --max-tokens {longest}, or write "
            '"attention_type": "original_full" into config.json'
        )
    model.base_model.set_attention_type("original_full")  # type: ignore[operator]  # BigBird's own


def _check_vocabulary(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast") -> None:
    # Without any of its files, transformers makes a tokenizer of nothing.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise TextPipelineError(
            "has no tokenizer (tokenizer.json): add that of the model from which it was trained"
        )
    table = model.get_input_embeddings()
    rows = len(table.weight)  # type: ignore[arg-type]  # for mypy it may be a module, too
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise TextPipelineError(
            f"tokenizer.json has token ids up to {largest}, the model's embedding "
            f"table {rows} rows: it is the tokenizer of another model"
        )


def _check_weights(info: dict) -> None:
    for name, found, expected in info["mismatched_keys"]:
        raise TextPipelineError(
            f"weight {name} has shape {list(found)}, "
            f"but config.json (id2label, sizes) asks for {list(expected)}"
        )
    if missing := sorted(info["missing_keys"]):
        raise TextPipelineError(
            f"no trained weights for {', '.join(missing)}; they would be random numbers"
        )
