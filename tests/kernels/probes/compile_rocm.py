# ruff: noqa: E402 - what is imported first changes what is imported after it
"""Compiles every kernel that Flint's norms, MLP and one attention layer of each kind launch, for one AMD GPU.

Argument: the architecture (``gfx942``), which the stub of amdsmi must name too.
"""

from __future__ import annotations

import sys

import torch

from tests.kernels.probes import compiler

compiler.compile_for(compiler.amd(sys.argv[1]))

from vllm.models.flint.ops import norm
from vllm.platforms import current_platform

from tests.kernels import layer, numbers
from tests.kernels.probes import answer


def launch() -> None:
    for width in numbers.NORM_SIZES:
        x, weight = numbers.rows("random", 2, width), torch.ones(width, dtype=torch.bfloat16)
        norm.rms_norm(x, weight, 1e-6)
        norm.fused_add_rms_norm(x.clone(), x.clone(), weight, 1e-6)
    for width in numbers.SILU_SIZES:
        norm.silu_and_mul(numbers.rows("random", 1, 2 * width))
    for kind in (layer.SLIDING, layer.FULL):
        for tp in (1, 4):
            rig = layer.rig(kind, tp=tp, window=513, requests=2, longest=800)
            for new in ([20, 7], [1, 1], [5, 1]):
                layer.step(rig, new, 1)


def norms_alone() -> None:
    """What the unpatched module can launch without an assertion in the way."""
    x, weight = numbers.rows("random", 2, 2048), torch.ones(2048, dtype=torch.bfloat16)
    norm.rms_norm(x, weight, 1e-6)
    norm.silu_and_mul(numbers.rows("random", 1, 2048))


norms_alone() if sys.argv[2:] == ["norms"] else launch()
answer(
    {
        "platform": type(current_platform).__name__,
        "capability": str(current_platform.get_device_capability()),
        "kernels": compiler.report(),
    }
)
