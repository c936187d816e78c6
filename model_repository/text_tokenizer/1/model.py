"""Triton Python model `text_tokenizer`: texts in, token ids out.

The tokenizer's files lie in this version's folder, `tokenizer/`, as `text-pipeline export` wrote
them; its `model_max_length` is the number of tokens the classifier can take. This file and
text_metrics.py need nothing but transformers and numpy, so that a repository works wherever Triton
runs.
"""

import difflib
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from text_metrics import Metrics
from tokenizers import Encoding
from transformers import AutoTokenizer

PARAMETERS = ("max_tokens", "overflow")
OVERFLOW_CHOICES = ("truncate", "error")
# What transformers writes as model_max_length when a model states none.
NO_LIMIT = 10**9
# Characters that are read first for each token of the limit, and at most: real text has about five.
# 2 MB of dots took 3 s and 1 GB of memory as a whole, and everybody else waited.
CHARACTERS_PER_TOKEN = (32, 256)

Text = str | tuple[str, str]


class InvalidRequestError(ValueError):
    """A request that cannot be answered; the message names the field and the row.

    The message may quote the request. The reason, one of text_metrics.REJECTION_REASONS, never
    does: metrics and log get only that.
    """

    def __init__(self, message: str, reason: str = "parameter") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Request:
    """One request's texts and what it asks of them."""

    texts: list[Text]
    max_tokens: int
    overflow: str
    is_health_check: bool


class TritonPythonModel:
    """Tokenizes all requests of a batch in one call; a bad request is answered alone."""

    def initialize(self, args: dict) -> None:
        """Loads the tokenizer of this version, without a network."""
        directory = Path(args["model_repository"]) / args["model_version"] / "tokenizer"
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (directory / name).is_file():
                raise pb_utils.TritonModelException(
                    f"{directory} has no {name}: run `text-pipeline export`"
                )
        report = _read_report(directory)
        self.takes_pairs = report.get("takes_pairs", True)
        try:
            tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        except Exception as error:  # transformers raises anything for a damaged file
            raise pb_utils.TritonModelException(
                f"{directory} cannot be read ({error}): export the model again"
            ) from error
        if tokenizer.model_max_length >= NO_LIMIT:
            raise pb_utils.TritonModelException(
                f"{directory}/tokenizer_config.json states no model_max_length: "
                "export the model again"
            )
        self.limit = tokenizer.model_max_length
        # RoBERTa-type models derive positions from the ids that differ from the padding id.
        self.pad_token_id = tokenizer.pad_token_id or 0
        self.has_segments = "token_type_ids" in tokenizer.model_input_names
        self.backend = tokenizer.backend_tokenizer
        self.backend.no_padding()
        self.first_read, self.most_read = (n * self.limit for n in CHARACTERS_PER_TOKEN)
        # Letters and digits without an end, or white space: more of the same adds nothing.
        # The lookbehinds keep it linear: a run is tried from its start only.
        many = f"{{{self.first_read}}}"
        self.endless = re.compile(rf"(?<![^\W_])([^\W_]{many})[^\W_]+|(?<!\s)(\s{many})\s+")
        self.metrics = Metrics(args, report)

    def finalize(self) -> None:
        """Hands over the last counts."""
        self.metrics.close()

    def execute(self, requests: list) -> list:
        """Answers every request: five tensors, or an INVALID_ARG error of its own."""
        parsed = [self._parse_or_error(request) for request in requests]
        encodings = self._encode([p for p in parsed if isinstance(p, Request)])
        return [
            self._refuse(request, p)
            if isinstance(p, InvalidRequestError)
            else self._respond(request, p, encodings.pop(0))
            for request, p in zip(requests, parsed, strict=True)
        ]

    def _parse_or_error(self, request) -> Request | InvalidRequestError:
        try:
            return self._parse(request)
        except InvalidRequestError as error:
            return error

    def _parse(self, request) -> Request:
        texts: list[Text] = self._read(request, "text")
        has_pairs = pb_utils.get_input_tensor_by_name(request, "text_pair") is not None
        if has_pairs and not self.takes_pairs:
            raise InvalidRequestError("text_pair: this model takes single texts only")
        if has_pairs:
            texts = list(zip(texts, self._read(request, "text_pair"), strict=True))
        parameters = json.loads(request.parameters() or "{}")
        _check_names(parameters)
        overflow = parameters.get("overflow", OVERFLOW_CHOICES[0])
        if overflow not in OVERFLOW_CHOICES:
            expected = " or ".join(f'"{choice}"' for choice in OVERFLOW_CHOICES)
            raise InvalidRequestError(f"overflow: expected {expected}, got {json.dumps(overflow)}")
        return Request(
            texts,
            self._max_tokens(parameters, has_pairs),
            overflow,
            is_health_check="health_check" in parameters,
        )

    def _read(self, request, name: str) -> list[str]:
        """The strings of a tensor, long ones cut where nothing behind can change the answer."""
        texts = _decode(request, name)
        return [self._beginning(text, f"{name}[{row}]") for row, text in enumerate(texts)]

    def _beginning(self, text: str, where: str) -> str:
        """As much of a text as the model can take; all of it if it is not much longer than that.

        Tokens of whole words depend on these words alone, so those in front of the last two words
        of a beginning are also the whole text's.
        """
        for length in (self.first_read, self.most_read):
            if len(text) <= length:
                return text
            self.backend.no_truncation()
            read = text[:length]
            words = self.backend.encode(read, add_special_tokens=False).word_ids
            if sum(word < words[-1] - 1 for word in words) > self.limit:
                return read
            text = self.endless.sub(r"\1\2", text)
        # Tokenizers that do not split texts into words: all of it is one.
        if len(words) > self.limit:
            return read
        raise InvalidRequestError(
            f"{where}: fewer than {self.limit} tokens in its first {self.most_read} characters: "
            "shorten it or send text with words",
            reason="too_long",
        )

    def _max_tokens(self, parameters: dict, has_pairs: bool) -> int:
        value = parameters.get("max_tokens", self.limit)
        # One token beside the special ones: fewer would not classify any text.
        least = self.backend.num_special_tokens_to_add(has_pairs) + 1
        # JSON's true is an int in Python.
        if type(value) is not int or not least <= value <= self.limit:
            raise InvalidRequestError(
                f"max_tokens: expected an integer from {least} to {self.limit}, "
                f"got {json.dumps(value)}"
            )
        return value

    def _encode(self, requests: Sequence[Request]) -> list[list[Encoding]]:
        """The encodings of every request: one tokenizer call for each limit in the batch."""
        encodings: dict[int, list[Encoding]] = {}
        for limit in {request.max_tokens for request in requests}:
            self.backend.enable_truncation(max_length=limit, strategy="longest_first")
            same_limit = [r for r in requests if r.max_tokens == limit]
            flat = iter(self.backend.encode_batch([t for r in same_limit for t in r.texts]))
            encodings |= {id(r): [next(flat) for _ in r.texts] for r in same_limit}
        return [encodings[id(request)] for request in requests]

    def _respond(self, request, parsed: Request, encodings: Sequence[Encoding]):
        if parsed.overflow == "error":
            for row, encoding in enumerate(encodings):
                if encoding.overflowing:
                    return self._refuse(
                        request,
                        InvalidRequestError(
                            f"text[{row}]: {self._count_tokens(parsed.texts[row])} tokens, the "
                            f"limit is {parsed.max_tokens}: "
                            'shorten it or send overflow "truncate"',
                            reason="too_long",
                        ),
                    )
        counts = np.array([[len(e)] for e in encodings], np.int32)
        truncated = np.array([[bool(e.overflowing)] for e in encodings])
        if not parsed.is_health_check:
            self.metrics.count_texts(counts, truncated)
        return pb_utils.InferenceResponse(
            [
                *self._token_tensors(encodings),
                pb_utils.Tensor("token_count", counts),
                pb_utils.Tensor("truncated", truncated),
            ]
        )

    def _refuse(self, request, error: InvalidRequestError):
        self.metrics.count_rejected(error.reason)
        # A text is personal data, and what a client sends in its place may be one, too.
        request_id = re.sub(r"[^\w.:-]", "?", request.request_id(), flags=re.ASCII)[:64] or "-"
        pb_utils.Logger.log_info(f"rejected reason={error.reason} request_id={request_id}")
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
        )

    def _count_tokens(self, text: Text) -> str:
        """The number of tokens of the whole text, special ones included; a cut one has more."""
        self.backend.no_truncation()
        count = len(self.backend.encode_batch([text])[0])
        parts = [text] if isinstance(text, str) else text
        return f"{'over ' if max(map(len, parts)) >= self.first_read else ''}{count}"

    def _token_tensors(self, encodings: Sequence[Encoding]) -> list:
        """The three tensors of tokens, INT64 [texts, longest text]."""
        shape = (len(encodings), max(map(len, encodings)))
        input_ids = np.full(shape, self.pad_token_id, np.int64)
        attention_mask = np.zeros(shape, np.int64)
        token_type_ids = np.zeros(shape, np.int64)
        for row, encoding in enumerate(encodings):
            input_ids[row, : len(encoding)] = encoding.ids
            attention_mask[row, : len(encoding)] = 1
            if self.has_segments:
                token_type_ids[row, : len(encoding)] = encoding.type_ids
        return [
            pb_utils.Tensor("input_ids", input_ids),
            pb_utils.Tensor("attention_mask", attention_mask),
            pb_utils.Tensor("token_type_ids", token_type_ids),
        ]


