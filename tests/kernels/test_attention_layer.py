"""flint-model-attention: construction, and one whole attention layer's forward on the path of every GPU but SM100."""

from __future__ import annotations

import json

import pytest

from tests.kernels import probe, trees

XPU = {"TRITON_INTERPRET": "1"}
SLIDING, FULL = 0, 1


def construct(tree, backend="TRITON_ATTN", tp=4, dtype="auto", platform="xpu", **env):
    return probe.run("attention", tree, platform, "construct", backend, str(tp), dtype, env=env, stubs=platform).answer


def forward(scenarios, **env):
    found = probe.run(
        "attention", trees.patched("vllm-xpu"), "xpu", "forward", json.dumps(scenarios), env={**XPU, **env}, stubs="xpu"
    )
    assert found.answer is not None, found.stderr
    assert found.answer["platform"] == "XPUPlatform"
    return found.answer["runs"]


def test_the_shipped_attention_cannot_be_made_on_xpu_for_want_of_flashinfer():
    found = construct(trees.pristine())
    assert found["platform"] == "XPUPlatform"
    assert found["error"] == "ModuleNotFoundError: No module named 'flashinfer'"


def test_the_patched_attention_takes_the_triton_backend_and_not_the_fused_kernels():
    found = construct(trees.patched("vllm-xpu"))
    assert (found["error"], found["impl"], found["fused"]) == ("", "TritonAttentionImpl", False)


def test_the_patched_attention_takes_flash_attention_too_where_that_is_the_platforms_choice():
    found = construct(trees.patched("vllm-xpu"), "default")
    assert (found["error"], found["impl"], found["fused"]) == ("", "FlashAttentionImpl", False)


def test_an_8_bit_cache_is_still_refused():
    assert construct(trees.patched("vllm-xpu"), dtype="fp8")["error"].startswith("AssertionError")


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_backend_that_keeps_keys_and_values_in_planes_of_their_own_is_refused_at_load(tp):
    found = construct(
        trees.patched("vllm-rocm"),
        "ROCM_SEGMENTED_ATTN",
        tp,
        platform="rocm",
        STUB_GFX="gfx1100",
        HIP_VISIBLE_DEVICES="",
    )
    assert found["platform"] == "RocmPlatform"
    assert "side by side" in found["error"]
    assert "use TRITON_ATTN" in found["error"]


@pytest.mark.parametrize("descriptors", ["0", "1"])
def test_one_layers_forward_equals_dense_attention_with_sinks_and_window(descriptors):
    scenarios = [
        {"kind": kind, "tp": tp, "layout": layout}
        for kind in (SLIDING, FULL)
        for tp, layout in [(1, "LBHNC"), (1, "LBNHC"), (2, "LBHNC"), (4, "LBHNC"), (8, "LBHNC")]
    ]
    for scenario, run in zip(scenarios, forward(scenarios, VLLM_TRITON_USE_TD=descriptors), strict=True):
        assert run["use_td"] is (descriptors == "1")
        assert run["error"] < 0.01, (scenario, run)  # bf16 roundings give 0.002
        for rank in run["ranks"]:
            assert rank["tokens"] == 71
            assert (rank["v_differs"], rank["k_steps"] <= 1, rank["k_share"] < 1e-3) == (0, True, True), (
                scenario,
                rank,
            )


def test_keys_and_values_reach_the_cache_exactly_once_and_nothing_else_is_written():
    (run,) = forward([{"kind": SLIDING, "tp": 2, "layout": "LBNHC"}])
    for rank in run["ranks"]:
        assert (rank["backend_writes"], rank["written_elsewhere"]) == (0, 0)


def test_on_xpu_tensor_descriptors_are_what_runs_by_default():
    (run,) = forward([{"kind": SLIDING, "tp": 2, "layout": "LBNHC"}])
    assert run["use_td"] is True


def test_a_cache_view_of_another_shape_is_refused_before_it_is_written():
    found = probe.run("views", trees.patched("vllm-xpu"), env=XPU, stubs="xpu").answer
    assert all("Flint needs a KV cache of (blocks, 2, block size, 256)" in error for error in found["refused"].values())
    assert set(found["refused"]) == {"planes in front", "heads folded", "five axes"}
    assert found["written"] == 0


def test_the_reference_would_notice_a_window_off_by_one_a_missing_sink_and_a_missing_rotation():
    found = probe.run("sensitivity", trees.patched("vllm-xpu"), env=XPU, stubs="xpu").answer
    assert found["as it is"] < 0.01
    assert all(error > 0.03 for name, error in found.items() if name != "as it is"), found
