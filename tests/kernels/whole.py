"""The whole Flint model: built, loaded and stepped as the serving code does it, and compared with plain torch.

Every layer is compared by itself on the inputs that it got, so that one layer's roundings do not hide in the next; and
the logits once more on a run of the reference alone, from the tokens.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.models.flint import model as flint
from vllm.models.flint.configs import FlintConfig
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.workspace import init_workspace_manager

from tests.kernels import dense, layer

#: Where a token's last chosen expert is this little ahead of the next one, a rounding may decide between them: on
#: logits that are about as large as 1 are bf16's steps 0.004 to 0.008.
CLEAR = 0.05


def small() -> FlintConfig:
    """One layer of each kind, with all of Flint's sizes but the numbers of layers, experts and words."""
    return FlintConfig(
        num_hidden_layers=3,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        no_rope_layer_indices=[2],
        mlp_only_layers=[0],
        sliding_window=9,
        num_experts=8,
        vocab_size=512,
        max_position_embeddings=16384,
        architectures=["FlintForCausalLM"],
    )


def full(layers: int = 49) -> FlintConfig:
    """As large as the model itself: 49 layers, 14 of them with full attention and 2 of them dense, 256 experts. Which
    layers those are, only the checkpoint says."""
    wide = [number for number in range(layers) if number % 7 in (3, 6)]
    return FlintConfig(
        num_hidden_layers=layers,
        layer_types=["full_attention" if number in wide else "sliding_attention" for number in range(layers)],
        no_rope_layer_indices=wide,
        mlp_only_layers=[0, 1],
        max_position_embeddings=16384,
        architectures=["FlintForCausalLM"],
    )


