"""Triton Python model `text_tokenizer`: texts in, token ids out.

The tokenizer's files lie in this version's folder, `tokenizer/`, as `text-pipeline export` wrote
them; its `model_max_length` is the number of tokens the classifier can take. This file and those
beside it need nothing but transformers and numpy, so that a repository works wherever Triton runs.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import triton_python_backend_utils as pb_utils
from text_metrics import Metrics
from text_request import MAX_WINDOWS, InvalidRequestError, Request, RequestReader
from tokenizers import Encoding
from transformers import AutoTokenizer

# What transformers writes as model_max_length when a model states none.
NO_LIMIT = 10**9
# Of all texts of a request: as many as a batch holds texts, so that none costs more than that.
MAX_REQUEST_WINDOWS = 64

T = TypeVar("T")
Rows = list[list[Encoding]]
"""The windows of each text."""


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
        # RoBERTa-type models derive positions from the ids that differ from the padding id.
        self.pad_token_id = tokenizer.pad_token_id or 0
        self.has_segments = "token_type_ids" in tokenizer.model_input_names
        self.backend = tokenizer.backend_tokenizer
        self.backend.no_padding()
        self.reader = RequestReader(
            self.backend,
            tokenizer.model_max_length,
            takes_pairs=report.get("takes_pairs", True),
            # Graphs of earlier exports would take all windows for one.
            takes_windows=report.get("takes_windows", False),
        )
        self.metrics = Metrics(args, report)

    def finalize(self) -> None:
        """Hands over the last counts."""
        self.metrics.close()

    def execute(self, requests: list) -> list:
        """Answers every request: five tensors, or an INVALID_ARG error of its own."""
        parsed = [_or_error(self.reader.read, request) for request in requests]
        encoded = iter(self._encode([p for p in parsed if isinstance(p, Request)]))
        return [
            self._respond(request, p, next(encoded))
            if isinstance(p, Request)
            else self._refuse(request, p)
            for request, p in zip(requests, parsed, strict=True)
        ]

    def _encode(self, requests: Sequence[Request]) -> list[Rows | InvalidRequestError]:
        """The windows of every request's texts, or why it is refused.

        Texts of one window, cut where they are longer: one tokenizer call for each limit.
        """
        rows: dict[int, Rows | InvalidRequestError] = {}
        for limit in {r.max_tokens for r in requests if r.overflow != "window"}:
            self.backend.enable_truncation(limit, strategy="longest_first")
            alike = [r for r in requests if r.overflow != "window" and r.max_tokens == limit]
            flat = iter(self.backend.encode_batch([t for r in alike for t in r.texts]))
            rows |= {id(r): [[next(flat)] for _ in r.texts] for r in alike}
        windowed = [r for r in requests if r.overflow == "window"]
        rows |= {id(r): _or_error(self._encode_windows, r) for r in windowed}
        return [rows[id(request)] for request in requests]

    def _encode_windows(self, request: Request) -> Rows:
        """One text after the other: none is read behind the first that is too much."""
        rows: Rows = []
        all_windows = 0
        for row, text in enumerate(request.texts):
            beginning = self.reader.beginning(text, f"text[{row}]", request.needed)
            self.backend.enable_truncation(
                request.max_tokens, stride=request.stride, strategy="longest_first"
            )
            first = self.backend.encode(beginning)
            windows = [first, *first.overflowing]
            all_windows += len(windows)
            self._check_windows(request, row, len(windows), all_windows)
            rows.append(windows)
        return rows

    def _check_windows(self, request: Request, row: int, windows: int, in_all: int) -> None:
        if windows > MAX_WINDOWS:
            raise InvalidRequestError(
                f"text[{row}]: at least {windows} windows of {request.max_tokens} tokens, "
                f"the limit is {MAX_WINDOWS}: shorten it or send larger windows (max_tokens)",
                reason="too_long",
            )
        if in_all > MAX_REQUEST_WINDOWS:
            raise InvalidRequestError(
                f"text[{row}]: with it the request has {in_all} windows, the limit is "
                f"{MAX_REQUEST_WINDOWS}: send fewer texts in a request",
                reason="too_long",
            )

    def _respond(self, request, parsed: Request, rows: Rows | InvalidRequestError):
        try:
            if isinstance(rows, InvalidRequestError):
                raise rows
            self._check_lengths(parsed, rows)
        except InvalidRequestError as error:
            return self._refuse(request, error)
        counts = np.array([[sum(map(len, windows))] for windows in rows], np.int32)
        is_cut = parsed.overflow == "truncate"
        truncated = np.array([[is_cut and bool(first.overflowing)] for first, *_ in rows])
        if not parsed.is_health_check:
            self.metrics.count_texts(counts, truncated)
        return pb_utils.InferenceResponse(
            [
                *self._token_tensors(rows, int(counts.max())),
                pb_utils.Tensor("token_count", counts),
                pb_utils.Tensor("truncated", truncated),
            ]
        )

    def _check_lengths(self, parsed: Request, rows: Rows) -> None:
        """Refuses texts that are too long for what the request asks, and those of no tokens."""
        for row, (first, *_) in enumerate(rows):
            # Only where the tokenizer adds none; transformers fails for it, too.
            if len(first) == 0:
                raise InvalidRequestError(
                    f"text[{row}]: no tokens, of which this model needs one: send some text",
                    reason="empty",
                )
            if parsed.overflow == "error" and first.overflowing:
                count = self.reader.count_tokens(parsed, row)
                raise InvalidRequestError(
                    f"text[{row}]: {count} tokens, the limit is {parsed.max_tokens}: "
                    'shorten it or send overflow "truncate"',
                    reason="too_long",
                )

    def _refuse(self, request, error: InvalidRequestError):
        self.metrics.count_rejected(error.reason)
        # A text is personal data, and what a client sends in its place may be one, too.
        request_id = re.sub(r"[^\w.:-]", "?", request.request_id(), flags=re.ASCII)[:64] or "-"
        pb_utils.Logger.log_info(f"rejected reason={error.reason} request_id={request_id}")
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
        )

    def _token_tensors(self, rows: Rows, longest: int) -> list:
        """The three tensors of tokens, INT64 [texts, longest]; the mask counts windows from 1."""
        shape = (len(rows), longest)
        input_ids = np.full(shape, self.pad_token_id, np.int64)
        attention_mask = np.zeros(shape, np.int64)
        token_type_ids = np.zeros(shape, np.int64)
        for row, windows in enumerate(rows):
            end = 0
            for number, window in enumerate(windows, start=1):
                start, end = end, end + len(window)
                input_ids[row, start:end] = window.ids
                attention_mask[row, start:end] = number
                if self.has_segments:
                    token_type_ids[row, start:end] = window.type_ids
        return [
            pb_utils.Tensor("input_ids", input_ids),
            pb_utils.Tensor("attention_mask", attention_mask),
            pb_utils.Tensor("token_type_ids", token_type_ids),
        ]


def _or_error(call: Callable[[Any], T], argument: Any) -> T | InvalidRequestError:
    try:
        return call(argument)
    except InvalidRequestError as error:
        return error


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