def _read_report(directory: Path) -> dict:
    """What the export wrote about the classifier of the same version, where it lies beside.

    Raises TritonModelException if the classifier was exported with another tokenizer.
    """
    version = directory.parent
    classifier = version.parents[1] / "text_classifier_onnx" / version.name
    if not (classifier / "export.json").is_file():
        return {}
    report = json.loads((classifier / "export.json").read_text(encoding="utf-8"))
    tokenizer = directory / "tokenizer.json"
    found = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    if report.get("tokenizer_sha256", found) != found:
        raise pb_utils.TritonModelException(
            f"{tokenizer} is not the tokenizer that {classifier} was exported with: "
            "export the model again"
        )
    return report


def _check_names(parameters: dict) -> None:
    """Refuses misspelt parameters; others are not for the tokenizer, such as forwarded headers."""
    for name in parameters:
        meant = difflib.get_close_matches(name.lower().replace("-", "_"), PARAMETERS, cutoff=0.8)
        if name not in PARAMETERS and meant:
            raise InvalidRequestError(f"{name}: unknown parameter, expected {meant[0]}")


def _decode(request, name: str) -> list[str]:
    """The strings of a STRING tensor [texts, 1]; the first that is not UTF-8 is named."""
    rows = pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)
    texts = []
    for row, raw in enumerate(rows):
        try:
            texts.append(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidRequestError(
                f"{name}[{row}]: not valid UTF-8 at byte {error.start} (0x{raw[error.start]:02x})",
                reason="utf8",
            ) from None
    return texts
