"""What a request asks of the tokenizer: its texts and parameters, or why it cannot be answered."""

import difflib
import json
import re
from dataclasses import dataclass
from typing import NamedTuple

import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

PARAMETERS = ("max_tokens", "overflow", "stride")
OVERFLOW_CHOICES = ("truncate", "error", "window")
MAX_PARAMETERS = 100
"""Of a request, those included that the front end makes of headers."""
MAX_QUOTED = 200
"""Characters of a request that a message repeats: gRPC hides errors of more than 8 KB."""
MAX_WINDOWS = 32
"""Of one text: MiniLM needs 0.4 GiB for 32 windows of 512 tokens, and six seconds of a core."""
# Characters of a text that are read first and at most, for each token that can matter: real text
# has about five. 2 MB of dots took 3 s and 1 GB of memory as a whole, and everybody else waited.
# Windows need many tokens, so that fewer characters for each are enough.
READS = (32, 256)
WINDOW_READS = (8, 32)
LEAST_NEEDED = 64
"""Tokens for which a text is read however few are asked for: its beginning may hold none."""
# More letters and digits in one word, or white space, than so many for each token add nothing.
ENDLESS = 32
# Without Chinese characters: for BERT's tokenizer each of them is a word.
_LETTER = r"[^\W_\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"

Text = str | tuple[str, str]


class InvalidRequestError(ValueError):
    """A request that cannot be answered; the message names the field and the row.

    The message may quote the request. The reason, one of text_metrics.REJECTION_REASONS, never
    does: metrics and log get only that.
    """

    def __init__(self, message: str, reason: str = "parameter") -> None:
        super().__init__(message)
        self.reason = reason


class Needed(NamedTuple):
    """How many tokens of a text can matter, and how many characters are read to find them."""

    tokens: int
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """One request's texts and what it asks of them."""

    texts: list[Text]
    """As much of them as can matter; of windows all, which is cut when its turn comes."""
    max_tokens: int
    overflow: str
    stride: int
    needed: Needed
    is_health_check: bool


