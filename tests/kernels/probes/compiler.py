"""Triton compiles for a GPU that is not there and launches nothing: import after torch, before any kernel is called.

Every kernel that the code under test launches is compiled with the very arguments of the launch; ``compiled`` holds
what came out, in order.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit

compiled: list[tuple[str, Any]] = []


class _NoGpu:
    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def amd(gpu: str) -> GPUTarget:
    """An AMD GPU as Triton's own driver would name it: a wavefront has 64 lanes on gfx9, 32 on RDNA."""
    return GPUTarget("hip", gpu, 64 if gpu.startswith("gfx9") else 32)


def compile_for(target: GPUTarget) -> None:
    """From now on every launch compiles for ``target`` instead."""
    driver.set_active(_NoGpu(target))
    run = jit.JITFunction.run

    def instead(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        compiled.append((self.__name__, kernel))
        return kernel

    jit.JITFunction.run = instead


def report() -> list[dict[str, object]]:
    """For each kernel: its name, whether its first stage holds inline assembly, how many bytes of memory a block of
    threads shares, and the sizes of what came out."""
    return [
        {
            "kernel": name,
            "inline_asm": "inline_asm" in kernel.asm["ttir"],
            "shared": kernel.metadata.shared,
            "sizes": {stage: len(text) for stage, text in kernel.asm.items()},
        }
        for name, kernel in compiled
    ]
