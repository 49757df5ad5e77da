"""Compiles the norm and SiLU kernels to SPIR-V with Intel's Triton, which lies first on the search path.

It is too old for vLLM itself, so norm.py is loaded by itself over the three names that it takes from vLLM. No SYCL is
needed: only its look at a GPU that is there would need it.
"""

from __future__ import annotations

import importlib.util
import sys
import types

import triton
import triton.language as tl
import triton.language.extra.libdevice as tldevice
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.kernels.probes import answer

backends["intel"].compiler.__init__.__globals__["compile_module_from_src"] = lambda *_: types.SimpleNamespace(
    parse_device_arch=lambda _: ""
)
#: What a discrete Xe GPU reports, as far as the compiler asks.
TARGET = GPUTarget(
    "xpu",
    {
        "name": "xpu",
        "max_work_group_size": 1024,
        "max_num_sub_groups": 64,
        "sub_group_sizes": [16, 32],
        "has_fp64": True,
        "has_subgroup_matrix_multiply_accumulate": True,
        "has_subgroup_2d_block_io": True,
        "has_bfloat16_conversions": True,
    },
    32,
)


def load(path: str) -> types.ModuleType:
    given = types.ModuleType("vllm.triton_utils")
    given.tl, given.tldevice, given.triton = tl, tldevice, triton  # type: ignore[attr-defined]
    sys.modules["vllm"], sys.modules["vllm.triton_utils"] = types.ModuleType("vllm"), given
    spec = importlib.util.spec_from_file_location("norm", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(kernel: object, types_: dict[str, str], constants: dict[tuple[int], object]) -> dict[str, object]:
    asm = triton.compile(ASTSource(kernel, types_, constants), target=TARGET, options={"num_warps": 4}).asm
    return {
        "inline_asm": "inline_asm" in asm["ttir"],
        "ptx": b"rsqrt.approx" in asm["spv"],
        "inline_assembly": b"SPV_INTEL_inline_assembly" in asm["spv"],
        "software_division": b"__fp_div" in asm["spv"],
        "size": len(asm["spv"]),
    }


norm = load(sys.argv[1])
pointers = {f"{name}_ptr": "*bf16" for name in ("x", "res", "w", "out", "res_out")}
answer(
    {
        "triton": triton.__version__,
        "norm": compiled(
            norm._rms_norm_kernel,
            {**pointers, "x_stride": "i32", "eps": "fp32", "H": "constexpr", "HAS_RESIDUAL": "constexpr"},
            {(7,): 2048, (8,): True},
        ),
        "silu": compiled(
            norm._silu_and_mul_kernel,
            {"x_ptr": "*bf16", "out_ptr": "*bf16", "x_stride": "i32", "D": "constexpr", "BD": "constexpr"},
            {(3,): 1536, (4,): 512},
        ),
    }
)
