"""The graph's front: from the flat tokens of a ragged batch to what the model's body takes.

Written in ONNX Script: the functions below are compiled to ONNX nodes and never run as Python, so
type checkers cannot read them (pyproject.toml leaves the file out).
"""

from onnxscript import INT32, INT64, script
from onnxscript import opset21 as op
from onnxscript.values import Opset

msft = Opset("com.microsoft", 1)


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


@script()
def packed_front(
    input_ids: INT64["tokens"],
    attention_mask: INT64["tokens"],
    token_type_ids: INT64["tokens"],
    item_length: INT32["items"],
):
    """Drops padding and sorts items by length, so that equal ones lie side by side.

    "row" counts items in that order. Per kept token: id, segment, position and row; per item in
    its own order: first token, row and token count; per group of equally long items: length, items.
    """
    zero = op.Constant(value_int=0)
    last = op.Constant(value_ints=[-1])
    kept = op.Reshape(op.NonZero(attention_mask), last)
    # Real tokens of an item: a difference of the running total over all tokens.
    end = op.CumSum(op.Cast(item_length, to=7), zero)
    total = op.Concat(op.Constant(value_ints=[0]), op.CumSum(attention_mask, zero), axis=0)
    item_end = op.Gather(total, end)
    item_start = op.Concat(op.Constant(value_ints=[0]), op.Slice(item_end, [0], [-1]), axis=0)
    item_count = item_end - item_start
    items = op.Shape(item_count)
    row_count, item_of_row = op.TopK(item_count, items, largest=0)
    _, item_row = op.TopK(item_of_row, items, largest=0)
    # A grid of [rows, longest] positions; those inside their row, in order, are the tokens.
    longest = op.ReduceMax(row_count, keepdims=0)
    column = op.Unsqueeze(op.Range(zero, longest, op.Constant(value_int=1)), [0])
    inside = op.Reshape(op.Less(column, op.Unsqueeze(row_count, [1])), last)
    start = op.Unsqueeze(op.Gather(item_start, item_of_row), [1])
    token = op.Gather(kept, op.Compress(op.Reshape(start + column, last), inside))
    row = op.Unsqueeze(op.Range(zero, op.Squeeze(items, [0]), op.Constant(value_int=1)), [1])
    grid = op.Concat(items, op.Reshape(longest, last), axis=0)
    token_position = op.Compress(op.Reshape(op.Expand(column, grid), last), inside)
    token_row = op.Compress(op.Reshape(op.Expand(row, grid), last), inside)
    item_first = op.Gather(op.CumSum(row_count, zero, exclusive=1), item_row)
    group_length, _, _, group_items = op.Unique(row_count)
    packed_input_ids = op.Gather(input_ids, token)
    packed_token_type_ids = op.Gather(token_type_ids, token)
    return (
        packed_input_ids,
        packed_token_type_ids,
        token_position,
        token_row,
        item_first,
        item_row,
        item_count,
        group_length,
        group_items,
    )


@script(Opset("text_pipeline", 1))
def PackedAttention(  # noqa: N802 - an operator's name
    query,
    key,
    value,
    group_length,
    group_items,
    num_heads: int,
    scale: float,
):
    """Attention inside each item, for [1, tokens, hidden] sorted by the length of their items.

    Items of one length are one batch of com.microsoft.MultiHeadAttention: as many steps as there
    are lengths, and no padding. One length alone, so every single text, needs no Loop: that costs
    more than a short text's attention.
    """
    groups = op.Squeeze(op.Shape(group_length), [0])
    hidden = op.Slice(op.Shape(query), [2], [3])
    one_row = op.Concat(op.Constant(value_ints=[1, -1]), hidden, axis=0)
    if groups == 1:
        items_shape = op.Concat(op.Constant(value_ints=[-1]), group_length, hidden, axis=0)
        attention = msft.MultiHeadAttention(
            op.Reshape(query, items_shape),
            op.Reshape(key, items_shape),
            op.Reshape(value, items_shape),
            num_heads=num_heads,
            scale=scale,
        )
        attended = op.Reshape(attention, one_row)
    else:
        end = op.CumSum(group_length * group_items, op.Constant(value_int=0))
        parts = op.SequenceEmpty(dtype=1)
        for i in range(groups):
            index = op.Unsqueeze(i, [0])
            length = op.Gather(group_length, index)
            stop = op.Gather(end, index)
            start = stop - length * op.Gather(group_items, index)
            group_shape = op.Concat(op.Constant(value_ints=[-1]), length, hidden, axis=0)
            part = msft.MultiHeadAttention(
                op.Reshape(op.Slice(query, start, stop, [1]), group_shape),
                op.Reshape(op.Slice(key, start, stop, [1]), group_shape),
                op.Reshape(op.Slice(value, start, stop, [1]), group_shape),
                num_heads=num_heads,
                scale=scale,
            )
            parts = op.SequenceInsert(parts, op.Reshape(part, one_row))
        attended = op.ConcatFromSequence(parts, axis=1)
    return attended
