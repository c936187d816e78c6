"""The ONNX graph: ragged tokens in, labelled scores out.

Three parts: a front that lays the flat tokens of all items out as `[items, longest]`, the model
itself with its output heads as `torch.onnx` exports it, and the label names.
"""

import inspect
from typing import TYPE_CHECKING, cast

import onnx_ir as ir
import torch
from onnx_ir.convenience import replace_all_uses_with
from onnx_ir.passes.common import NameFixPass
from torch import nn

from text_pipeline.export.front import padded_front
from text_pipeline.export.source import Source

if TYPE_CHECKING:
    from transformers import PretrainedConfig

OPSET = 18
IR_VERSION = 10
"""What ONNX Runtime 1.19 and later, and so every container since 24.10, can load."""

TOKEN_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
TENSOR_OUTPUTS = ("scores", "probabilities", "logits", "embedding")


class ClassifierHeads(nn.Module):
    """A Hugging Face classifier with all outputs of DESIGN.md except the label names."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.model = source.model
        self.takes_segments = source.has_segments and (
            "token_type_ids" in inspect.signature(source.model.forward).parameters
        )
        self.activation = activation(source.model.config)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """INT64 [items, tokens] each -> scores, probabilities, logits, embedding, class order.

        The embedding is the mean of the last hidden state over the attended tokens, of length 1.
        """
        segments = {"token_type_ids": token_type_ids} if self.takes_segments else {}
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            output_hidden_states=True,
            **segments,
        )
        logits = output.logits
        probabilities = self.activation(logits)
        # TopK of all classes: sorted, and equal scores in class order.
        scores, order = torch.topk(probabilities, probabilities.shape[-1], dim=-1)
        hidden = output.hidden_states[-1]
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        # A row of no tokens has no mean; 1 keeps it zero instead of NaN.
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
        embedding = nn.functional.normalize(mean, dim=-1)
        return scores, probabilities, logits, embedding, order


def activation(config: "PretrainedConfig") -> nn.Module:
    """From logits to scores, by the configuration's `problem_type`.

    A head of one output without a problem type is a regression: its value is the score.
    """
    if config.problem_type == "multi_label_classification":
        return nn.Sigmoid()
    if config.problem_type == "regression" or config.num_labels == 1:
        return nn.Identity()
    return nn.Softmax(dim=-1)


def build(source: Source) -> ir.Model:
    """The complete graph with the contract of `text_classifier_onnx`."""
    model = _export_padded(source)
    _prepend_ragged_front(model, source.tokenizer.pad_token_id or 0)
    _append_labels(model, source.labels)
    # torch.onnx names values after operators: one is already called "embedding".
    NameFixPass()(model)
    model.ir_version = IR_VERSION
    model.graph.name = "text_classifier_onnx"
    return model


def _export_padded(source: Source) -> ir.Model:
    """The model and its heads on `[items, longest]` tokens."""
    # Two items and more than one token: torch.export would fix a dimension of size 1.
    example = source.tokenizer(["a text", "another one"], padding=True, return_tensors="pt")
    input_ids = example["input_ids"]
    arguments = (input_ids, torch.ones_like(input_ids), torch.zeros_like(input_ids))
    shape = {0: torch.export.Dim("items"), 1: torch.export.Dim("longest", max=source.max_tokens)}
    program = torch.onnx.export(
        ClassifierHeads(source).eval(),
        arguments,
        dynamo=True,
        opset_version=OPSET,
        input_names=[f"padded_{name}" for name in TOKEN_INPUTS],
        output_names=[*TENSOR_OUTPUTS, "class_order"],
        dynamic_shapes=(shape, shape, shape),
        verbose=False,
    )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    return program.model


def _prepend_ragged_front(model: ir.Model, pad_token_id: int) -> None:
    """Gives the graph the flat inputs of the contract instead of padded ones."""
    front = cast(ir.Model, ir.from_proto(padded_front.to_model_proto())).graph
    constant = ir.tensor(pad_token_id, dtype=ir.DataType.INT64, name="pad_token_id")
    initializer = ir.Value(name="pad_token_id", const_value=constant)
    pad_input = front.inputs.pop()
    replace_all_uses_with(pad_input, initializer)
    model.graph.register_initializer(initializer)
    nodes, outputs = list(front), list(front.outputs)
    front.outputs.clear()
    front.remove(nodes)
    model.graph.insert_before(model.graph[0], nodes)
    for padded, value in zip(model.graph.inputs, outputs, strict=True):
        replace_all_uses_with(padded, value)
    model.graph.inputs.clear()
    flat = list(front.inputs)
    front.inputs.clear()
    model.graph.inputs.extend(flat)


def _append_labels(model: ir.Model, labels: list[str]) -> None:
    """Replaces the class order by the label names in that order."""
    order = model.graph.outputs.pop()
    names = ir.Value(
        name="label_names",
        const_value=ir.StringTensor(
            [label.encode() for label in labels], shape=ir.Shape([len(labels)]), name="label_names"
        ),
    )
    model.graph.register_initializer(names)
    gather = ir.node("Gather", [names, order])
    gather.outputs[0].name = "labels"
    gather.outputs[0].dtype = ir.DataType.STRING
    gather.outputs[0].shape = order.shape
    model.graph.append(gather)
    model.graph.outputs.insert(0, gather.outputs[0])
