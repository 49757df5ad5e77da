"""One whole FlintAttention layer, split over ranks, with the serving code's own cache and metadata, and its reference.

Works on the CPU (Triton's interpreter, or a compiler in the kernels' place) and on a GPU. Import it only after the
platform is settled: importing vLLM asks for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import AttentionConfig, CacheConfig, ModelConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.forward_context import set_forward_context
from vllm.models.flint import model as flint
from vllm.models.flint.configs import FlintConfig
from vllm.utils.network_utils import get_open_port
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.kv_cache_interface import KVCacheTensor, create_kv_cache_views
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.utils import customize_attention_spec

from tests.kernels import dense
from tests.kernels.dense import Weights
from tests.kernels.numbers import steps

SLIDING, FULL = 0, 1
BLOCK = 16
#: What every byte of the cache holds before it is written: as bf16 a large finite number that no key or value has. It
#: must be finite, because tensor descriptors read whole blocks and multiply what lies past a request's end by zero.
UNWRITTEN = 0x55
#: Models' configurations as files: the model looks into its folder when it is made. They go when the process ends.
_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@dataclass
class Rank:
    """One rank's layer with its cache: a view as the serving code makes it, over bytes of ``UNWRITTEN``.

    ``cache_updates`` counts the backend's own cache writes, ``projected`` holds each request's q, k and v before norm
    and RoPE, all its tokens, as the layer's own projection gave them.
    """

    layer: flint.FlintAttention
    config: VllmConfig
    builder: Any
    cache: torch.Tensor
    cache_updates: int = 0
    projected: list[torch.Tensor] = field(default_factory=list)


@dataclass
class Rig:
    """All ranks of one layer. ``history`` holds every request's hidden states so far, in order."""

    kind: int
    model: FlintConfig
    weights: Weights
    ranks: list[Rank]
    device: torch.device
    tables: torch.Tensor
    history: list[torch.Tensor] = field(default_factory=list)


def flint_config(window: int, **changes: Any) -> FlintConfig:
    """Flint's shapes with two dense layers: one with a sliding window and RoPE, one with full attention and neither."""
    return FlintConfig(
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        no_rope_layer_indices=[1],
        mlp_only_layers=[0, 1],
        sliding_window=window,
        max_position_embeddings=16384,
        architectures=["FlintForCausalLM"],
        **changes,
    )


def vllm_config(model: FlintConfig, backend: str | None, cache_dtype: str = "auto", tp: int = 1) -> VllmConfig:
    """The serving configuration for that model, as `vllm serve` would make it."""
    _FOLDERS.append(tempfile.TemporaryDirectory())
    folder = _FOLDERS[-1].name
    model.save_pretrained(folder)
    config = ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=8192)
    chosen = AttentionBackendEnum[backend] if backend else None
    return VllmConfig(
        model_config=config,
        cache_config=CacheConfig(block_size=BLOCK, cache_dtype=cache_dtype),
        parallel_config=ParallelConfig(tensor_parallel_size=tp),
        attention_config=AttentionConfig(backend=chosen),
    )


def start(config: VllmConfig, rank: int = 0, size: int = 1, port: int | None = None) -> None:
    """Be rank ``rank`` of ``size`` processes that meet at ``port``. In a world of one, one process can stand for every
    rank in turn: ``as_rank`` says for which."""
    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(
            world_size=size,
            rank=rank,
            local_rank=rank,
            distributed_init_method=f"tcp://127.0.0.1:{port or get_open_port()}",
            backend="gloo",
        )
        parallel_state.initialize_model_parallel(size, 1, backend="gloo")


def as_rank(rank: int, size: int) -> None:
    """Make the code believe that it is this rank. Sums over ranks are left to the caller."""
    group = parallel_state.get_tp_group()
    group.rank_in_group, group.world_size = rank, size
    group.all_reduce = lambda tensor: tensor  # type: ignore[method-assign]


