"""What compilers make of the kernels, without any GPU: AMD's from PyPI's Triton, Intel's from PyPI's triton-xpu."""

from __future__ import annotations

import pytest

from patchkit.catalog.load import load_catalog
from tests.kernels import probe, trees

#: All that the manifest is for: whoever adds a GPU to it has its kernels compiled.
GPUS = next(each.gpus.only for each in load_catalog(trees.REPOSITORY).manifests if each.name == "vllm-rocm")
#: One of each generation, and both whose images hold AITER.
GENERATIONS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201"]
#: Bytes of local memory that one workgroup may have, as AMD's documents on CDNA and RDNA tell.
LOCAL_MEMORY = dict.fromkeys(GENERATIONS, 64 * 1024) | {"gfx950": 160 * 1024}


def amd(tree, gpu, *arguments, name="compile_rocm", **settings):
    # A kernel from the cache would not let LLVM complain again.
    env = {"STUB_GFX": gpu, "HIP_VISIBLE_DEVICES": "", "TRITON_ALWAYS_COMPILE": "1", **settings}
    return probe.run(name, tree, gpu, *arguments, env=env, stubs="rocm")


@pytest.mark.parametrize("gpu", GENERATIONS)
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


@pytest.mark.parametrize("gpu", GENERATIONS)
def test_every_triton_kernel_of_the_stock_moe_block_compiles_for_amd_without_inline_assembly(gpu):
    tree = trees.patched("vllm-rocm")
    # There is no second stream without a GPU; and padding, which is copied back to where it came from, only takes time.
    settings = {"VLLM_DISABLE_SHARED_EXPERTS_STREAM": "1", "VLLM_ROCM_MOE_PADDING": "0"}
    outcome = amd(tree, gpu, name="compile_rocm_moe", **settings)
    assert outcome.status == 0, outcome.stderr
    assert outcome.answer["platform"] == "RocmPlatform"
    assert [(block["tp"], block["w13"], block["w2"]) for block in outcome.answer["blocks"]] == [
        (tp, [256, 2 * width // tp, 2048], [256, 2048, width // tp]) for width in (512, 1024) for tp in (1, 2, 4, 8)
    ]
    for block in outcome.answer["blocks"]:
        assert (block["fused"], block["experts"]) == (False, "TritonExperts")
        # The shared expert's activation, then both products of the routed ones.
        expected = ["_silu_and_mul_kernel", "fused_moe_kernel", "fused_moe_kernel"]
        assert sorted(block["launches"]) == sorted(expected * outcome.answer["batches"])
    assert [row for row in outcome.answer["kernels"] if row["inline_asm"] or not row["sizes"]["hsaco"]] == []
    assert max(row["shared"] for row in outcome.answer["kernels"]) <= LOCAL_MEMORY[gpu]
    assert "could not allocate" not in outcome.stderr
    assert "error:" not in outcome.stderr
    # These are what the evidence leaves out: whoever adds to them, or takes one away, has the table to mend.
    assert outcome.answer["hip"] == [
        "_C.silu_and_mul",
        "_moe_C.moe_align_block_size",
        "_moe_C.moe_sum",
        "_moe_C.topk_sigmoid",
    ]


def test_no_tuned_block_shapes_of_vllm_concern_flint_s_experts_on_amd():
    folder = trees.pristine() / "vllm/model_executor/layers/fused_moe/configs"
    tuned = [path.name for path in folder.glob("E=256,N=*,device_name=AMD_*.json")]
    assert tuned  # the names are still as this test takes them to be
    assert [name for name in tuned if "dtype=" not in name and "block_shape=" not in name] == []


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
