"""The graph's front: from the flat tokens of a ragged batch to what the model's body takes.

Written in ONNX Script: the functions below are compiled to ONNX nodes and never run as Python, so
type checkers cannot read them (pyproject.toml leaves the file out).
"""

from onnxscript import INT32, INT64, script
from onnxscript import opset18 as op


@script()
def padded_front(
    input_ids: INT64["tokens"],
    attention_mask: INT64["tokens"],
    token_type_ids: INT64["tokens"],
    item_length: INT32["items"],
    pad_token_id: INT64,
):
    """Lays flat tokens out as [items, longest]; what lies behind an item's end is padding."""
    length = op.Cast(item_length, to=7)
    start = op.CumSum(length, op.Constant(value_int=0), exclusive=1)
    position = op.Range(
        op.Constant(value_int=0), op.ReduceMax(length, keepdims=0), op.Constant(value_int=1)
    )
    zero = op.Constant(value_int=0)
    inside = op.Less(op.Unsqueeze(position, [0]), op.Unsqueeze(length, [1]))
    flat = op.Unsqueeze(start, [1]) + op.Unsqueeze(position, [0])
    index = op.Where(inside, flat, zero)
    padded_input_ids = op.Where(inside, op.Gather(input_ids, index), pad_token_id)
    padded_attention_mask = op.Where(inside, op.Gather(attention_mask, index), zero)
    padded_token_type_ids = op.Where(inside, op.Gather(token_type_ids, index), zero)
    return padded_input_ids, padded_attention_mask, padded_token_type_ids