def construct(
    config: VllmConfig, kind: int, device: torch.device, prefix: str = "model.layers"
) -> flint.FlintAttention:
    """FlintAttention by itself, as the model's loader makes it."""
    with set_current_vllm_config(config), torch.device(device):
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            return flint.FlintAttention(
                config.model_config.hf_config, kind, config.cache_config, None, prefix=f"{prefix}.{kind}.self_attn"
            )
        finally:
            torch.set_default_dtype(default)


def random_weights(model: FlintConfig, device: torch.device, seed: int) -> Weights:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * scale + shift).to(device, torch.bfloat16)

    hidden, head = model.hidden_size, model.head_dim
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    return Weights(
        qkv=tuple(draw(n * head, hidden, scale=hidden**-0.5) for n in (heads, kv_heads, kv_heads)),  # type: ignore[arg-type]
        out=draw(hidden, heads * head, scale=(heads * head) ** -0.5),
        q_norm=draw(head, scale=0.3, shift=1.5),
        k_norm=draw(head, scale=0.3, shift=1.5),
        sinks=draw(heads, scale=2.0).float(),
    )


def rig(
    kind: int,
    *,
    tp: int = 1,
    window: int,
    requests: int,
    longest: int,
    backend: str | None = "TRITON_ATTN",
    device: str = "cpu",
    layout: KVCacheLayout = KVCacheLayout.LBHNC,
    seed: int = 0,
) -> Rig:
    """A layer of ``kind``, split over ``tp`` ranks, with room for that many requests of up to ``longest`` tokens.

    The requests' blocks lie scattered in the cache.
    """
    model = flint_config(window)
    where = torch.device(device)
    weights = random_weights(model, where, seed)
    tables, blocks = scattered(requests, longest, seed, where)
    ranks = []
    for number in range(tp):
        config = vllm_config(model, backend)
        if not parallel_state.model_parallel_is_initialized():
            start(config)
        as_rank(number, tp)
        layer = construct(config, kind, where)
        _load(layer, weights)
        ranks.append(_with_cache(layer, config, blocks, layout, where))
        width = layer.q_size + 2 * layer.kv_size
        ranks[-1].projected = [torch.empty(0, width, dtype=torch.bfloat16, device=where) for _ in range(requests)]
    return Rig(
        kind,
        model,
        weights,
        ranks,
        where,
        tables,
        [torch.empty(0, model.hidden_size, dtype=torch.bfloat16, device=where) for _ in range(requests)],
    )


def _load(layer: flint.FlintAttention, weights: Weights) -> None:
    for name, tensor in zip("qkv", weights.qkv, strict=True):
        layer.qkv_proj.weight_loader(layer.qkv_proj.weight, tensor, name)
    layer.o_proj.weight_loader(layer.o_proj.weight, weights.out)
    layer.q_norm.weight.data.copy_(weights.q_norm)
    layer.k_norm.weight.data.copy_(weights.k_norm)
    layer.softmax_offset.weight_loader(layer.softmax_offset, weights.sinks)
    layer.requires_grad_(False)
    for linear in (layer.qkv_proj, layer.o_proj):
        linear.quant_method.process_weights_after_loading(linear)
    layer.attn.process_weights_after_loading(torch.bfloat16)


def allocate(
    attention: Any, config: VllmConfig, blocks: int, layout: KVCacheLayout, device: torch.device
) -> tuple[Any, torch.Tensor]:
    """Give the attention a cache of that many blocks; its metadata's builder, and the view that it was given."""
    with set_current_vllm_config(config):
        spec = customize_attention_spec(attention.attn_backend, attention.get_kv_cache_spec(config))
        name = attention.layer_name
        page = spec.page_size_bytes
        raw = torch.full((blocks * page,), UNWRITTEN, dtype=torch.int8, device=device)
        place = KVCacheTensor(size=raw.numel(), layers=[name], layer_stride=raw.numel(), block_stride=page)
        (view,) = create_kv_cache_views(raw, spec, blocks, layout, place)
        attention.kv_cache = view
        return attention.attn_backend.get_builder_cls()(spec, [name], config, device), view


