"""flint-norm-portable: red on the file as shipped, green on the patched one."""

from __future__ import annotations

from tests.kernels import probe, trees
from tests.kernels.numbers import KINDS, SILU_SIZES

INTERPRETED = {"TRITON_INTERPRET": "1"}


def test_the_shipped_norm_needs_ptx_and_its_silu_cannot_take_the_shards_of_four_and_eight_gpus():
    found = probe.run("norm", trees.pristine(), "attempts", env=INTERPRETED).answer
    assert "inline_asm" in found["rms_norm 2048"]
    assert found["silu 1536"].startswith("AssertionError")
    assert "power of 2" in found["silu 768"]
    assert all(found[f"silu {width}"] == "ok" for width in SILU_SIZES if width not in (1536, 768))


def test_the_patched_norm_and_silu_run_at_every_size():
    found = probe.run("norm", trees.patched("vllm-xpu"), "attempts", env=INTERPRETED).answer
    assert set(found.values()) == {"ok"}


def test_patched_norms_differ_from_plain_torch_by_one_rounding_at_most_and_seldom():
    table = probe.run("norm", trees.patched("vllm-xpu"), "numbers", env=INTERPRETED).answer
    norms = [row for row in table if row["kernel"] in ("rms_norm", "fused_add_rms_norm")]
    assert {row["kind"] for row in norms} == {*KINDS, "strided", "many"}
    assert max(row["max"] for row in norms) <= 1
    assert sum(row["differing"] for row in norms) <= 1e-4 * sum(row["elements"] for row in norms)


def test_the_patched_residual_and_silu_are_plain_torchs_bit_for_bit():
    table = probe.run("norm", trees.patched("vllm-xpu"), "numbers", env=INTERPRETED).answer
    rest = [row for row in table if row["kernel"] in ("residual", "silu_and_mul")]
    assert {row["width"] for row in rest} >= set(SILU_SIZES)
    assert [row for row in rest if row["differing"]] == []
