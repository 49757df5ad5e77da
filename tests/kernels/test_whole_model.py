"""All patches together: the whole Flint model, one layer of each kind, loaded, prefilled and decoded without a GPU.

Attention, norms and activations are the patched files' own, in Triton's interpreter. Stand-ins take the place of the
operations that vLLM has compiled for each GPU; on AMD the experts are vLLM's Triton kernel, on Intel they are compiled.
"""

from __future__ import annotations

import json

import pytest

from tests.kernels import probe, trees

SCHEDULE = [[12, 3], [1, 1], [2, 0]]
AMD = {
    "HIP_VISIBLE_DEVICES": "",
    "STUB_GFX": "gfx942",
    "VLLM_DISABLE_SHARED_EXPERTS_STREAM": "1",  # there is no second stream without a GPU
    "VLLM_ROCM_MOE_PADDING": "0",  # it is copied back to where it came from, and only takes time
}


def serve(tree, platform, processes=1, **env):
    arguments = (platform, "small", json.dumps(SCHEDULE), str(processes))
    return probe.run("whole", tree, *arguments, env={"TRITON_INTERPRET": "1", **env}, stubs=platform)


@pytest.mark.parametrize(
    ("platform", "name", "processes", "experts", "env"),
    [
        ("xpu", "XPUPlatform", 1, "XPUExperts", {}),
        ("xpu", "XPUPlatform", 2, "XPUExperts", {}),
        ("rocm", "RocmPlatform", 1, "TritonExperts", AMD),
    ],
    ids=["xpu", "xpu on two ranks", "rocm"],
)
def test_every_layer_and_the_logits_equal_the_reference(platform, name, processes, experts, env):
    found = serve(trees.patched(f"vllm-{platform}"), platform, processes, **env)
    assert found.answer is not None, found.stderr
    assert (found.answer["platform"], len(found.answer["ranks"])) == (name, processes)
    for rank in found.answer["ranks"]:
        assert (rank["fused"], rank["attention"], rank["experts"]) == (False, ["TritonAttentionImpl"], [experts])
        assert (rank["tokens"], rank["embedding exact"], len(rank["layers"])) == (19, True, 3)
        for each in rank["layers"]:
            assert each["attention"] < 0.01, rank  # bf16 roundings give 0.003
            assert each["output"] < 0.02, rank  # and 0.008 after the experts
            assert each["clear"] > 0.5, rank
        assert all(error > 0.05 for error in rank["wrong on purpose"].values()), rank
        assert len(rank["wrong on purpose"]) == 4
        assert rank["logits"] < 0.01, rank
        assert rank["logits from tokens"] < 0.1, rank
        assert rank["same word"] > 0.9, rank


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("flint-norm-portable", "inline_asm"),
        ("flint-moe-annotations", "unsupported operand type(s) for |: 'function' and 'NoneType'"),
        ("flint-model-attention", "No module named 'flashinfer'"),
    ],
)
def test_without_any_one_of_the_three_patches_the_model_does_not_run_on_xpu(left_out, said):
    found = serve(trees.patched("vllm-xpu", without=left_out), "xpu")
    assert found.answer is None
    assert said in found.stderr