@dataclass(frozen=True)
class Checkpoint:
    """Random weights under the names of the model's files; each is made anew whenever it is asked for, the same."""

    model: FlintConfig
    device: torch.device

    def tensor(self, name: str, *shape: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
        generator = torch.Generator(self.device).manual_seed(zlib.crc32(name.encode()))
        x = torch.randn(*shape, generator=generator, device=self.device)
        return (x * scale + shift).to(torch.bfloat16)

    def matrix(self, name: str, rows: int, columns: int) -> torch.Tensor:
        return self.tensor(f"{name}.weight", rows, columns, scale=columns**-0.5)

    def norm(self, name: str, width: int) -> torch.Tensor:
        return self.tensor(f"{name}.weight", width, scale=0.2, shift=1.0)

    def attention(self, number: int) -> dense.Weights:
        m, at = self.model, f"model.layers.{number}.self_attn"
        q, kv = m.num_attention_heads * m.head_dim, m.num_key_value_heads * m.head_dim
        qkv = tuple(
            self.matrix(f"{at}.{name}_proj", rows, m.hidden_size) for name, rows in (("q", q), ("k", kv), ("v", kv))
        )
        return dense.Weights(
            qkv=qkv,  # type: ignore[arg-type]
            out=self.matrix(f"{at}.o_proj", m.hidden_size, q),
            q_norm=self.norm(f"{at}.q_norm", m.head_dim),
            k_norm=self.norm(f"{at}.k_norm", m.head_dim),
            sinks=self.tensor(f"{at}.softmax_offset", m.num_attention_heads, scale=2.0).float(),
        )

    def mlp(self, at: str, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.model.hidden_size
        return (
            self.matrix(f"{at}.gate_proj", width, hidden),
            self.matrix(f"{at}.up_proj", width, hidden),
            self.matrix(f"{at}.down_proj", hidden, width),
        )

    def expert(self, at: str, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.mlp(f"{at}.experts.{number}", self.model.moe_intermediate_size)

    def words(self, at: str) -> torch.Tensor:
        return self.matrix(at, self.model.vocab_size, self.model.hidden_size)

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        m = self.model

        def three(at: str, weights: tuple[torch.Tensor, ...]) -> Iterator[tuple[str, torch.Tensor]]:
            yield from zip((f"{at}.{name}_proj.weight" for name in ("gate", "up", "down")), weights, strict=True)

        yield "model.embed_tokens.weight", self.words("model.embed_tokens")
        for number in range(m.num_hidden_layers):
            at = f"model.layers.{number}"
            mine = self.attention(number)
            for name, tensor in zip("qkv", mine.qkv, strict=True):
                yield f"{at}.self_attn.{name}_proj.weight", tensor
            yield f"{at}.self_attn.o_proj.weight", mine.out
            yield f"{at}.self_attn.q_norm.weight", mine.q_norm
            yield f"{at}.self_attn.k_norm.weight", mine.k_norm
            yield f"{at}.self_attn.softmax_offset", mine.sinks
            for name in ("input_layernorm", "post_attention_layernorm"):
                yield f"{at}.{name}.weight", self.norm(f"{at}.{name}", m.hidden_size)
            if number in m.mlp_only_layers:
                yield from three(f"{at}.mlp", self.mlp(f"{at}.mlp", m.intermediate_size))
                continue
            yield f"{at}.mlp.gate.weight", self.matrix(f"{at}.mlp.gate", m.num_experts, m.hidden_size)
            shared = f"{at}.mlp.shared_expert"
            yield from three(shared, self.mlp(shared, m.shared_expert_intermediate_size))
            for expert in range(m.num_experts):
                yield from three(f"{at}.mlp.experts.{expert}", self.expert(f"{at}.mlp", expert))
        yield "model.norm.weight", self.norm("model.norm", m.hidden_size)
        yield "lm_head.weight", self.words("lm_head")


@dataclass
class Seen:
    """What went into a decoder layer and came out of it, all steps' tokens in the order in which they were run."""

    inputs: list[torch.Tensor] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)
    residuals: list[torch.Tensor] = field(default_factory=list)


@dataclass
class Served:
    """One rank's model. ``order`` tells of every token that was run which request's it is."""

    config: VllmConfig
    model: flint.FlintForCausalLM
    checkpoint: Checkpoint
    builders: dict[str, Any]
    tables: torch.Tensor
    seen: list[Seen]
    tokens: list[torch.Tensor] = field(default_factory=list)
    order: list[torch.Tensor] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)


def serve(
    model: FlintConfig, device: str, requests: int, longest: int, rank: int = 0, size: int = 1, port: int | None = None
) -> Served:
    """This process's part of the model, one of ``size`` processes, with room for that many requests.

    The weights are loaded by the model's own loader from a checkpoint's names.
    """
    where = torch.device(device)
    config = layer.vllm_config(model, "TRITON_ATTN", tp=size)
    layer.start(config, rank, size, port)
    init_workspace_manager(where)
    with set_current_vllm_config(config):
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(where):
            made = flint.FlintForCausalLM(vllm_config=config)
        torch.set_default_dtype(torch.float32)
        checkpoint = Checkpoint(model, where)
        loaded = made.load_weights(checkpoint)
        missing = {name for name, _ in made.named_parameters()} - loaded
        assert not missing, f"never loaded: {sorted(missing)}"
        made.requires_grad_(False)
        process_weights_after_loading(made, config.model_config, where)
    tables, blocks = layer.scattered(requests, longest, 0, where)
    builders = {}
    seen = []
    for each in made.model.layers:
        attention = each.self_attn.attn
        builders[attention.layer_name], _ = layer.allocate(attention, config, blocks, KVCacheLayout.LBHNC, where)
        seen.append(_watched(each))
    return Served(config, made, checkpoint, builders, tables, seen)


def _watched(part: torch.nn.Module) -> Seen:
    seen = Seen()

    def before(module: Any, arguments: Any) -> None:
        _, hidden, residual = arguments
        # What enters is their sum, which the norm keeps as the next residual; the layer may write both in place.
        seen.inputs.append(hidden.clone() if residual is None else hidden + residual)

    def after(module: Any, arguments: Any, output: Any) -> None:
        seen.outputs.append(output[0].clone())
        seen.residuals.append(output[1].clone())

    part.register_forward_pre_hook(before)
    part.register_forward_hook(after)
    return seen


def step(served: Served, new: Sequence[int], seed: int) -> None:
    """Run the model once with ``new[i]`` further random tokens of request i."""
    device = served.tables.device
    order = torch.cat([torch.empty(0, dtype=torch.long), *served.order]).cpu()
    work = layer.batch(served.tables, [int((order == request).sum()) for request in range(len(new))], new)
    generator = torch.Generator().manual_seed(seed)
    count = len(work.positions)
    tokens = torch.randint(served.checkpoint.model.vocab_size, (count,), generator=generator).to(device)
    with set_current_vllm_config(served.config):
        metadata = {name: builder.build(0, work.common) for name, builder in served.builders.items()}
        mapping = dict.fromkeys(served.builders, work.slots)
        with set_forward_context(metadata, served.config, num_tokens=count, slot_mapping=mapping):
            hidden = served.model(tokens, work.positions)
        logits = served.model.compute_logits(hidden)
    served.tokens.append(tokens)
    served.order.append(torch.tensor(work.chosen).repeat_interleave(torch.tensor(work.counts)))
    if logits is not None:  # where ranks gather them, the first rank alone has them
        served.logits.append(logits)


def _apart(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def _reference(
    checkpoint: Checkpoint, number: int, entering: torch.Tensor, requests: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Layer ``number`` on what enters it: its output, its residual, and every token's margin in the choice of experts.
    ``requests`` has each request's places among the tokens, in order."""
    m, at = checkpoint.model, f"model.layers.{number}"
    normed = dense.norm(m, entering, checkpoint.norm(f"{at}.input_layernorm", m.hidden_size))
    weights = checkpoint.attention(number)
    mixed = torch.empty_like(entering)
    for places in requests:
        mixed[places] = dense.attention(m, number, normed[places], weights).to(torch.bfloat16)
    residual = (mixed.double() + entering.double()).to(torch.bfloat16)
    normed = dense.norm(m, residual, checkpoint.norm(f"{at}.post_attention_layernorm", m.hidden_size))
    if number in m.mlp_only_layers:
        out = dense.swiglu(normed, *checkpoint.mlp(f"{at}.mlp", m.intermediate_size))
        return out.to(torch.bfloat16), residual, torch.full((len(out),), torch.inf, device=out.device)
    gate = checkpoint.matrix(f"{at}.mlp.gate", m.num_experts, m.hidden_size)
    out, margin = dense.routed(m, normed, gate, lambda expert: checkpoint.expert(f"{at}.mlp", expert))
    out += dense.swiglu(normed, *checkpoint.mlp(f"{at}.mlp.shared_expert", m.shared_expert_intermediate_size))
    return out.to(torch.bfloat16), residual, margin


def logits(checkpoint: Checkpoint, tokens: torch.Tensor, requests: Sequence[torch.Tensor]) -> torch.Tensor:
    """What the reference makes of the tokens by itself, from the embedding on."""
    hidden = checkpoint.words("model.embed_tokens")[tokens]
    for number in range(checkpoint.model.num_hidden_layers):
        out, residual, _ = _reference(checkpoint, number, hidden, requests)
        hidden = out + residual
    return _head(checkpoint, hidden)


def _head(checkpoint: Checkpoint, hidden: torch.Tensor) -> torch.Tensor:
    final = checkpoint.norm("model.norm", checkpoint.model.hidden_size)
    return dense.product(dense.norm(checkpoint.model, hidden, final), checkpoint.words("lm_head"))


def _requests(served: Served) -> list[torch.Tensor]:
    order = torch.cat(served.order).to(served.checkpoint.device)
    return [(order == request).nonzero()[:, 0] for request in range(len(served.tables))]


def compare_layer(served: Served, number: int) -> dict[str, float]:
    """The relative errors of what the layer's attention leaves in the residual, and of the layer's output, over the
    tokens whose choice of experts is clear; and how many of all tokens those are."""
    number %= len(served.seen)
    seen = served.seen[number]
    wanted, residual, margin = _reference(served.checkpoint, number, torch.cat(seen.inputs), _requests(served))
    clear = margin > CLEAR
    return {
        "attention": _apart(torch.cat(seen.residuals), residual),
        "output": _apart(torch.cat(seen.outputs)[clear], wanted[clear]),
        "clear": clear.double().mean().item(),
    }


def compare(served: Served) -> dict[str, Any]:
    """Every layer against the reference on the same input, the logits on the last layer's output, and the logits from
    the tokens alone, where the layers' errors add up."""
    checkpoint = served.checkpoint
    tokens = torch.cat(served.tokens)
    embedded = checkpoint.words("model.embed_tokens")[tokens]
    found: dict[str, Any] = {
        "tokens": len(tokens),
        "embedding exact": torch.equal(torch.cat(served.seen[0].inputs), embedded),
        "layers": [compare_layer(served, number) for number in range(len(served.seen))],
    }
    if served.logits:
        got = torch.cat(served.logits)[:, : checkpoint.model.vocab_size]
        last = torch.cat(served.seen[-1].outputs) + torch.cat(served.seen[-1].residuals)
        alone = logits(checkpoint, tokens, _requests(served))
        found["logits"] = _apart(got, _head(checkpoint, last))
        found["logits from tokens"] = _apart(got, alone)
        found["same word"] = (got.argmax(-1) == alone.argmax(-1)).double().mean().item()
    return found
