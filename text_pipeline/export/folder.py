"""A Hugging Face folder before it is loaded: what is missing, broken or only half there.

transformers says of a half-loaded file what its parser met; here the file is named, and what to do.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from text_pipeline.contract import CLASSIFIER
from text_pipeline.errors import TextPipelineError

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""In the order in which transformers looks for them; it reads the first that is there."""
_OTHER_FILES = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "spm.model",
    "sentencepiece.bpe.model", "tokenizer.model",
)  # fmt: skip
_LFS_POINTER = b"version https://git-lfs"
_LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, little-endian."""
_AGAIN = "download it again"


def check(folder: Path) -> None:
    """Raises TextPipelineError if `folder` cannot hold a complete model."""
    if folder.is_file():
        raise TextPipelineError(f"{folder} is a file: give the folder that holds config.json")
    if not folder.is_dir():
        raise TextPipelineError(f"{folder}: no such directory, and not a hub id (owner/name)")
    if not (folder / "config.json").is_file():
        raise TextPipelineError(f"{folder}: {_instead_of_a_model(folder)}")
    for path in _files(folder):
        with path.open("rb") as file:
            is_pointer = file.read(len(_LFS_POINTER)) == _LFS_POINTER
        if is_pointer:
            raise TextPipelineError(
                f"{path} is Git LFS's pointer to the file, not the file: run `git lfs pull` there"
            )
        if path.suffix == ".json" and not isinstance(content := _json(path), dict):
            raise TextPipelineError(
                f"{path} holds a {type(content).__name__}, expected an object ({{…}}): {_AGAIN}"
            )
        if path.suffix == ".safetensors":
            _check_length(path)


def _instead_of_a_model(folder: Path) -> str:
    for candidate in (folder, *folder.resolve().parents):
        if (candidate / CLASSIFIER).is_dir():
            return (
                f"belongs to the model repository {candidate}: give the folder of the Hugging "
                "Face model that is to be exported (with config.json)"
            )
    inside = sorted(path.parent for path in folder.glob("*/config.json"))
    hint = f"; {inside[-1]} has one" if inside else ""
    return f"has no config.json, so it is not the folder of a Hugging Face model{hint}"


def _files(folder: Path) -> Iterator[Path]:
    """What transformers will read."""
    yield from (folder / name for name in _OTHER_FILES if (folder / name).is_file())
    found = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if found is None:
        raise TextPipelineError(f"{folder}: has no weights ({WEIGHTS[0]} or {WEIGHTS[2]})")
    yield found
    if found.suffix == ".json":
        try:
            names = sorted(set(map(str, _json(found)["weight_map"].values())))
        except (LookupError, TypeError, AttributeError):
            raise TextPipelineError(
                f'{found} has no "weight_map" with the files of the weights: {_AGAIN}'
            ) from None
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise TextPipelineError(
                f"{folder} lacks {', '.join(missing)}, of {len(names)} files that {found.name} "
                "names: download them"
            )
        yield from (folder / name for name in names)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TextPipelineError(f"{path} is not JSON ({error}): {_AGAIN}") from None


def _check_length(path: Path) -> None:
    """The header says how long the file is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = file.read(min(length, size))
    try:
        tensors = {k: v for k, v in json.loads(header).items() if k != "__metadata__"}
        ends = [tensor["data_offsets"][1] for tensor in tensors.values()]
        expected = _LENGTH_BYTES + length + max(ends, default=0)
    except (ValueError, TypeError, AttributeError, LookupError):
        raise TextPipelineError(f"{path} is not a safetensors file: {_AGAIN}") from None
    if size < expected:
        raise TextPipelineError(f"{path} has {size} of {expected} bytes: {_AGAIN}")
