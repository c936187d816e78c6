"""A model configuration's `parameters`, read as Triton's C++ ONNX Runtime backend reads them.

Sources: onnxruntime.cc (ModelState) and backend_common.cc (ParseIntValue, ParseBoolValue). Every
parameter that the backend knows is parsed, needed or not, so that a value it refuses is refused
here, too. Names that it does not know it ignores.
"""

from collections.abc import Callable, Mapping
from typing import Any

from text_pipeline.errors import ConfigurationError

_BOOLEANS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


def _count(text: str) -> int:
    """Stricter than the C++ backend, which takes "3 threads" for 3 and -1 for its default."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("a whole number")
    return int(text)


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("true or false (also on, off, 1, 0)")
    return _BOOLEANS[text.lower()]


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return parse


_PARSERS: dict[str, Callable[[str], Any]] = {
    "execution_mode": _one_of("0", "1"),
    "intra_op_thread_count": _count,
    "inter_op_thread_count": _count,
    "enable_mem_arena": _boolean,
    "enable_mem_pattern": _boolean,
    "share_session_between_instances": _boolean,
    "session.use_device_allocator_for_initializers": str,
    "memory.enable_memory_arena_shrinkage": str,
    # Of instances on a GPU.
    "gpu_mem_limit": _count,
    "arena_extend_strategy": _one_of("0", "1"),
    "cudnn_conv_algo_search": _one_of("0", "1", "2"),
    "do_copy_in_default_stream": _one_of("0", "1"),
    # Of this backend alone.
    "max_run_elements": _count,
}


class Parameters:
    """The parsed values; raises ConfigurationError with the name of one that cannot be read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` is the model configuration as JSON."""
        self._values: dict[str, Any] = {}
        for name, value in config.get("parameters", {}).items():
            if name not in _PARSERS:
                continue
            text = value.get("string_value", "")
            try:
                self._values[name] = _PARSERS[name](text)
            except ValueError as error:
                raise ConfigurationError(
                    f"parameter {name}: expected {error}, got {text!r}"
                ) from None

    def get(self, name: str, default: Any = 0) -> Any:
        """A parameter's value, or the default if the configuration does not have it."""
        return self._values.get(name, default)
