"""Flint's parts in plain torch, calculated in double precision: what the serving code is compared with.

Results are rounded to bf16 where the model keeps bf16: after a norm, a rotation, a projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from vllm.models.flint.configs import FlintConfig


@dataclass(frozen=True)
class Weights:
    """An attention layer's weights before they are split."""

    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    out: torch.Tensor
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    sinks: torch.Tensor


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x.double() @ weight.double().T).to(torch.bfloat16)


def norm(model: FlintConfig, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    scale = 1 / torch.sqrt((wide * wide).mean(-1, keepdim=True) + model.rms_norm_eps)
    return (wide * scale * weight.double()).to(torch.bfloat16)


def rope(model: FlintConfig, x: torch.Tensor) -> torch.Tensor:
    """Rotation of the halves by the token's position: NeoX's form of RoPE. The angles are in single precision, as the
    model's own table has them; at 1200 tokens that is worth 1e-4, more than a rounding where a difference nearly
    vanishes."""
    head = model.head_dim
    frequency = 1 / model.rope_parameters["rope_theta"] ** (torch.arange(0, head, 2).float() / head)
    angle = torch.arange(len(x)).float()[:, None, None] * frequency
    cos, sin = angle.cos().to(x.device).double(), angle.sin().to(x.device).double()
    left, right = x.double().chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(torch.bfloat16)


def rotates(model: FlintConfig, number: int) -> bool:
    return number not in model.no_rope_layer_indices


def attention(model: FlintConfig, number: int, hidden: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Layer ``number``'s attention for all tokens of one request, not rounded: one softmax, with the sink as a further
    logit that takes its share and adds nothing."""
    q, k, v = (product(hidden, weight).unflatten(-1, (-1, model.head_dim)) for weight in weights.qkv)
    q, k = norm(model, q, weights.q_norm), norm(model, k, weights.k_norm)
    if rotates(model, number):
        q, k = rope(model, q), rope(model, k)
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * model.head_dim**-0.5
    at = torch.arange(len(q), device=hidden.device)
    ahead = at[:, None] - at[None, :]
    unseen = ahead < 0
    if model.layer_types[number] == "sliding_attention":
        unseen |= ahead >= model.sliding_window
    scores = scores.masked_fill(unseen, float("-inf"))
    sinks = weights.sinks.double()[:, None, None].expand(-1, len(q), 1)
    shares = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
    mixed = torch.einsum("hqk,khd->qhd", shares, v).to(torch.bfloat16)
    return mixed.flatten(1).double() @ weights.out.double().T


def swiglu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """The MLP of a dense layer and of one expert, not rounded at its end."""
    left, right = product(x, gate).double(), product(x, up).double()
    middle = (left / (1 + torch.exp(-left)) * right).to(torch.bfloat16)
    return middle.double() @ down.double().T


def routed(
    model: FlintConfig, x: torch.Tensor, gate: torch.Tensor, expert: Callable[[int], tuple[torch.Tensor, ...]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the chosen experts give together, and for each token by how much the last chosen expert's logit is above the
    first one's that was not chosen: where that is little, a rounding decides. ``expert`` gives an expert's weights."""
    logits = x.double() @ gate.double().T
    best = logits.topk(model.num_experts_per_tok + 1, dim=-1)
    margin = best.values[:, -2] - best.values[:, -1]
    chosen, shares = best.indices[:, :-1], best.values[:, :-1].sigmoid()
    if model.norm_topk_prob:
        shares = shares / shares.sum(-1, keepdim=True)
    out = torch.zeros_like(x, dtype=torch.float64)
    for number in chosen.unique().tolist():
        token, place = (chosen == number).nonzero(as_tuple=True)
        out[token] += shares[token, place, None] * swiglu(x[token], *expert(number))
    return out, margin
