# ruff: noqa: E402 - what is imported first changes what is imported after it
"""Compiles every Triton kernel that Flint's MoE block launches on vLLM's stock path, for one AMD GPU.

Argument: the architecture (``gfx942``), which the stub of amdsmi must name too. What the block calls of vLLM's compiled
operations is HIP and cannot be compiled here: stand-ins do nothing, and the answer names those that were called.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from tests.kernels.probes import compiler

compiler.compile_for(compiler.amd(sys.argv[1]))

from vllm.config import set_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers import utils
from vllm.models.flint import model as flint
from vllm.platforms import current_platform
from vllm.v1.worker.workspace import init_workspace_manager

from tests.kernels import layer
from tests.kernels.probes import answer, operations

#: One batch at least for each block shape, number of warps and grouping that get_default_config has for bf16. Triton
#: specialises in a number's divisibility by 16: both kinds stand among them; 10 is the most that is not sorted first.
TOKENS = (1, 10, 16, 33, 64, 65, 128, 512, 513, 33024)
#: Of an expert, before it is split: what FlintConfig says, and the shared expert's.
WIDTHS = (512, 1024)

called: set[str] = set()
libraries = operations.define(
    {name: lambda *_, called_as=name: called.add(called_as) for name in operations.NAMES}  # type: ignore[misc]
)
# Plain matrix products launch no Triton kernel and are slow on a CPU; no launch depends on their numbers.
utils.default_unquantized_gemm = lambda layer, x, weight, bias=None: x.new_empty(*x.shape[:-1], weight.shape[0])
init_workspace_manager(torch.device("cpu"))


def launch(width: int, tp: int) -> dict[str, Any]:
    config = layer.vllm_config(layer.flint_config(513, moe_intermediate_size=width), "TRITON_ATTN")
    if not layer.parallel_state.model_parallel_is_initialized():
        layer.start(config)
    layer.as_rank(0, tp)
    first = len(compiler.compiled)
    with set_current_vllm_config(config):
        torch.set_default_dtype(torch.bfloat16)
        block = flint.FlintSparseMoeBlock(config.model_config.hf_config, None, prefix="model.layers.1.mlp")
        torch.set_default_dtype(torch.float32)
        experts = block.experts.routed_experts
        experts.quant_method.process_weights_after_loading(experts)
        for count in TOKENS:
            with set_forward_context(None, config, num_tokens=count):
                block(torch.empty(count, config.model_config.hf_config.hidden_size, dtype=torch.bfloat16))
    return {
        "tp": tp,
        "fused": block.use_flint_kernel or block.bf16_decode is not None,
        "experts": type(experts.quant_method.moe_kernel.fused_experts).__name__,
        "w13": list(experts.w13_weight.shape),
        "w2": list(experts.w2_weight.shape),
        "launches": [name for name, _ in compiler.compiled[first:]],
    }


blocks = [launch(width, tp) for width in WIDTHS for tp in (1, 2, 4, 8)]
answer(
    {
        "platform": type(current_platform).__name__,
        "batches": len(TOKENS),
        "blocks": blocks,
        "kernels": compiler.report(),
        "hip": sorted(called),
    }
)
