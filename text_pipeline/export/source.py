"""The model to export: a Hugging Face sequence classifier, checked before anything is built."""

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from text_pipeline.errors import TextPipelineError
from text_pipeline.export import folder
from text_pipeline.export.pooling import Pooling

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

# transformers writes a model_max_length of 1e30 when a tokenizer states no limit.
NO_LIMIT = 10**9


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
    import transformers
    from safetensors import SafetensorError

    is_hub_id = not model_id.startswith((".", "/")) and model_id.count("/") == 1
    if Path(model_id).exists() or not is_hub_id:
        folder.check(Path(model_id))
    try:
        own_code = _own_code(model_id)
        if own_code and not trust_remote_code:
            raise TextPipelineError(
                f"{model_id}: brings code of its own ({', '.join(own_code)}, auto_map in its "
                "configuration): read it, and give --trust-remote-code to run it"
            )
        config = transformers.AutoConfig.from_pretrained(
            model_id, trust_remote_code=trust_remote_code
        )
        _check_architecture(model_id, config)
        model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
            model_id,
            dtype="float32",
            ignore_mismatched_sizes=True,  # reported below, with both shapes
            output_loading_info=True,
            trust_remote_code=trust_remote_code,
        )
    except (
        ImportError,
        OSError,
        ValueError,
        RuntimeError,
        EOFError,
        UnpicklingError,
        SafetensorError,
    ) as error:
        raise TextPipelineError(f"{model_id}: {_reason(error)}") from error
    _check_weights(model_id, info)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            model_id, trust_remote_code=trust_remote_code
        )
    except (ImportError, OSError, ValueError) as error:
        raise TextPipelineError(
            f"{model_id}: has no tokenizer that can be loaded (tokenizer.json): "
            f"{' '.join(str(error).split())}"
        ) from error
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        raise TextPipelineError(f"{model_id}: has no fast tokenizer (tokenizer.json)")
    if tokenizer.truncation_side != "right":
        raise TextPipelineError(
            f"{model_id}: its tokenizer cuts long texts at the beginning (truncation_side), which "
            'the served one does not: write "truncation_side": "right" into tokenizer_config.json'
        )
    _check_vocabulary(model_id, model, tokenizer)
    limit = usable_tokens(model, tokenizer, max_tokens)
    _attend_in_full(model_id, model, limit)
    labels = labels_in_order(model.config.id2label)
    return Source(model.eval(), tokenizer, labels, limit)


def _reason(error: Exception) -> str:
    """What transformers says itself; what the files' readers say fills a page, and names none."""
    text = " ".join(str(error).split())
    if isinstance(error, ImportError | ValueError) or (
        isinstance(error, OSError) and error.errno is None
    ):
        return text
    return f"its weights cannot be read ({text.split('. ')[0]}): download them again"


def labels_in_order(id2label: dict[int | str, str]) -> list[str]:
    """The labels by integer key, "10" after "2"; a gap would shift every label behind it."""
    by_class = {int(key): label for key, label in id2label.items()}
    expected = list(range(len(by_class)))
    if sorted(by_class) != expected:
        missing = sorted(set(range(max(by_class) + 1)) - set(by_class))
        raise TextPipelineError(
            f"id2label has {len(by_class)} labels with keys up to {max(by_class)}: "
            f"missing {', '.join(map(str, missing))}"
        )
    return [by_class[index] for index in expected]


def usable_tokens(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast", requested: int | None
) -> int:
    """The smallest of the tokenizer's limit, the position table's and the requested one.

    RoBERTa-type models number positions from `padding_idx + 1`, so their table has fewer usable
    rows than `max_position_embeddings`.
    """
    from torch import nn

    limits = {"the tokenizer's model_max_length": tokenizer.model_max_length}
    if declared := getattr(model.config, "max_position_embeddings", None):
        limits["the model's max_position_embeddings"] = declared
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            limits["the model's position table"] = module.num_embeddings - first
    reason = min(limits, key=lambda name: limits[name])
    limit = limits[reason]
    if requested is not None:
        if requested > limit:
            raise TextPipelineError(f"--max-tokens {requested} exceeds {reason}, {limit}")
        return requested
    if limit >= NO_LIMIT:
        raise TextPipelineError("neither model nor tokenizer states a limit: give --max-tokens N")
    return limit


def _own_code(model_id: str) -> list[str]:
    """The files with code that the model's and the tokenizer's configuration name."""
    import transformers
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    config, _ = transformers.PretrainedConfig.get_config_dict(model_id)
    files = set()
    for declared in (config, get_tokenizer_config(model_id)):
        auto_map = declared.get("auto_map") or {}
        # Old ones are the tokenizer's alone, which has two classes, a slow one and a fast one.
        for names in auto_map.values() if isinstance(auto_map, dict) else [auto_map]:
            classes = [names] if isinstance(names, str) else names
            files |= {f"{name.rpartition('.')[0]}.py" for name in classes if name}
    return sorted(files)


def _attend_in_full(model_id: str, model: "PreTrainedModel", limit: int) -> None:
    """Has BigBird attend to all tokens, as it does by itself for texts that are short enough."""
    config = model.config
    if config.model_type != "big_bird" or config.attention_type == "original_full":
        return
    longest = (5 + 2 * config.num_random_blocks) * config.block_size
    if limit > longest:
        raise TextPipelineError(
            f"{model_id}: attends to texts of more than {longest} tokens in random blocks, which "
            f"ONNX cannot express: give --max-tokens {longest}, or write "
            '"attention_type": "original_full" into config.json'
        )
    model.base_model.set_attention_type("original_full")  # type: ignore[operator]  # BigBird's own


def _check_architecture(model_id: str, config: "PretrainedConfig") -> None:
    architectures = config.architectures or []
    if "AutoModelForSequenceClassification" in (getattr(config, "auto_map", None) or {}):
        return
    if not any(name.endswith("ForSequenceClassification") for name in architectures):
        raise TextPipelineError(
            f"{model_id}: architectures in config.json is {architectures}, "
            "expected one that ends in ForSequenceClassification: train it as a classifier first"
        )


def _check_vocabulary(
    model_id: str, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast"
) -> None:
    # Without any of its files, transformers makes a tokenizer of nothing.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise TextPipelineError(
            f"{model_id}: has no tokenizer (tokenizer.json): add that of the model from which it "
            "was trained"
        )
    table = model.get_input_embeddings()
    rows = len(table.weight)  # type: ignore[arg-type]  # for mypy it may be a module, too
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise TextPipelineError(
            f"{model_id}: tokenizer.json has token ids up to {largest}, the model's embedding "
            f"table {rows} rows: it is the tokenizer of another model"
        )


def _check_weights(model_id: str, info: dict) -> None:
    for name, found, expected in info["mismatched_keys"]:
        raise TextPipelineError(
            f"{model_id}: weight {name} has shape {list(found)}, "
            f"but config.json (id2label, sizes) asks for {list(expected)}"
        )
    if missing := sorted(info["missing_keys"]):
        raise TextPipelineError(
            f"{model_id}: no trained weights for {', '.join(missing)}; they would be random numbers"
        )
