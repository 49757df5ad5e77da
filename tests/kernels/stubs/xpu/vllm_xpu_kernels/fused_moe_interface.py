"""What XPUExperts calls, in plain torch, with the layout that vLLM hands over: matrices turned, gate left of up.

A stand-in: it shows that the model around it is right, and nothing of Intel's own kernel.
"""

import torch


class XpuFusedMoe:
    def __init__(self, w13, w2, n_experts_per_token, activation, num_experts, **rest):
        assert (activation, rest["ep_size"]) == ("silu", 1)
        assert all(rest[name] is None for name in ("w13_scales", "w13_bias", "w2_scales", "w2_bias", "expert_map"))
        self.w13, self.w2 = w13, w2

    def apply(self, output, hidden_states, topk_weights, topk_ids, a1q_scale):
        total = torch.zeros_like(output, dtype=torch.float32)
        for expert in topk_ids.unique().tolist():
            token, place = (topk_ids == expert).nonzero(as_tuple=True)
            gate, up = (hidden_states[token].float() @ self.w13[expert].float()).chunk(2, dim=-1)
            middle = (torch.nn.functional.silu(gate) * up).to(torch.bfloat16).float()
            total[token] += topk_weights[token, place, None] * (middle @ self.w2[expert].float())
        output.copy_(total)
