"""How many tokens a model takes: what its files state, what its position tables hold."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from text_pipeline.errors import TextPipelineError, cause

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

NO_LIMIT = 10**9
"""transformers writes a model_max_length of 1e30 when a tokenizer states no limit."""
_PROBED = 4
"""Tokens of the text that shows which tables hold positions."""


def usable_tokens(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast", requested: int | None
) -> int:
    """The smallest of the tokenizer's limit, the model's, its position tables' and the requested.

    Raises TextPipelineError, with the file, for one that is no number of tokens, or of so few that
    the special ones leave no room for a text.
    """
    special = tokenizer.num_special_tokens_to_add(pair=False)
    named = getattr(model.config, "attribute_map", {}).get("max_position_embeddings")
    stated = {
        "model_max_length in tokenizer_config.json": tokenizer.model_max_length,
        f"{named or 'max_position_embeddings'} in config.json": getattr(
            model.config, "max_position_embeddings", None
        ),
        "--max-tokens": requested,
    }
    limits = {name: stated_limit(name, value, special) for name, value in stated.items()}
    if rows := position_rows(model, len(tokenizer)):
        name = "the number of positions that the model has weights for"
        limits[name] = stated_limit(name, rows, special)
    found = {name: limit for name, limit in limits.items() if limit is not None}
    reason = min(found, key=lambda name: found[name], default=None)
    if reason is None:
        raise TextPipelineError("neither model nor tokenizer states a limit: give --max-tokens N")
    if requested is not None and found[reason] < requested:
        raise TextPipelineError(f"--max-tokens {requested} exceeds {reason}, {found[reason]}")
    return found[reason]


def stated_limit(name: str, value: Any, special: int) -> int | None:
    """A limit as a number of tokens; None for the ways to write that there is none.

    `special` is how many tokens the tokenizer adds to a text, `name` says where the value is from.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or value == -1 or (is_number and value >= NO_LIMIT):
        return None
    if not is_number or value != value // 1:
        raise TextPipelineError(
            f"{name} is {json.dumps(value, default=str)}, expected a whole number"
        )
    if value <= special:
        raise TextPipelineError(
            f"{name} is {value}, expected at least {special + 1}: {special} special tokens and one "
            "of a text"
        )
    return int(value)


def position_rows(model: "PreTrainedModel", vocabulary: int) -> int | None:
    """How many tokens the model's smallest table of positions has rows for; None without one.

    Many models leave the first rows out: RoBERTa those up to its padding id, BART two. So the
    model is asked which rows it reads: where the last one moves on with one more token, they are
    positions. `vocabulary` is the number of token ids.
    """
    token = _token(model, vocabulary)
    shorter, longer = (_rows_read(model, [token] * n) for n in (_PROBED, _PROBED + 1))
    rows = [
        table - (last - (_PROBED - 1))
        for (table, last), (_, last_of_longer) in zip(shorter, longer, strict=False)
        if last_of_longer == last + 1
    ]
    return min(rows, default=None)


def _token(model: "PreTrainedModel", vocabulary: int) -> int:
    """The end of a text, for which BART's head looks, or else any but padding.

    In some models padding has no position.
    """
    config = model.config.get_text_config()
    candidates = (getattr(config, "eos_token_id", None), *range(vocabulary))
    return next(
        token
        for token in candidates
        if isinstance(token, int) and token < vocabulary and token != config.pad_token_id
    )


def _rows_read(model: "PreTrainedModel", tokens: list[int]) -> list[tuple[int, int]]:
    """Of every look-up for a text of these tokens: the table's rows, the last one read."""
    with _Lookups() as lookups, torch.inference_mode():
        try:
            model.eval()(input_ids=torch.tensor([tokens]))
        except Exception as error:  # PyTorch and transformers raise anything
            raise TextPipelineError(
                f"{type(model).__name__} cannot run in PyTorch ({cause(error)})"
            ) from error
    return lookups.found


class _Lookups(TorchDispatchMode):
    """Notes which rows of tables are read, for those that are read once for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.embedding.default:
            table, index = args[:2]
            # Tables of distances, such as T5's, are read for every pair of tokens.
            if index.dim() and index.numel() == index.shape[-1]:
                self.found.append((table.shape[0], int(index.max())))
        return func(*args, **(kwargs or {}))
