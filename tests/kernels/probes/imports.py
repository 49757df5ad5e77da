"""Imports one module of vLLM, after the XPU worker's wrapper if asked: arguments MODULE and ``wrapper`` or ``plain``.

Answers with the compile-time constants that Triton sees in each of its kernels.
"""

from __future__ import annotations

import importlib
import sys

from triton.runtime.jit import JITFunction

from tests.kernels.probes import answer

if sys.argv[2] == "wrapper":
    from vllm.v1.worker.xpu_model_runner import _torch_cuda_wrapper

    with _torch_cuda_wrapper():
        pass

module = importlib.import_module(sys.argv[1])
answer(
    {
        name: [parameter.name for parameter in value.params if parameter.is_constexpr]
        for name, value in sorted(vars(module).items())
        if isinstance(value, JITFunction)
    }
)
