"""The graph's front: from the flat tokens of a ragged batch to what the model's body takes.

Written in ONNX Script: the functions are compiled to ONNX nodes and never run as Python, so type
checkers cannot read them (pyproject.toml leaves the file out).
"""

from onnxscript import INT32, INT64, script
from onnxscript import opset21 as op

from text_pipeline.export.windows import split_windows


@script()
def padded_front(
    input_ids: INT64["flat_tokens"],
    attention_mask: INT64["flat_tokens"],
    token_type_ids: INT64["flat_tokens"],
    item_length: INT32["items"],
    pad_token_id: INT64,
):
    """Lays flat tokens out as [windows, longest]; what lies behind a window's end is padding."""
    has_windows, flat_mask, start, end, window_item = split_windows(attention_mask, item_length)
    length = end - start
    position = op.Range(
        op.Constant(value_int=0), op.ReduceMax(length, keepdims=0), op.Constant(value_int=1)
    )
    zero = op.Constant(value_int=0)
    inside = op.Less(op.Unsqueeze(position, [0]), op.Unsqueeze(length, [1]))
    flat = op.Unsqueeze(start, [1]) + op.Unsqueeze(position, [0])
    index = op.Where(inside, flat, zero)
    padded_input_ids = op.Where(inside, op.Gather(input_ids, index), pad_token_id)
    mask = op.Where(inside, op.Gather(flat_mask, index), zero)
    # A window that is masked altogether keeps its first token: no tokens have no mean.
    real_count = op.ReduceSum(mask, [1], keepdims=1)
    is_kept = op.And(op.Equal(real_count, zero), op.Equal(op.Unsqueeze(position, [0]), zero))
    padded_attention_mask = op.Where(is_kept, op.Constant(value_int=1), mask)
    padded_token_type_ids = op.Where(inside, op.Gather(token_type_ids, index), zero)
    return (
        padded_input_ids,
        padded_attention_mask,
        padded_token_type_ids,
        has_windows,
        window_item,
        item_length,
    )


@script()
def packed_front(
    input_ids: INT64["flat_tokens"],
    attention_mask: INT64["flat_tokens"],
    token_type_ids: INT64["flat_tokens"],
    item_length: INT32["items"],
):
    """Drops padding and sorts windows by length, so that equal ones lie side by side.

    "row" counts windows in that order. Per kept token: id, segment, position and row; per window in
    its own order: first token, row and token count; what JoinWindows takes; per group of equally
    long windows: length and windows; the positions of the longest row. Last, what
    com.microsoft.PackedMultiHeadAttention asks for: where each token would lie in [rows, longest],
    the kept ones first and then the padding, and the running total of the rows' tokens. What a body
    does not use is removed.
    """
    zero = op.Constant(value_int=0)
    last = op.Constant(value_ints=[-1])
    has_windows, flat_mask, flat_start, flat_end, window_item = split_windows(
        attention_mask, item_length
    )
    # Real tokens of a window: a difference of the running total over all tokens.
    total = op.Concat(op.Constant(value_ints=[0]), op.CumSum(flat_mask, zero), axis=0)
    real_count = op.Gather(total, flat_end) - op.Gather(total, flat_start)
    # A window that is masked altogether keeps its first token: no tokens have no mean.
    is_masked = op.Cast(op.Equal(real_count, zero), to=7)
    window_tokens = real_count + is_masked
    window_start = op.CumSum(window_tokens, zero, exclusive=1)
    mask = op.ScatterElements(flat_mask, flat_start, is_masked, reduction="add")
    kept = op.Reshape(op.NonZero(mask), last)
    windows = op.Shape(window_tokens)
    row_count, window_of_row = op.TopK(window_tokens, windows, largest=0)
    _, window_row = op.TopK(window_of_row, windows, largest=0)
    # A grid of [rows, longest] positions; those inside their row, in order, are the tokens.
    longest = op.ReduceMax(row_count, keepdims=0)
    position = op.Range(zero, longest, op.Constant(value_int=1))
    column = op.Unsqueeze(position, [0])
    inside = op.Reshape(op.Less(column, op.Unsqueeze(row_count, [1])), last)
    start = op.Unsqueeze(op.Gather(window_start, window_of_row), [1])
    token = op.Gather(kept, op.Compress(op.Reshape(start + column, last), inside))
    row = op.Unsqueeze(op.Range(zero, op.Squeeze(windows, [0]), op.Constant(value_int=1)), [1])
    grid = op.Concat(windows, op.Reshape(longest, last), axis=0)
    token_position = op.Compress(op.Reshape(op.Expand(column, grid), last), inside)
    token_row = op.Compress(op.Reshape(op.Expand(row, grid), last), inside)
    window_first = op.Gather(op.CumSum(row_count, zero, exclusive=1), window_row)
    group_length, _, _, group_items = op.Unique(row_count)
    offset = op.Range(zero, op.Size(inside), op.Constant(value_int=1))
    real_first = op.Concat(op.Compress(offset, inside), op.Compress(offset, op.Not(inside)), axis=0)
    token_offset = op.Cast(op.Reshape(real_first, grid), to=6)
    row_end = op.Concat(op.Constant(value_ints=[0]), op.CumSum(row_count, zero), axis=0)
    cumulative_sequence_length = op.Cast(row_end, to=6)
    packed_input_ids = op.Gather(input_ids, token)
    packed_token_type_ids = op.Gather(token_type_ids, token)
    return (
        packed_input_ids,
        packed_token_type_ids,
        token_position,
        token_row,
        window_first,
        window_row,
        window_tokens,
        has_windows,
        window_item,
        item_length,
        group_length,
        group_items,
        position,
        token_offset,
        cumulative_sequence_length,
    )
