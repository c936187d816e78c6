"""Every check of the C++ backend's load path, by the function of its source that makes it."""

from typing import Any

import pytest

from text_pipeline.errors import ConfigurationError
from text_pipeline.onnx_backend.load_checks import Signature, Tensor, check

FLOAT, INT64 = "tensor(float)", "tensor(int64)"
BATCH_INPUT = {
    "kind": "BATCH_ITEM_SHAPE_FLATTEN",
    "target_name": ["item_length"],
    "data_type": "TYPE_INT32",
    "source_input": ["x"],
}


def tensor(name: str, dims: list[int], data_type: str = "TYPE_FP32", **fields: Any) -> dict:
    return {"name": name, "data_type": data_type, "dims": [str(dim) for dim in dims], **fields}


def config(**changes: Any) -> dict[str, Any]:
    """As Triton hands it to a backend: JSON, where int64 are strings."""
    return {
        "max_batch_size": 8,
        "input": [tensor("x", [-1])],
        "output": [tensor("y", [-1])],
    } | changes


def graph(
    x: tuple = (FLOAT, [-1, -1]), y: tuple = (FLOAT, [-1, -1]), defaults: Any = (), **more: tuple
) -> Signature:
    inputs = {"x": Tensor(*x), **{name: Tensor(*value) for name, value in more.items()}}
    return Signature(inputs, {n: Tensor(*v) for n, v in dict(defaults).items()}, {"y": Tensor(*y)})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (config(), graph()),
        # CompareDimsSupported: an input's open dimension takes any size, and -1 no fixed one.
        (config(input=[tensor("x", [4])]), graph()),
        (config(input=[tensor("x", [4])]), graph((FLOAT, [-1, 4]))),
        # Exact for outputs.
        (config(output=[tensor("y", [4])]), graph(y=(FLOAT, [-1, 4]))),
        (config(max_batch_size=0), graph((FLOAT, [-1]), (FLOAT, [-1]))),
        # Scalars.
        (config(max_batch_size=0, input=[tensor("x", [1])]), graph((FLOAT, []), (FLOAT, [-1]))),
        # Ragged, with a batch input.
        (
            config(input=[tensor("x", [-1], allow_ragged_batch=True)], batch_input=[BATCH_INPUT]),
            graph((FLOAT, [-1]), item_length=("tensor(int32)", [-1])),
        ),
        # A value in the graph, asked for or not.
        (config(), graph(defaults={"bias": (FLOAT, [1])})),
        (
            config(
                max_batch_size=0,
                input=[tensor("x", [-1]), tensor("bias", [1], optional=True)],
            ),
            graph((FLOAT, [-1]), (FLOAT, [-1]), defaults={"bias": (FLOAT, [1])}),
        ),
    ],
)
def test_what_fits_is_accepted(given: dict, found: Signature) -> None:
    check(given, found)


OPTIONAL = tensor("x", [-1], optional=True)
REFUSED = {
    # InputOutputInitializerInfos
    "a sequence": (config(), graph(y=("seq(tensor(float))", [])), "y: expected a tensor"),
    # The count of inputs
    "an input that nobody gives": (config(), graph(z=(FLOAT, [-1])), r"not configured: \['z'\]"),
    "an input that the graph lacks": (
        config(input=[tensor("x", [-1]), tensor("z", [-1])]),
        graph(),
        "2 inputs and 0 batch_input are configured, the graph has 1",
    ),
    "a default that every request has to give": (
        config(input=[tensor("x", [-1]), tensor("bias", [-1])]),
        graph(defaults={"bias": (FLOAT, [-1, -1])}),
        "2 inputs",
    ),
    "two names for one batch input": (
        config(batch_input=[BATCH_INPUT | {"target_name": ["item_length", "again"]}]),
        graph(item_length=("tensor(int32)", [-1]), again=("tensor(int32)", [-1])),
        "1 inputs and 1 batch_input",
    ),
    "a batch input of another type": (
        config(batch_input=[BATCH_INPUT]),
        graph(item_length=(INT64, [-1])),
        "item_length is configured TYPE_INT32",
    ),
    "a batch input that the graph calls otherwise": (
        config(batch_input=[BATCH_INPUT]),
        graph(lengths=("tensor(int32)", [-1])),
        r"not configured: \['lengths'\]",
    ),
    # ValidateInputs
    "an optional input with batching": (
        config(input=[OPTIONAL]),
        graph(defaults={}),
        "not configured|input x is optional",
    ),
    "an optional input with batching and a default": (
        config(input=[tensor("x", [-1]), OPTIONAL | {"name": "bias"}]),
        graph(defaults={"bias": (FLOAT, [-1, -1])}),
        "input bias is optional",
    ),
    "an optional input without a value in the graph": (
        config(max_batch_size=0, input=[OPTIONAL]),
        graph((FLOAT, [-1]), (FLOAT, [-1])),
        "not configured",
    ),
    "an optional ragged input": (
        config(
            max_batch_size=0,
            input=[tensor("x", [-1]), OPTIONAL | {"name": "b", "allow_ragged_batch": True}],
        ),
        graph((FLOAT, [-1]), (FLOAT, [-1]), defaults={"b": (FLOAT, [-1])}),
        "optional input cannot have allow_ragged_batch",
    ),
    "another type": (config(), graph((INT64, [-1, -1])), "input x is configured TYPE_FP32"),
    "a type that ONNX does not have": (
        config(input=[tensor("x", [-1], "TYPE_BF16")]),
        graph(),
        "input x is configured TYPE_BF16",
    ),
    "a ragged input of two dimensions": (
        config(input=[tensor("x", [-1], allow_ragged_batch=True)]),
        graph(),
        r"input x has allow_ragged_batch: expected \[-1\]",
    ),
    "a ragged input of a fixed size": (
        config(input=[tensor("x", [-1], allow_ragged_batch=True)]),
        graph((FLOAT, [4])),
        "allow_ragged_batch",
    ),
    "an input of a fixed size": (config(), graph((FLOAT, [-1, 4])), r"input x .*\[-1, 4\]"),
    "an input of another size": (
        config(input=[tensor("x", [3])]),
        graph((FLOAT, [-1, 4])),
        "input x",
    ),
    "an input of another rank": (config(), graph((FLOAT, [-1, -1, -1])), "input x"),
    "a fixed batch dimension": (config(), graph((FLOAT, [1, -1])), "input x"),
    "an input of unknown rank": (config(), graph((FLOAT, [])), r"input x .*dims \[1\]"),
    # ValidateOutputs
    "an output that the graph lacks": (config(output=[tensor("z", [-1])]), graph(), "output z"),
    "an output of another type": (config(), graph(y=(INT64, [-1, -1])), "output y"),
    "an output of a fixed size": (
        config(),
        graph(y=(FLOAT, [-1, 5])),
        r"output y is configured \[-1, -1\].*\[-1, 5\]: export the model again",
    ),
    "an output of an open size that is configured": (
        config(output=[tensor("y", [5])]),
        graph(),
        "output y",
    ),
    "an output of a fixed batch dimension": (config(), graph(y=(FLOAT, [1, -1])), "output y"),
    "an output of another rank": (config(), graph(y=(FLOAT, [-1])), "output y"),
    "an output of unknown rank": (config(), graph(y=(FLOAT, [])), r"output y .*dims \[1\]"),
    "a fixed size without batching": (
        config(max_batch_size=0),
        graph((FLOAT, [-1]), (FLOAT, [5])),
        "output y",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_cpp_backend_refuses_is_refused(case: str) -> None:
    given, found, message = REFUSED[case]
    with pytest.raises(ConfigurationError, match=message):
        check(given, found)
