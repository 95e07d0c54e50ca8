"""The faults of this notebook."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault


@fault("moe.paddlenlp", "moe.gate-options", wraps="paddlenlp.transformers.moe_gate:MoEGateMixin._capacity")
def capacity_of_paddlenlp_too_large(real, self, *given):
    """PaddleNLP's gate takes one choice more than its capacity."""
    return real(self, *given) + 1


@fault("moe.paddlenlp-models", after="paddlenlp.transformers.deepseek_v2.modeling:DeepseekV2MoE.__init__")
def shared_expert_is_left_out(_result, self, config):
    """The block of DeepSeek adds nothing of its shared experts."""
    shared = self.shared_experts.forward
    self.shared_experts.forward = lambda x: shared(x) * (1.0 if x.ndim == 2 else 0.0)  # blocks get [batch, tokens, hidden]
