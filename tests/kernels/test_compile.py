"""What compilers make of the kernels, without any GPU: AMD's from PyPI's Triton, Intel's from PyPI's triton-xpu."""

from __future__ import annotations

import pytest

from tests.kernels import probe, trees

GPUS = ["gfx942", "gfx950"]


def amd(tree, gpu, *arguments):
    # A kernel from the cache would not let LLVM complain again.
    env = {"STUB_GFX": gpu, "HIP_VISIBLE_DEVICES": "", "TRITON_ALWAYS_COMPILE": "1"}
    return probe.run("compile_rocm", tree, gpu, *arguments, env=env, stubs="rocm")


@pytest.mark.parametrize("gpu", GPUS)
def test_the_shipped_norm_compiles_for_amd_with_ptx_inside_and_no_exception(gpu):
    outcome = amd(trees.pristine(), gpu, "norms")
    assert outcome.status == 0
    assert {row["kernel"]: row["inline_asm"] for row in outcome.answer["kernels"]} == {
        "_rms_norm_kernel": True,
        "_silu_and_mul_kernel": False,
    }
    assert "could not allocate output register" in outcome.stderr


@pytest.mark.parametrize("gpu", GPUS)
def test_every_kernel_on_the_path_of_the_patched_layers_compiles_for_amd_without_inline_assembly(gpu):
    outcome = amd(trees.patched("vllm-rocm"), gpu)
    assert outcome.status == 0, outcome.stderr
    assert outcome.answer["platform"] == "RocmPlatform"
    assert {row["kernel"] for row in outcome.answer["kernels"]} == {
        "_rms_norm_kernel",
        "_silu_and_mul_kernel",
        "_qk_norm_rope_cache_kernel",
        "kernel_unified_attention",
        "reduce_segments",
    }
    assert [row for row in outcome.answer["kernels"] if row["inline_asm"] or not row["sizes"]["hsaco"]] == []
    assert "could not allocate" not in outcome.stderr
    assert "error:" not in outcome.stderr


def test_the_shipped_norm_carries_ptx_into_spir_v():
    found = probe.run("compile_xpu", trees.triton_xpu(), str(trees.pristine() / "vllm/models/flint/ops/norm.py")).answer
    assert found["norm"]["inline_asm"]
    assert found["norm"]["ptx"]
    assert found["silu"]["software_division"]


def test_the_patched_kernels_lower_to_plain_spir_v():
    path = trees.patched("vllm-xpu") / "vllm/models/flint/ops/norm.py"
    found = probe.run("compile_xpu", trees.triton_xpu(), str(path)).answer
    for kernel in (found["norm"], found["silu"]):
        assert not any(kernel[name] for name in ("inline_asm", "ptx", "inline_assembly", "software_division"))
        assert kernel["size"] > 1000
