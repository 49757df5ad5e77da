"""vLLM's compiled operations that Flint's MoE block calls, declared for the CPU: a probe gives their bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from vllm.distributed import parallel_state
from vllm.model_executor.layers.fused_moe.runner import moe_runner
from vllm.utils.torch_utils import vllm_lib

#: With the arguments that vLLM's _custom_ops and the activation hand over.
_SCHEMAS = {
    "_moe_C": [
        "topk_sigmoid(Tensor(a!) weights, Tensor(b!) ids, Tensor(c!) indices, Tensor gating, bool renormalize,"
        " Tensor? bias, float factor, Tensor? padding) -> ()",
        "moe_align_block_size(Tensor topk_ids, int experts, int block, Tensor(a!) sorted, Tensor(b!) expert_ids,"
        " Tensor(c!) padded, Tensor? expert_map, Tensor(d!)? scatter) -> ()",
        "moe_sum(Tensor input, Tensor(a!) output, Tensor? topk_ids, Tensor? expert_map) -> ()",
    ],
    "_C": ["silu_and_mul(Tensor(a!) out, Tensor input) -> ()"],
}
NAMES = tuple(f"{space}.{schema.partition('(')[0]}" for space, schemas in _SCHEMAS.items() for schema in schemas)


def define(bodies: Mapping[str, Callable[..., Any]]) -> list[torch.library.Library]:
    """Declare every operation in NAMES with its body. They live as long as the libraries that are given back."""
    libraries = []
    for space, schemas in _SCHEMAS.items():
        library = torch.library.Library(space, "FRAGMENT")
        for schema in schemas:
            library.define(schema)
            name = schema.partition("(")[0]
            library.impl(name, bodies[f"{space}.{name}"], "CPU")
        libraries.append(library)
    # vLLM registers its own operations for tensors on a GPU alone.
    vllm_lib.impl("moe_forward_shared", moe_runner._moe_forward_shared, "CPU")
    vllm_lib.impl("all_reduce", parallel_state.all_reduce, "CPU")
    vllm_lib.impl("all_gather", parallel_state.all_gather, "CPU")
    torch.accelerator.empty_cache = lambda: None
    return libraries
