"""The shipped manifests: every pinned hash, condition and assert, on the real files."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path

import pytest

from patchkit.catalog import condition
from patchkit.catalog.load import load_catalog
from tests.kernels import probe, trees

MANIFESTS = {each.name: each for each in load_catalog(trees.REPOSITORY).manifests}
ENTRIES = [(manifest, entry) for manifest in MANIFESTS.values() for entry in manifest.patches]
#: Once for each diff: manifests that share one say the same about it.
ASSERTS = [
    (manifest.name, entry, number)
    for manifest, entry in {entry.file: (manifest, entry) for manifest, entry in reversed(ENTRIES)}.values()
    for number in range(len(entry.asserts))
]


def read(tree: Path, path: str) -> bytes | None:
    return (tree / path).read_bytes() if (tree / path).is_file() else None


def by_name(case):
    return "-".join(getattr(part, "id", getattr(part, "name", str(part))) for part in case)


@pytest.mark.parametrize("case", ENTRIES, ids=by_name)
def test_the_listed_pre_images_are_the_wheels_files_and_the_post_images_what_patchkit_makes_of_them(case):
    manifest, entry = case
    for listed, tree in ((entry.pre, trees.pristine()), (entry.post, trees.patched(manifest.name))):
        assert listed
        for path, expected in listed.items():
            assert f"sha256:{hashlib.sha256(read(tree, path) or b'').hexdigest()}" == expected


@pytest.mark.parametrize("case", [case for case in ENTRIES if case[1].drop_when], ids=by_name)
def test_no_drop_condition_holds_on_the_files_as_shipped(case):
    _, entry = case
    paths = condition.paths(entry.drop_when)
    assert not condition.holds(entry.drop_when, {path: read(trees.pristine(), path) for path in paths})


@pytest.mark.parametrize("case", [case for case in ENTRIES if case[1].drop_when], ids=by_name)
def test_every_drop_condition_holds_on_the_patched_files_but_for_an_argument_that_the_patch_makes_up_for(case):
    manifest, entry = case
    files = {path: read(trees.patched(manifest.name), path) for path in condition.paths(entry.drop_when)}
    assert condition.holds(entry.drop_when, files) is (entry.id != "aiter-sigmoid-renormalize")


def shipped(name):
    """The drop condition of a patch, the path that it looks at, and that file as shipped."""
    stated = next(entry.drop_when for _, entry in ENTRIES if entry.id == name)
    (path,) = condition.paths(stated)
    return stated, path, read(trees.pristine(), path).decode()


def changed(source, *pairs):
    for old, new in pairs:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source.encode()


SIGMOID = """\
        torch.ops.vllm.rocm_aiter_topk_sigmoid(
            topk_weights, topk_indices, gating_output
        )
"""
CALL = "        torch.ops.vllm.rocm_aiter_topk_sigmoid({})\n"


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        (CALL.format("topk_weights, topk_indices, gating_output, renormalize"), True),
        (CALL.format("topk_weights, topk_indices, gating_output, need_renorm=renormalize"), True),
        ("        # renormalize\n" + SIGMOID, False),
        ('        logger.info_once("renormalize=%s", renormalize)\n' + SIGMOID, False),
        ('        assert not renormalize, "AITER cannot"\n' + SIGMOID, False),
        (
            SIGMOID + "        if renormalize:\n            topk_weights.div_(topk_weights.sum(-1, keepdim=True))\n",
            False,
        ),
        ("        op = torch.ops.vllm.rocm_aiter_topk_sigmoid\n        op(topk_weights, renormalize)\n", False),
        (CALL.format("topk_weights, topk_indices, gating_output, renormalize") + SIGMOID, False),
    ],
)
def test_an_upstream_fix_of_aiters_sigmoid_is_told_from_what_only_speaks_of_it(fixed, expected):
    stated, path, source = shipped("aiter-sigmoid-renormalize")
    assert condition.holds(stated, {path: changed(source, (SIGMOID, fixed))}) is expected


IMPORT = """\
        from vllm.v1.attention.backends.flashinfer import (
            FlashInferImpl,
            FlashInferMetadata,
            FlashInferTrtllmAPIDecode,
        )

