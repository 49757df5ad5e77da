"""Plain torch in the place of vLLM's compiled operations that Flint's MoE block calls, for tensors on the CPU.

They show that the model around them is right, and nothing of the operations themselves.
"""

from __future__ import annotations

import torch

from tests.kernels.probes import operations


def topk_sigmoid(weights, ids, indices, gating, renormalize, bias, factor, padding):  # type: ignore[no-untyped-def]
    assert (bias, factor, padding) == (None, 1, None)
    best = gating.float().sigmoid().topk(ids.shape[-1], dim=-1)
    ids.copy_(best.indices)
    weights.copy_(best.values / best.values.sum(-1, keepdim=True) if renormalize else best.values)


def moe_align_block_size(topk_ids, experts, block, sorted_ids, expert_ids, padded, expert_map, scatter):  # type: ignore[no-untyped-def]
    assert expert_map is None
    flat = topk_ids.flatten()
    sorted_ids.fill_(flat.numel())
    place = 0
    for expert in range(experts):
        mine = (flat == expert).nonzero()[:, 0]
        blocks = -(-len(mine) // block)
        sorted_ids[place : place + len(mine)] = mine
        expert_ids[place // block : place // block + blocks] = expert
        place += blocks * block
    padded.fill_(place)


def moe_sum(x, output, topk_ids, expert_map):  # type: ignore[no-untyped-def]
    output.copy_(x.float().sum(1))


def silu_and_mul(out, x):  # type: ignore[no-untyped-def]
    gate, up = x.float().chunk(2, dim=-1)
    out.copy_(torch.nn.functional.silu(gate) * up)


_LIBRARIES = operations.define(
    {
        "_moe_C.topk_sigmoid": topk_sigmoid,
        "_moe_C.moe_align_block_size": moe_align_block_size,
        "_moe_C.moe_sum": moe_sum,
        "_C.silu_and_mul": silu_and_mul,
    }
)
