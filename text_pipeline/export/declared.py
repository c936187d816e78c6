"""What the JSON files of a model declare, read before transformers makes anything of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from text_pipeline.errors import TextPipelineError
from text_pipeline.export.labels import labels_in_order

_PROBLEM_TYPES = (
    "regression",
    "single_label_classification",
    "multi_label_classification",
)
# What is read of config.json here and in heads.py; the rest transformers checks itself.
_KINDS: Mapping[str, tuple[type, str]] = {
    "architectures": (list, "a list of class names"),
    "auto_map": (dict, "an object"),
    "id2label": (dict, "an object with a name for each class number"),
    "sentence_transformers": (dict, "an object"),
    "sbert_ce_default_activation_function": (str, "the name of a class"),
}


def check(model_id: str, trust_remote_code: bool) -> None:
    """Raises TextPipelineError if a local folder or hub id declares what cannot be exported."""
    import transformers
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    config, _ = transformers.PretrainedConfig.get_config_dict(model_id)
    tokenizer_config = get_tokenizer_config(model_id)
    for name, content in (("config.json", config), ("tokenizer_config.json", tokenizer_config)):
        if not isinstance(content, dict):
            raise TextPipelineError(f"{name} holds {_shortened(content)}, expected an object")
    _check_kinds(config)
    own_code = sorted(_own_code(config) | _own_code(tokenizer_config))
    if own_code and not trust_remote_code:
        raise TextPipelineError(
            f"brings code of its own ({', '.join(own_code)}, auto_map in its configuration): read "
            "it, and give --trust-remote-code to run it"
        )
    _check_values(config)


def _check_kinds(config: Mapping[str, Any]) -> None:
    for name, (kind, expected) in _KINDS.items():
        value = config.get(name)
        if value is not None and not isinstance(value, kind):
            raise TextPipelineError(
                f"{name} in config.json is {_shortened(value)}, expected {expected}"
            )


def _check_values(config: Mapping[str, Any]) -> None:
    if (id2label := config.get("id2label")) is not None:
        labels_in_order(id2label)
    if (problem := config.get("problem_type")) not in (None, *_PROBLEM_TYPES):
        raise TextPipelineError(
            f"problem_type in config.json is {_shortened(problem)}, expected one of "
            f"{', '.join(_PROBLEM_TYPES)}"
        )
    architectures = config.get("architectures") or []
    if "AutoModelForSequenceClassification" in (config.get("auto_map") or {}):
        return
    if not any(str(name).endswith("ForSequenceClassification") for name in architectures):
        raise TextPipelineError(
            f"architectures in config.json is {architectures}, "
            "expected one that ends in ForSequenceClassification: train it as a classifier first"
        )


def check_adapter(model_id: str) -> None:
    """Raises TextPipelineError if there is a LoRA or another adapter, which transformers skips."""
    from transformers.utils import cached_file

    path = cached_file(
        model_id,
        "adapter_config.json",
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        return
    try:
        base = json.loads(Path(path).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (ValueError, LookupError, TypeError):
        base = None
    raise TextPipelineError(
        f"has an adapter (adapter_config.json) for {base or 'another model'}, such as LoRA trains, "
        "which would not be served: merge it into that model first, with peft's "
        "AutoPeftModelForSequenceClassification.from_pretrained(FOLDER).merge_and_unload()"
        ".save_pretrained(NEW_FOLDER), and add the tokenizer's files; if the weights here have it "
        "in them, delete adapter_config.json"
    )


def _own_code(declared: Mapping[str, Any]) -> set[str]:
    """The files with code that a configuration names."""
    auto_map = declared.get("auto_map") or {}
    files = set()
    # Old ones are the tokenizer's alone, which has two classes, a slow one and a fast one.
    for names in auto_map.values() if isinstance(auto_map, dict) else [auto_map]:
        classes = [names] if isinstance(names, str) else names
        files |= {f"{name.rpartition('.')[0]}.py" for name in classes if name}
    return files


def _shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"
