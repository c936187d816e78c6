"""Attention inside each item of a packed batch on CPU, as operators of our own.

They are attached to the graph as model-local functions. Inputs are query, key and value,
[1, tokens, hidden] of items sorted by length; the INT64 [groups] lengths of items and how many have
each; and, for models with relative positions or a sliding window, `bias`, [1, heads or 1, longest,
longest], which is added to the scores. On GPU com.microsoft.PackedMultiHeadAttention takes their
place.

Written in ONNX Script, as front.py.
"""

from onnxscript import opset21 as op
from onnxscript import script
from onnxscript.values import Opset

msft = Opset("com.microsoft", 1)
domain = Opset("text_pipeline", 1)


@script(domain)
def PackedAttention(  # noqa: N802 - an operator's name
    query, key, value, group_length, group_items, num_heads: int, scale: float
):
    """Items of one length are one batch of com.microsoft.MultiHeadAttention.

    As many steps as there are lengths, and no padding. One length alone, so every single text,
    needs no Loop: that costs more than a short text's attention.
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


@script(domain)
def BiasedPackedAttention(  # noqa: N802 - an operator's name
    query, key, value, group_length, group_items, bias, num_heads: int, scale: float
):
    """The same with a bias: its first rows and columns belong to an item of any length."""
    end = op.CumSum(group_length * group_items, op.Constant(value_int=0))
    hidden = op.Slice(op.Shape(query), [2], [3])
    one_row = op.Concat(op.Constant(value_ints=[1, -1]), hidden, axis=0)
    parts = op.SequenceEmpty(dtype=1)
    for i in range(op.Squeeze(op.Shape(group_length), [0])):
        index = op.Unsqueeze(i, [0])
        length = op.Gather(group_length, index)
        stop = op.Gather(end, index)
        start = stop - length * op.Gather(group_items, index)
        group_shape = op.Concat(op.Constant(value_ints=[-1]), length, hidden, axis=0)
        square = op.Concat(length, length, axis=0)
        part = msft.MultiHeadAttention(
            op.Reshape(op.Slice(query, start, stop, [1]), group_shape),
            op.Reshape(op.Slice(key, start, stop, [1]), group_shape),
            op.Reshape(op.Slice(value, start, stop, [1]), group_shape),
            None,
            None,
            op.Slice(bias, [0, 0], square, [2, 3]),
            num_heads=num_heads,
            scale=scale,
        )
        parts = op.SequenceInsert(parts, op.Reshape(part, one_row))
    return op.ConcatFromSequence(parts, axis=1)