def _with_cache(
    layer: flint.FlintAttention, config: VllmConfig, blocks: int, layout: KVCacheLayout, device: torch.device
) -> Rank:
    builder, view = allocate(layer.attn, config, blocks, layout, device)
    rank = Rank(layer, config, builder, view)
    update = layer.attn.impl.do_kv_cache_update

    def counted(*args: Any, **kwargs: Any) -> Any:
        rank.cache_updates += 1
        return update(*args, **kwargs)

    layer.attn.impl.do_kv_cache_update = counted
    return rank


def _record(rank: Rank, work: Batch) -> Any:
    """The layer norms k in place, so its projection must be kept when it is made."""

    def keep(module: Any, arguments: Any, output: Any) -> None:
        for request, part in zip(work.chosen, output[0].split(work.counts), strict=True):
            rank.projected[request] = torch.cat([rank.projected[request], part.clone()])

    return rank.layer.qkv_proj.register_forward_hook(keep)


def scattered(requests: int, longest: int, seed: int, device: torch.device) -> tuple[torch.Tensor, int]:
    """The requests' block tables, with their blocks anywhere in a cache, and how many blocks that cache has."""
    per_request = -(-longest // BLOCK)
    blocks = requests * per_request + 3
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(seed))[: requests * per_request]
    return order.to(torch.int32).view(requests, per_request).to(device), blocks