class RequestReader:
    """Reads the requests to one tokenizer, whose model takes `limit` tokens."""

    def __init__(
        self, backend: Tokenizer, limit: int, *, takes_pairs: bool, takes_windows: bool
    ) -> None:
        self.backend = backend
        self.limit = limit
        self.takes_pairs = takes_pairs
        self.takes_windows = takes_windows

    def read(self, request) -> Request:
        """A request's texts and parameters; raises InvalidRequestError."""
        has_pairs = pb_utils.get_input_tensor_by_name(request, "text_pair") is not None
        if has_pairs and not self.takes_pairs:
            raise InvalidRequestError("text_pair: this model takes single texts only")
        parameters = json.loads(request.parameters() or "{}")
        _check_names(parameters)
        overflow = self.overflow(parameters, has_pairs)
        max_tokens = self._max_tokens(parameters, has_pairs)
        stride = self._stride(parameters, overflow, max_tokens)
        needed = self.needed(overflow, max_tokens)
        texts: list[Text]
        if overflow == "window":
            texts = _decode(request, "text")
        else:
            texts = self._texts(request, "text", needed)
        if has_pairs:
            texts = list(zip(texts, self._texts(request, "text_pair", needed), strict=True))
        is_health_check = "health_check" in parameters
        return Request(texts, max_tokens, overflow, stride, needed, is_health_check)

    def _texts(self, request, name: str, needed: Needed) -> list[str]:
        """The strings of a tensor, long ones cut where nothing behind can change the answer."""
        texts = _decode(request, name)
        return [self.beginning(text, f"{name}[{row}]", needed) for row, text in enumerate(texts)]

    def needed(self, overflow: str, max_tokens: int) -> Needed:
        """How much of a text can matter."""
        if overflow == "window":
            tokens, reads = max(MAX_WINDOWS * max_tokens, self.limit), WINDOW_READS
        else:
            tokens, reads = max(max_tokens, min(LEAST_NEEDED, self.limit)), READS
        return Needed(tokens, tuple(n * tokens for n in reads))

    def beginning(self, text: str, where: str, needed: Needed) -> str:
        """As much of a text as the model can take; all of it if it is not much longer than that.

        Tokens of whole words depend on these words alone, so those in front of the last two words
        of a beginning are also the whole text's.
        """
        for length in needed.reads:
            if len(text) <= length:
                return text
            self.backend.no_truncation()
            read = text[:length]
            words = self.backend.encode(read, add_special_tokens=False).word_ids
            if sum(word < words[-1] - 1 for word in words) > needed.tokens:
                return read
            text = _shorten_endless(text, ENDLESS * needed.tokens)
        # Tokenizers that do not split texts into words: all of it is one.
        if len(words) > needed.tokens:
            return read
        raise InvalidRequestError(
            f"{where}: fewer than {needed.tokens} tokens in its first {length} characters: "
            "shorten it or send text with words",
            reason="too_long",
        )

    def overflow(self, parameters: dict, has_pairs: bool) -> str:
        """What is to be done with texts that are too long; one of OVERFLOW_CHOICES."""
        value = parameters.get("overflow", OVERFLOW_CHOICES[0])
        if value not in OVERFLOW_CHOICES:
            expected = " or ".join(f'"{choice}"' for choice in OVERFLOW_CHOICES)
            raise InvalidRequestError(f"overflow: expected {expected}, got {_quoted(value)}")
        if value == "window" and has_pairs:
            raise InvalidRequestError('overflow: "window" takes single texts, without text_pair')
        if value == "window" and not self.takes_windows:
            raise InvalidRequestError(
                'overflow: "window" needs a newer export of the model: `text-pipeline export`'
            )
        return value

    def _max_tokens(self, parameters: dict, has_pairs: bool) -> int:
        # One token beside the special ones: fewer would not classify any text.
        least = self.backend.num_special_tokens_to_add(has_pairs) + 1
        return _integer(parameters, "max_tokens", least, self.limit, default=self.limit)

    def _stride(self, parameters: dict, overflow: str, max_tokens: int) -> int:
        if overflow != "window":
            if "stride" in parameters:
                raise InvalidRequestError('stride: expected together with overflow "window" only')
            return 0
        # More than half, and a window would share tokens with others than its neighbours.
        most = (max_tokens - self.backend.num_special_tokens_to_add(False)) // 2
        return _integer(parameters, "stride", 0, most, default=0)

    def count_tokens(self, request: Request, row: int) -> str:
        """The number of tokens of a whole text, special ones included; a cut one has more."""
        text = request.texts[row]
        self.backend.no_truncation()
        count = len(self.backend.encode_batch([text])[0])
        parts = [text] if isinstance(text, str) else text
        return f"{'over ' if max(map(len, parts)) >= request.needed.reads[0] else ''}{count}"


def _shorten_endless(text: str, many: int) -> str:
    """Cuts letters and digits without an end, or white space: more of the same adds nothing."""
    # The lookbehinds keep it linear: a run is tried from its start only.
    times = f"{{{many}}}"
    return re.sub(
        rf"(?<!{_LETTER})({_LETTER}{times}){_LETTER}+|(?<!\s)(\s{times})\s+", r"\1\2", text
    )


def _integer(parameters: dict, name: str, least: int, most: int, default: int) -> int:
    """A parameter that is a whole number in a range."""
    value = parameters.get(name, default)
    # JSON's true is an int in Python.
    if type(value) is not int or not least <= value <= most:
        raise InvalidRequestError(
            f"{name}: expected an integer from {least} to {most}, got {_quoted(value)}"
        )
    return value


def _quoted(value: object) -> str:
    """What was sent, as JSON, cut where it gets long."""
    text = json.dumps(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({len(text)} characters)"


def _check_names(parameters: dict) -> None:
    """Refuses misspelt parameters; others are not for the tokenizer, such as forwarded headers."""
    if len(parameters) > MAX_PARAMETERS:
        raise InvalidRequestError(
            f"parameters: {len(parameters)} of them, the limit is {MAX_PARAMETERS}"
        )
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
