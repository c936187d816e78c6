"""Triton Python model `text_tokenizer`: texts in, token ids out.

The tokenizer's files lie in this version's folder, `tokenizer/`, as `text-pipeline export` wrote
them; its `model_max_length` is the number of tokens the classifier can take. This file and
text_metrics.py need nothing but transformers and numpy, so that a repository works wherever Triton
runs.
"""

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

OVERFLOW_CHOICES = ("truncate", "error")
# What transformers writes as model_max_length when a model states none.
NO_LIMIT = 10**9

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
        if not (directory / "tokenizer.json").is_file():
            raise pb_utils.TritonModelException(
                f"{directory} has no tokenizer.json: run `text-pipeline export`"
            )
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
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
        self.metrics = Metrics(args)

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
        texts: list[Text] = _decode(request, "text")
        has_pairs = pb_utils.get_input_tensor_by_name(request, "text_pair") is not None
        if has_pairs:
            texts = list(zip(texts, _decode(request, "text_pair"), strict=True))
        parameters = json.loads(request.parameters() or "{}")
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
                    count = self._count_tokens(parsed.texts[row])
                    return self._refuse(
                        request,
                        InvalidRequestError(
                            f"text[{row}]: {count} tokens, the limit is {parsed.max_tokens}: "
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

    def _count_tokens(self, text: Text) -> int:
        """The number of tokens of the whole text, special tokens included."""
        self.backend.no_truncation()
        return len(self.backend.encode_batch([text])[0])

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