def slots(tables: torch.Tensor, request: int, first: int, count: int) -> torch.Tensor:
    """Where the cache keeps that request's tokens."""
    positions = torch.arange(first, first + count, device=tables.device)
    return tables[request, positions // BLOCK].long() * BLOCK + positions % BLOCK


@dataclass(frozen=True)
class Batch:
    """One step's tokens, request after request: which requests, how many tokens of each, and where they belong."""

    chosen: list[int]
    counts: list[int]
    positions: torch.Tensor
    slots: torch.Tensor
    common: CommonAttentionMetadata


def batch(tables: torch.Tensor, done: Sequence[int], new: Sequence[int]) -> Batch:
    """``new[i]`` further tokens (0: not scheduled) of request i, of which ``done[i]`` are in the cache."""
    device = tables.device
    chosen = [request for request, count in enumerate(new) if count]
    positions = torch.cat([torch.arange(done[r], done[r] + new[r], device=device) for r in chosen])
    mapping = torch.cat([slots(tables, r, done[r], new[r]) for r in chosen])
    starts = torch.tensor([0, *(new[r] for r in chosen)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    lengths = torch.tensor([done[r] + new[r] for r in chosen], dtype=torch.int32)
    common = CommonAttentionMetadata(
        query_start_loc=starts.to(device),
        query_start_loc_cpu=starts,
        seq_lens=lengths.to(device),
        num_reqs=len(chosen),
        num_actual_tokens=len(positions),
        max_query_len=max(new),
        max_seq_len=int(lengths.max()),
        block_table_tensor=tables[chosen].contiguous(),
        slot_mapping=mapping,
    )
    return Batch(chosen, [new[r] for r in chosen], positions, mapping, common)


def step(rig: Rig, new: Sequence[int], seed: int) -> list[torch.Tensor]:
    """Run the layer once with ``new[i]`` further tokens of request i (0: not scheduled); its output for each request.

    The ranks' outputs are added up, as their all-reduce would.
    """
    generator = torch.Generator().manual_seed(seed)
    work = batch(rig.tables, [len(history) for history in rig.history], new)
    fresh = {
        request: torch.randn(count, rig.model.hidden_size, generator=generator).to(rig.device, torch.bfloat16)
        for request, count in zip(work.chosen, work.counts, strict=True)
    }
    hidden = torch.cat([fresh[request] for request in work.chosen])
    total = torch.zeros(len(hidden), rig.model.hidden_size, device=rig.device)
    for number, rank in enumerate(rig.ranks):
        as_rank(number, len(rig.ranks))
        name = rank.layer.attn.layer_name
        with set_current_vllm_config(rank.config):
            metadata = {name: rank.builder.build(0, work.common)}
            with set_forward_context(metadata, rank.config, slot_mapping={name: work.slots}):
                hook = _record(rank, work)
                total += rank.layer(work.positions, hidden).float()
                hook.remove()
    for request in work.chosen:
        rig.history[request] = torch.cat([rig.history[request], fresh[request]])
    return list(total.split(work.counts))


def normed(rig: Rig, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """q or k of a request, (tokens, heads, head size), after norm and, in a sliding layer, RoPE."""
    x = dense.norm(rig.model, x, weight)
    return dense.rope(rig.model, x) if dense.rotates(rig.model, rig.kind) else x


def reference(rig: Rig, request: int) -> torch.Tensor:
    """The layer's output for all tokens of a request, in double precision."""
    return dense.attention(rig.model, rig.kind, rig.history[request], rig.weights)


def cache_faults(rig: Rig, rank: int) -> dict[str, float]:
    """What the rank's cache holds, read as the backend reads it (blocks, heads, block size, K beside V), against what
    the rank's own projection gave: V bit for bit, K after norm and RoPE; and how much else was written."""
    me = rig.ranks[rank]
    head, heads = rig.model.head_dim, me.layer.num_kv_heads
    found = {"v_differs": 0, "k_steps": 0, "k_share": 0.0, "tokens": 0}
    for request, projected in enumerate(me.projected):
        where = slots(rig.tables, request, 0, len(projected))
        rows = me.cache[where // BLOCK, :, where % BLOCK, :]
        _, k, v = projected.split([me.layer.q_size, me.layer.kv_size, me.layer.kv_size], dim=-1)
        found["v_differs"] += int((rows[..., head:] != v.unflatten(-1, (heads, head))).sum())
        wanted = normed(rig, k.unflatten(-1, (heads, head)), rig.weights.k_norm)
        # RoPE's difference of two products may nearly vanish, and then a tiny error is many steps: those are left out.
        apart = steps(rows[..., :head], wanted) * (wanted.abs() > 0.25)
        found["k_steps"] = max(found["k_steps"], int(apart.max()))
        found["k_share"] = max(found["k_share"], float((apart > 0).double().mean()))
        found["tokens"] += len(projected)
    unwritten = int((me.cache.contiguous().view(torch.int16) == UNWRITTEN * 0x101).sum())
    found["written_elsewhere"] = me.cache.numel() - unwritten - found["tokens"] * heads * 2 * head
    found["backend_writes"] = me.cache_updates
    return found


def play(rig: Rig, schedule: Sequence[Sequence[int]], seed: int = 1) -> dict[str, Any]:
    """Run the schedule (one entry a step: how many new tokens of each request) and compare everything."""
    got: list[list[torch.Tensor]] = [[] for _ in rig.history]
    for number, new in enumerate(schedule):
        outputs = iter(step(rig, new, seed + number))
        for request, count in enumerate(new):
            if count:
                got[request].append(next(outputs))
    worst = 0.0
    for request, parts in enumerate(got):
        wanted, out, done = reference(rig, request), torch.cat(parts).double(), 0
        for part in parts:  # each step by itself: a wrong decode must not hide behind a long prefill
            piece = slice(done, done + len(part))
            error = ((out[piece] - wanted[piece]).norm() / wanted[piece].norm()).item()
            worst = max(worst, error) if error == error else float("nan")
            done += len(part)
    return {"error": worst, "ranks": [cache_faults(rig, rank) for rank in range(len(rig.ranks))]}
