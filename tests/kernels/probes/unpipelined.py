"""Lets NVIDIA's Triton compile the attention kernel with tensor descriptors: import before it is launched.

The kernel makes its descriptors inside the loop, and on Hopper Triton's pipeliner refuses that ("doesn't know how to
predicate this op"); with one stage there is nothing to pipeline. Descriptors made on the device need scratch memory,
which vLLM provides only on platforms that use them by default.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from triton.runtime import jit

_run = jit.JITFunction.run


def _one_stage(self: Any, *args: Any, **kwargs: Any) -> Any:
    if self.__name__ == "kernel_unified_attention":
        kwargs.setdefault("num_stages", 1)
    return _run(self, *args, **kwargs)


jit.JITFunction.run = _one_stage
triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
