"""The packed graph's front and end for a GPU: front.py and windows.py with one wait for the GPU.

What the host must know before it can go on (how many tokens, windows, and how long the longest) is
one small tensor, copied once. Nothing branches on a value and no operator has an output whose size
only the GPU knows (NonZero, Compress, Unique): each would be one more wait. Sums are running
totals: ONNX Runtime's CUDA provider adds INT64 as floats in ReduceSum, and as doubles in
ScatterElements. tests/unit/export/cuda_kernels.py counts the waits.

Written in ONNX Script, as front.py.
"""

from onnxscript import INT32, INT64, script
from onnxscript import opset18 as op

from text_pipeline.export.attention import domain
from text_pipeline.export.windows import MeanOfWindows


@script()
def packed_gpu_front(
    input_ids: INT64["flat_tokens"],
    attention_mask: INT64["flat_tokens"],
    token_type_ids: INT64["flat_tokens"],
    item_length: INT32["items"],
    multiple: INT64,
):
    """What packed_front gives, with windows in their own order and `longest` a multiple.

    Tensors over flat tokens have one slot more, where what is not asked for goes.
    """
    zero, one = op.Constant(value_int=0), op.Constant(value_int=1)
    first, second = op.Constant(value_ints=[0]), op.Constant(value_ints=[1])
    last, end = op.Constant(value_ints=[-1]), op.Constant(value_ints=[2**31])
    flat = op.Shape(input_ids)
    slots = flat + second
    index = op.Range(zero, op.Squeeze(flat, first), one)

    # Windows begin where items do, and where the number of a real token is above that of the last.
    length = op.Cast(item_length, to=7)
    item_start = op.CumSum(length, zero, exclusive=1)
    begins_item = op.ScatterElements(
        op.Expand(zero, flat), item_start, op.Expand(one, op.Shape(item_length))
    )
    mask = op.Min(attention_mask, one)
    before = op.Concat(first, op.CumSum(mask, zero), axis=0)
    rank = op.Slice(before, first, last)
    is_real = op.Cast(mask, to=9)
    number = op.ScatterElements(
        op.Expand(zero, slots), op.Where(is_real, rank, flat), attention_mask
    )
    previous = op.Gather(number, op.Max(rank - one, zero))
    rises = op.And(is_real, op.And(op.Greater(rank, zero), op.Greater(attention_mask, previous)))
    begins = op.Or(op.Cast(begins_item, to=9), rises)
    windows_so_far = op.CumSum(op.Cast(begins, to=7), zero)
    window = windows_so_far - one
    start = op.ScatterElements(
        op.Expand(flat, slots), op.Where(begins, window, flat), op.Where(begins, index, flat)
    )

    # A window that is masked altogether keeps its first token: no tokens have no mean.
    here = op.Slice(start, first, last)
    total = op.Gather(before, start)
    real_count = op.Slice(total, second, end) - op.Slice(total, first, last)
    is_masked = op.And(op.Equal(real_count, zero), op.Less(here, flat))
    count = op.Where(is_masked, one, real_count)
    is_kept = op.Or(is_real, op.And(begins, op.Gather(is_masked, window)))
    kept_so_far = op.CumSum(op.Cast(is_kept, to=7), zero)
    source = op.ScatterElements(
        op.Expand(zero, slots), op.Where(is_kept, kept_so_far - one, flat), index
    )

    # An empty tensor of the shape that the host must know: to know a shape costs no further wait.
    rounded = (op.ReduceMax(count) + multiple - one) / multiple * multiple
    facts = op.Concat(
        op.Gather(kept_so_far, last), op.Gather(windows_so_far, last), rounded, first, axis=0
    )
    sizes = op.Shape(op.Reshape(op.Slice(index, first, first), facts, allowzero=1))
    tokens, windows = op.Slice(sizes, [0], [1]), op.Slice(sizes, [1], [2])
    longest = op.Gather(sizes, op.Constant(value_int=2))

    window_tokens = op.Slice(count, first, windows)
    row_end = op.CumSum(window_tokens, zero)
    window_first = row_end - window_tokens
    window_item = op.Gather(op.CumSum(begins_item, zero) - one, op.Slice(here, first, windows))
    token = op.Slice(source, first, tokens)
    token_row = op.Gather(window, token)
    token_position = op.Range(zero, op.Squeeze(tokens, first), one) - op.Gather(
        window_first, token_row
    )
    window_row = op.Range(zero, op.Squeeze(windows, first), one)

    # In a grid of [windows, longest]: the tokens in order, then the padding behind each window.
    position = op.Range(zero, longest, one)
    grid_shape = op.Concat(windows, op.Unsqueeze(longest, first), axis=0)
    places = op.Range(zero, op.Squeeze(windows * op.Unsqueeze(longest, first), first), one)
    column = op.Unsqueeze(position, first)
    order = op.Where(
        op.Less(column, op.Unsqueeze(window_tokens, second)),
        op.Unsqueeze(window_first, second) + column,
        op.Reshape(places, grid_shape)
        - op.Unsqueeze(row_end, second)
        + op.Unsqueeze(op.Gather(row_end, last), second),
    )
    token_offset = op.Reshape(
        op.ScatterElements(places, op.Reshape(order, last), places), grid_shape
    )
    bounds = op.Concat(first, row_end, axis=0)
    is_window = op.Cast(one, to=9)
    return (
        op.Gather(input_ids, token),
        op.Gather(token_type_ids, token),
        token_position,
        token_row,
        window_first,
        window_row,
        window_tokens,
        is_window,  # no branch asks for it
        window_item,
        item_length,
        window_tokens,  # not asked for on a GPU, nor the next
        window_tokens,
        position,
        op.Cast(token_offset, to=6),
        op.Cast(bounds, to=6),
    )


@script(domain)
def JoinWindows(  # noqa: N802 - an operator's name
    logits, pooled, window_tokens, has_windows, window_item, item_length
):
    """As windows.JoinWindows, without its question."""
    joined_logits, joined_pooled = MeanOfWindows(
        logits, pooled, window_tokens, window_item, item_length
    )
    return joined_logits, joined_pooled
