"""The shipped manifests: every pinned hash, condition and assert, on the real files."""

from __future__ import annotations

import hashlib
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
