"""Windows: the parts of a text longer than the model's limit, in one item of a ragged batch.

`attention_mask` holds the number of each token's window, counted from 1 in every item and never
falling, or 0 for padding: an item of one window has the usual mask. A body works on windows; what
it answers is joined to one answer an item. A batch without windows must not pay for this: both
ends are an If.

Written in ONNX Script, as front.py.
"""

from onnxscript import INT32, INT64, script
from onnxscript import opset21 as op

from text_pipeline.export.attention import domain


@script()
def split_windows(attention_mask: INT64["flat_tokens"], item_length: INT32["items"]):
    """Where each window begins and ends among the flat tokens, its item, and a mask of 0 and 1.

    A window begins where its item does, or at the first token of its number. The first value tells
    whether any item has more than one; if none has, windows end where their items do.
    """
    zero, one = op.Constant(value_int=0), op.Constant(value_int=1)
    length = op.Cast(item_length, to=7)
    item_start = op.CumSum(length, zero, exclusive=1)
    has_windows = op.Greater(op.ReduceMax(attention_mask, keepdims=0), one)
    if has_windows:
        begin, second = op.Constant(value_ints=[0]), op.Constant(value_ints=[1])
        last, end = op.Constant(value_ints=[-1]), op.Constant(value_ints=[2**31])
        real = op.Squeeze(op.NonZero(attention_mask), begin)
        number = op.Gather(attention_mask, real)
        rises = op.Greater(op.Slice(number, second, end), op.Slice(number, begin, last))
        later_start = op.Compress(op.Slice(real, second, end), rises)
        # Sorted, and once where both name the same token: an item may begin with another number.
        window_start, _, _, _ = op.Unique(op.Concat(item_start, later_start, axis=0))
        mask = op.Min(attention_mask, one)
        # Padding behind its last token would make a window longer than the model's limit.
        before = op.Concat(begin, op.CumSum(mask, zero), axis=0)
        next_start = op.Concat(
            op.Slice(window_start, second, end), op.Shape(attention_mask), axis=0
        )
        last_token = op.Gather(op.Concat(last, real, axis=0), op.Gather(before, next_start))
        window_end = op.Max(last_token, window_start) + one
        begun = op.LessOrEqual(op.Unsqueeze(item_start, begin), op.Unsqueeze(window_start, second))
        window_item = op.ReduceSum(op.Cast(begun, to=7), second, keepdims=0) - one
    else:
        window_start = op.Identity(item_start)
        window_end = item_start + length
        window_item = op.Identity(item_start)  # not asked for
        mask = op.Identity(attention_mask)
    return has_windows, mask, window_start, window_end, window_item


@script(domain)
def MeanOfWindows(  # noqa: N802 - an operator's name
    logits, pooled, window_tokens, window_item, item_length
):
    """The mean of each item's windows, weighted by their tokens: [windows, ...] -> [items, ...].

    One window alone stays as it is, to the last bit: its share is 1.
    """
    items = op.Shape(item_length)
    zero = op.Constant(value_float=0.0)
    index = op.Unsqueeze(window_item, op.Constant(value_ints=[1]))
    tokens = op.Cast(window_tokens, to=1)
    total = op.ScatterND(op.Expand(zero, items), index, tokens, reduction="add")
    share = op.Unsqueeze(tokens / op.Gather(total, window_item), op.Constant(value_ints=[1]))
    mean_logits = op.ScatterND(
        op.Expand(zero, op.Concat(items, op.Shape(logits, start=1), axis=0)),
        index,
        logits * share,
        reduction="add",
    )
    mean_pooled = op.ScatterND(
        op.Expand(zero, op.Concat(items, op.Shape(pooled, start=1), axis=0)),
        index,
        pooled * share,
        reduction="add",
    )
    return mean_logits, mean_pooled


@script(domain)
def JoinWindows(  # noqa: N802 - an operator's name
    logits, pooled, window_tokens, has_windows, window_item, item_length
):
    """One answer an item: [windows, ...] -> [items, ...]."""
    if has_windows:
        joined_logits, joined_pooled = MeanOfWindows(
            logits, pooled, window_tokens, window_item, item_length
        )
    else:
        joined_logits = op.Identity(logits)
        joined_pooled = op.Identity(pooled)
    return joined_logits, joined_pooled