"""
CLAIM = """\
        assert isinstance(impl, FlashInferImpl), "Flint requires FlashInfer attention"
        self._metadata_cls = FlashInferMetadata
        self._decode_cls = FlashInferTrtllmAPIDecode
"""
KERNELS = "        self.flint_decode = _flint_kernels(quant_config)\n"
FUSED = "            assert not config.attention_bias\n"
MOVED = (IMPORT, ""), (CLAIM, ""), (FUSED, FUSED + textwrap.indent(IMPORT + CLAIM, "    "))


@pytest.mark.parametrize(
    ("fix", "expected"),
    [
        (MOVED, True),
        (
            (*MOVED, ("        if self.flint_decode:\n" + FUSED, "        if _flint_kernels(quant_config):\n" + FUSED)),
            True,
        ),
        ((*MOVED, (KERNELS, KERNELS.replace("\n", " and not is_sliding\n"))), True),
        (((IMPORT, ""), (CLAIM, "")), True),
        ((*MOVED, (KERNELS, KERNELS.replace("\n", " or current_platform.is_cuda()\n"))), False),
        ((*MOVED, ("        if self.flint_decode:\n" + FUSED, "        if not self.flint_decode:\n" + FUSED)), False),
        ((*MOVED, ("        if self.flint_decode:\n" + FUSED, "        if config.fast:\n" + FUSED)), False),
        # What fails without FlashInfer is the import, whatever is imported.
        (((IMPORT, IMPORT.replace("            FlashInferImpl,\n", "")), (CLAIM, "")), False),
        (((IMPORT, "        import flashinfer as _\n"), (CLAIM, "")), False),
        ((*MOVED, ("\nimport torch\n", "\nimport torch\nfrom flashinfer import decode\n")), False),
        (
            (
                (IMPORT, ""),
                (CLAIM, "        self._require_flashinfer(impl)\n"),
                (
                    "    def _cos_sin(self)",
                    "    def _require_flashinfer(self, impl):\n" + IMPORT + CLAIM + "\n    def _cos_sin(self)",
                ),
            ),
            False,
        ),
    ],
)
def test_an_upstream_fix_of_flints_attention_may_keep_flashinfer_where_flints_kernels_run(fix, expected):
    stated, path, source = shipped("flint-model-attention")
    assert condition.holds(stated, {path: changed(source, *fix)}) is expected


def test_manifests_that_share_a_diff_say_the_same_about_it():
    said = {}
    for _, entry in ENTRIES:
        assert said.setdefault(entry.file, entry) == entry


def run(manifest, entry, number, tree, **env):
    check = entry.asserts[number]
    platform = manifest.removeprefix("vllm-").removesuffix("-full")
    stubs = platform if platform in ("xpu", "rocm") else ""
    settings = {"STUB_GFX": "gfx942", "HIP_VISIBLE_DEVICES": "", **env} if stubs == "rocm" else env
    return probe.run("asserted", tree, check.before, check.module, check.code, env=settings, stubs=stubs)


@pytest.mark.parametrize("case", [case for case in ASSERTS if "gpu" not in case[1].asserts[case[2]].needs], ids=by_name)
def test_each_assert_fails_on_the_files_as_shipped_and_passes_on_the_patched_ones(case):
    manifest, entry, number = case
    before = run(manifest, entry, number, trees.pristine())
    assert before.status == 1
    assert before.answer is None
    after = run(manifest, entry, number, trees.patched(manifest))
    assert (after.status, after.answer) == (0, "passed"), after.stderr


@pytest.mark.parametrize("case", [case for case in ASSERTS if "gpu" in case[1].asserts[case[2]].needs], ids=by_name)
def test_each_assert_for_a_gpu_passes_in_the_interpreter_too(case):
    manifest, entry, number = case
    after = run(manifest, entry, number, trees.patched(manifest), TRITON_INTERPRET="1", STAND_IN="cpu")
    assert (after.status, after.answer) == (0, "passed"), after.stderr
