"""How many tokens the KV cache holds, as vLLM plans it.

Read in vLLM 0.33.0: layers of one kind are cut into groups of equal size (``_get_kv_cache_groups_uniform_page_size`` in
``v1/core/kv_cache_planning.py``), all groups draw blocks from one pool, and a block of a group holds that group's
layers. A sliding layer needs no more than its window and what is in flight
(``SlidingWindowSpec.max_admission_blocks_per_request``). Summing over all layers as if each were full is wrong by a
factor of three for a model like Flint.
"""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.stack.recipes.model import Model

_BYTES = 2  # bfloat16
BLOCK = 16  # CacheConfig.DEFAULT_BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class KvPlan:
    """What ``bytes_per_card`` of KV cache hold: ``tokens`` as the server's log tells them, and how many requests of
    the longest context fit at once."""

    bytes_per_card: int
    groups: tuple[str, ...]
    blocks: int
    tokens: int
    concurrency: float


def plan_kv(
    model: Model,
    bytes_per_card: int,
    *,
    tensor_parallel: int,
    tokens_in_flight: int,
    max_model_len: int | None = None,
    block: int = BLOCK,
) -> KvPlan:
    """The plan for one card's share.

    Args:
        model: the model's facts.
        bytes_per_card: memory for the KV cache on each card, as the log's "Available KV cache memory" tells it.
        tensor_parallel: cards that share the KV heads; more cards than heads keep copies.
        tokens_in_flight: ``max_num_batched_tokens`` times the batches at once (two with asynchronous scheduling).
        max_model_len: the longest context served, in tokens; the model's own without.
        block: tokens in a block.
    """
    length = max_model_len or model.context
    size = _group_size(model)
    full = -(-model.full_layers // size)
    sliding = -(-model.sliding_layers // size)
    heads = max(1, model.kv_heads // tensor_parallel)
    bytes_per_block = size * 2 * heads * model.head_dim * _BYTES * block
    blocks = bytes_per_card // bytes_per_block
    window = min(model.sliding_window - 1 + tokens_in_flight, length)
    per_request = full * -(-length // block) + sliding * (-(-window // block) + 1)
    groups = [f"{size} full"] * full + [f"{size} sliding"] * sliding
    return KvPlan(bytes_per_card, tuple(groups), blocks, int(blocks / per_request * length), blocks / per_request)


def _group_size(model: Model) -> int:
    kinds = [count for count in (model.full_layers, model.sliding_layers) if count]
    return max(kinds) if max(kinds) < 1.5 * min(kinds) else min(kinds)
