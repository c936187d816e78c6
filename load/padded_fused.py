import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
import copy
from text_pipeline.export.heads import PaddedClassifier
from text_pipeline.export import graph
class Fused(PaddedClassifier):
    def __init__(self, source):
        super().__init__(source)
        self.model = copy.deepcopy(source.model)
        AttentionInterface.register("padded_fused", self._attend)
        AttentionMaskInterface.register("padded_fused", lambda *a, **k: None)
        self.model.set_attn_implementation("padded_fused")
    def forward(self, input_ids, attention_mask, token_type_ids):
        self.mask = attention_mask
        return super().forward(input_ids, attention_mask, token_type_ids)
    def _attend(self, module, query, key, value, attention_mask, scaling=None, **kw):
        b, h, l, d = query.shape
        rows = [t.transpose(1, 2).reshape(b, l, h * d) for t in (query, key, value)]
        o = torch.onnx.ops.symbolic("com.microsoft::MultiHeadAttention", (*rows, None, self.mask.to(torch.int32)),
            {"num_heads": h, "scale": float(scaling or d**-0.5)}, dtype=query.dtype, shape=(b, l, h*d), version=1)
        return o.reshape(b, l, h, d), None
