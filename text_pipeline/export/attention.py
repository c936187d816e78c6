"""Attention inside each item of a packed batch on CPU, as operators of our own.

They are attached to the graph as model-local functions. Inputs are query, key and value,
[1, tokens, hidden] of items sorted by length; the INT64 [groups] lengths of items and how many have
each; and, for models with relative positions or a sliding window, `bias`, [1, heads or 1, longest,
longest], which is added to the scores. `hidden_size` is an attribute, so that shapes are constants
where they can be: for a short text, finding them out would cost more than attention. On GPU
com.microsoft.PackedMultiHeadAttention takes their place.

Written in ONNX Script, as front.py.
"""

from onnxscript import opset21 as op
from onnxscript import script
from onnxscript.values import Opset

msft = Opset("com.microsoft", 1)
domain = Opset("text_pipeline", 1)


@script(domain)
def PackedAttention(  # noqa: N802 - an operator's name
    query, key, value, group_length, group_items, hidden_size: int, num_heads: int, scale: float
):
    """Items of one length are one batch of com.microsoft.MultiHeadAttention.

    As many steps as there are lengths, and no padding. One length alone, so every single text,
    needs no Loop: that costs more than a short text's attention.
    """
    groups = op.Squeeze(op.Shape(group_length), [0])
    hidden = op.Unsqueeze(op.Constant(value_int=hidden_size), [0])
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
    query,
    key,
    value,
    group_length,
    group_items,
    bias,
    hidden_size: int,
    num_heads: int,
    scale: float,
):
    """The same with a bias: its first rows and columns belong to an item of any length."""
    end = op.CumSum(group_length * group_items, op.Constant(value_int=0))
    hidden = op.Unsqueeze(op.Constant(value_int=hidden_size), [0])
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


@script(domain)
def DisentangledPackedAttention(  # noqa: N802 - an operator's name
    query,
    key,
    value,
    group_length,
    group_items,
    position_key,
    position_query,
    key_index,
    query_index,
    hidden_size: int,
    num_heads: int,
    scale: float,
):
    """DeBERTa's: how content and distance suit each other is added to the scores.

    `position_key` and `position_query`, [heads, head size, distances], are what the model makes of
    its distances; `key_index` and `query_index`, INT64 [longest, longest], tell which distance
    lies between two positions.
    """
    end = op.CumSum(group_length * group_items, op.Constant(value_int=0))
    hidden = op.Unsqueeze(op.Constant(value_int=hidden_size), [0])
    any_size = op.Constant(value_ints=[-1])
    one_row = op.Concat(op.Constant(value_ints=[1, -1]), hidden, axis=0)
    heads = op.Reshape(op.Constant(value_int=num_heads), [1])
    parts = op.SequenceEmpty(dtype=1)
    for i in range(op.Squeeze(op.Shape(group_length), [0])):
        index = op.Unsqueeze(i, [0])
        length = op.Gather(group_length, index)
        items = op.Gather(group_items, index)
        stop = op.Gather(end, index)
        start = stop - length * items
        group_shape = op.Concat(items, length, hidden, axis=0)
        heads_shape = op.Concat(items, length, heads, any_size, axis=0)
        square = op.Concat(length, length, axis=0)
        scores_shape = op.Concat(items, heads, square, axis=0)
        q = op.Reshape(op.Slice(query, start, stop, [1]), group_shape)
        k = op.Reshape(op.Slice(key, start, stop, [1]), group_shape)
        v = op.Reshape(op.Slice(value, start, stop, [1]), group_shape)
        q_heads = op.Transpose(op.Reshape(q, heads_shape), perm=[0, 2, 1, 3])
        k_heads = op.Transpose(op.Reshape(k, heads_shape), perm=[0, 2, 1, 3])
        content_to_position = op.GatherElements(
            op.MatMul(q_heads, position_key),
            op.Expand(op.Slice(key_index, [0, 0], square, [0, 1]), scores_shape),
            axis=3,
        )
        position_to_content = op.GatherElements(
            op.MatMul(k_heads, position_query),
            op.Expand(op.Slice(query_index, [0, 0], square, [0, 1]), scores_shape),
            axis=3,
        )
        bias = content_to_position + op.Transpose(position_to_content, perm=[0, 1, 3, 2])
        part = msft.MultiHeadAttention(
            q,
            k,
            v,
            None,
            None,
            bias * op.Constant(value_float=scale),
            num_heads=num_heads,
            scale=scale,
        )
        parts = op.SequenceInsert(parts, op.Reshape(part, one_row))
    return op.ConcatFromSequence(parts, axis=1)


OPERATORS = (PackedAttention, BiasedPackedAttention, DisentangledPackedAttention)
